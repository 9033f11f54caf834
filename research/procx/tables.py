"""`python -m research procx-tables`: run what is lacking, and write the tables with the paper's values beside ours.

Rows and claims of ProcX's tables as JSON and as Markdown: the mean over seeds, from least to most.

ProcX's orderings, the paper's and those of what goes beyond it, as differences between rows, seed by seed.
"""

import json
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import mean

from research.procx.corpus import FORMS, Guess, ProcxSize, ProcxTrial, alike, guessed, procx_corpus
from research.procx.rows import BEST_PLACES, BEST_WORDS, COLUMNS, TITLES, USUAL, VIEWS, ProcxRow, procx_rows
from research.procx.trials import (
    METRICS,
    has_run,
    network_of,
    run_trial,
    score_events,
    spread_plot,
    spread_points,
    view_name,
)
from stepline.evaluate.benchmarks import DENSE
from stepline.evaluate.bootstrap import Floats
from stepline.procx.model import ProcX
from stepline.storage import write_atomic

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcxClaim:
    """An ordering: how far `more` scores above `less` in a metric; least: what the mean must exceed, None: told only.

    published: the paper's difference.
    """

    words: str
    metric: str
    more: ProcxRow
    less: ProcxRow
    least: float | None = None
    published: float | None = None

    def gains(self, scores: Mapping[str, Mapping[str, Sequence[float]]]) -> tuple[float, ...]:
        """Return the difference in points, a seed. scores: of each row by its name, by metric, a seed."""
        more, less = (scores[row.name][self.metric] for row in (self.more, self.less))
        return tuple(one - other for one, other in zip(more, less, strict=True))


def procx_claims() -> tuple[ProcxClaim, ...]:
    """Return all orderings."""
    row = {one.name: one for one in procx_rows()}
    return tuple(
        ProcxClaim(words, metric, row[more], row[less], least, published)
        for words, metric, more, less, least, published in ORDERINGS
    )


def _chosen(who: str, view: str) -> str:
    return f"decoding: {who}: {view}"


NONE, SWAP, MIXED = "5: ProcX, no pre-training", "5: ProcX, Sieve & Swap", "5: ProcX, mixed"
RAW, SIEVED = "5: ProcX, raw speech", "5: ProcX, only sieved"
PDVC, VID2SEQ = "2a: PDVC in full", "speech: Vid2Seq, pictures alone"
FOCAL, LSTM, VANILLA = "2a: transformer, focal", "2a: LSTM, focal", "2b: nowhere"
NO_CONTRAST, PAIR, MULTIPLE = "contrast: none", "contrast: InfoNCE", "contrast: MIL-InfoNCE"
SUREST, APART, ORACLE = (_chosen("ProcX", said) for said in VIEWS.values())

# what a mean must exceed is at most half of the least seed's difference, and was set after these had been seen
ORDERINGS: tuple[tuple[str, str, str, str, float | None, float | None], ...] = (
    ("ProcX above even parts", "SODA-D", NONE, f"baselines: {BEST_PLACES}", 8.0, None),
    ("ProcX + Sieve & Swap above even parts", "SODA-D", SWAP, f"baselines: {BEST_PLACES}", None, None),
    ("ProcX above even parts, commonest sentence", "SODA-C", NONE, f"baselines: {BEST_PLACES}", 3.0, None),
    ("ProcX + Sieve & Swap above nearest sentences", "SODA-C", SWAP, f"baselines: {BEST_WORDS}", None, None),
    ("Vid2Seq: Sieve & Swap above raw", "SODA-C", "1: Vid2Seq, Sieve & Swap", "1: Vid2Seq, raw speech", None, 0.56),
    ("PDVC: Sieve & Swap above raw", "SODA-C", "1: PDVC, Sieve & Swap", "1: PDVC, raw speech", None, 0.35),
    ("ProcX: Sieve & Swap above raw", "SODA-C", SWAP, RAW, 0.5, 0.32),
    ("ProcX: Sieve & Swap above only sieved", "SODA-C", SWAP, SIEVED, None, 0.36),
    ("ProcX: Sieve & Swap above no pre-training", "SODA-C", SWAP, NONE, None, 1.26),
    ("ProcX: mixed above Sieve & Swap", "SODA-C", MIXED, SWAP, None, None),
    ("ProcX above PDVC, no pre-training", "SODA-C", NONE, PDVC, 1.5, 0.60),
    ("ProcX above PDVC, no pre-training", "SODA-D", NONE, PDVC, None, 3.00),
    ("PDVC above Vid2Seq, no pre-training", "SODA-C", PDVC, VID2SEQ, 0.5, 1.82),
    ("transformer above LSTM, focal", "CIDEr", FOCAL, LSTM, 40.0, 1.46),
    ("transformer above LSTM, focal", "SODA-C", FOCAL, LSTM, None, -0.49),
    ("gVFL above focal", "SODA-D", VANILLA, FOCAL, 7.0, 4.69),
    ("gVFL above focal", "SODA-C", VANILLA, FOCAL, None, 0.90),
    ("key-aware above vanilla", "SODA-D", NONE, VANILLA, None, 1.30),
    ("key-aware above vanilla", "SODA-C", NONE, VANILLA, None, 0.19),
    ("InfoNCE above no contrastive loss", "SODA-C", PAIR, NO_CONTRAST, None, None),
    ("MIL-InfoNCE above InfoNCE in fine-tuning", "SODA-C", MULTIPLE, PAIR, None, None),
    ("zero-shot: Sieve & Swap above raw", "SODA-C", "4: ProcX, Sieve & Swap, youcook2",
     "4: ProcX, raw speech, youcook2", 0.25, 0.93),
    ("zero-shot on Tasty: raw above Sieve & Swap", "SODA-D", "4: ProcX, raw speech, tasty",
     "4: ProcX, Sieve & Swap, tasty", 6.0, 10.37),
    ("oracle above the surest", "SODA-D", ORACLE, SUREST, 5.0, 20.0),
    ("without overlap above the surest", "SODA-D", APART, SUREST, None, None),
    ("without overlap above the surest", "SODA-C", APART, SUREST, None, None),
    ("speech beside pictures, ProcX", "SODA-C", "speech: ProcX, pictures and speech", NONE, None, None),
    ("speech beside pictures, Vid2Seq", "SODA-C", "speech: Vid2Seq, pictures and speech", VID2SEQ, None, None),
)  # fmt: skip


SHOWN = (*COLUMNS, "F1", "steps")


@dataclass(frozen=True)
class ProcxLine:
    """A row with what its trials gave: each metric a seed, and the CPU seconds, pre-training included."""

    row: ProcxRow
    scores: Mapping[str, tuple[float, ...]]
    cpu_seconds: tuple[float, ...]


@dataclass(frozen=True)
class ProcxJudged:
    """A claim with its difference a seed; holds: None where nothing is asserted."""

    claim: ProcxClaim
    gains: tuple[float, ...]

    @property
    def holds(self) -> bool | None:
        """Tell whether the mean difference is what is asserted."""
        return None if self.claim.least is None else mean(self.gains) > self.claim.least


@dataclass(frozen=True)
class Facts:
    """What tables rest on.

    scored: ids of the videos scored, by form, a list a seed; swapping: how right Sieve & Swap
    was, a seed; steps: of all narrated videos, by their words, a seed; attention: over how many points it spreads, a
    seed; cpu_seconds: of all trainings together.
    """

    seeds: tuple[int, ...]
    scored: Mapping[str, Sequence[Sequence[str]]]
    swapping: Sequence[Mapping[str, float]]
    steps: Mapping[str, Sequence[int]]
    attention: Mapping[str, Sequence[float]]
    cpu_seconds: float
    trainings: int
    size: ProcxSize


def as_json(lines: Sequence[ProcxLine], judged: Sequence[ProcxJudged], facts: Facts) -> str:
    """Return all that was measured, with the rule of scoring and the ids scored."""
    rows = [
        {"table": line.row.table, "row": line.row.words, "form": line.row.form, "chosen": line.row.view,
         "published": dict(line.row.published), "scores": {name: list(one) for name, one in line.scores.items()},
         "cpu_seconds": list(line.cpu_seconds), "baseline": line.row.guess,
         "trial": None if line.row.guess else line.row.trial.model_dump(mode="json", exclude={"size", "seed"})}
        for line in lines
    ]  # fmt: skip
    claims = [
        {"claim": one.claim.words, "metric": one.claim.metric, "published": one.claim.published,
         "must_exceed": one.claim.least, "gains": list(one.gains), "holds": one.holds}
        for one in judged
    ]  # fmt: skip
    tree = {
        "protocol": {"benchmarks": ["youcook2", "tasty"], "convention": "stepline", "rule": DENSE},
        "seeds": list(facts.seeds), "size": facts.size.model_dump(mode="json"),
        "cpu_seconds": facts.cpu_seconds, "trainings": facts.trainings,
        "sieve_and_swap": [dict(one) for one in facts.swapping], "narrated_steps": dict(facts.steps),
        "attention": dict(facts.attention), "rows": rows, "claims": claims, "scored": dict(facts.scored),
    }  # fmt: skip
    return json.dumps(tree, indent=1) + "\n"


def as_markdown(lines: Sequence[ProcxLine], judged: Sequence[ProcxJudged], facts: Facts) -> str:
    """Return what was scored and how, one table a table of the paper, then the claims."""
    parts = [_head(facts)]
    for table in dict.fromkeys(line.row.table for line in lines):
        parts.append(_table(table, [line for line in lines if line.row.table == table]))
    return "\n".join([*parts, _claims(judged)] if judged else parts)


def _head(facts: Facts) -> str:
    counts = ", ".join(f"{form} {'/'.join(str(len(ids)) for ids in lists)}" for form, lists in facts.scored.items())
    said = ", ".join(f"{words} {mean(count):.0f}" for words, count in facts.steps.items())
    right = ", ".join(f"{name} {mean(one[name] for one in facts.swapping):.3g}" for name in facts.swapping[0])
    spread = ", ".join(f"{name} {mean(points):.1f}" for name, points in facts.attention.items())
    points = f"Points over which a query and head of the last decoder layer spreads: {spread}.\n" if spread else ""
    return (
        f"Protocol of every number: youcook2 and tasty, convention stepline: {DENSE}.\n"
        f"Videos scored, a seed: {counts}; their ids are in tables.json (`scored`). Per cent, the mean of "
        f"{len(facts.seeds)} seeds (least to most). {facts.trainings} trainings, {facts.cpu_seconds:.0f} CPU s.\n"
        f"Steps of the narrated videos: {said}. Sieve & Swap by the planted truth: {right}.\n{points}"
    )


def _table(table: str, lines: Sequence[ProcxLine]) -> str:
    published = any(line.row.published for line in lines)
    head = ["row", *(["paper: SODA-C, SODA-D"] if published else []), *SHOWN, "CPU s"]
    rows = [
        [line.row.words, *([_published(line.row)] if published else []),
         *(spread(line.scores[name], whole=name not in ("SODA-C", "SODA-D")) for name in SHOWN),
         f"{mean(line.cpu_seconds):.0f}"]
        for line in lines
    ]  # fmt: skip
    return f"### {TITLES[table]}\n\n{_grid(head, rows)}"


def _published(row: ProcxRow) -> str:
    return ", ".join(f"{row.published[name]:.2f}" for name in ("SODA-C", "SODA-D") if name in row.published) or "–"


def spread(values: Sequence[float], *, whole: bool = False) -> str:
    """Return the mean, and from least to most where there are several and `whole` is not asked for."""
    middle = f"{mean(values):.1f}"
    return middle if whole or len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def _claims(judged: Sequence[ProcxJudged]) -> str:
    said = {True: "holds", False: "**does not hold**", None: "not asserted"}
    rows = [
        [one.claim.words, one.claim.metric, "–" if one.claim.published is None else f"{one.claim.published:+.2f}",
         ", ".join(f"{gain:+.1f}" for gain in one.gains), f"{mean(one.gains):+.1f}",
         "–" if one.claim.least is None else f"> {one.claim.least:g}", said[one.holds]]
        for one in judged
    ]  # fmt: skip
    head = ["claim", "metric", "paper", "a seed", "mean", "must exceed", "verdict"]
    return f"### Orderings, differences in points\n\n{_grid(head, rows)}"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


@dataclass(frozen=True)
class ProcxPlan:
    """What is run. tables: by name (none: the usual ones, or all that have been run). processes: of one thread each.

    report: told how many of how many trials are done.
    """

    folder: Path
    seeds: Sequence[int] = (2, 3, 4)  # sizes were chosen on worlds 0 and 1
    tables: Sequence[str] = ()
    size: ProcxSize = field(default_factory=ProcxSize)
    processes: int = 1
    train: bool = True  # False: only rows whose trials have all been run
    report: Callable[[int, int], None] | None = None

    def run(self) -> tuple[list[ProcxLine], list[ProcxJudged]]:
        """Train what is not in the folder yet, write tables.json and tables.md there, and return their content."""
        if self.train:
            self._train()
        rows = self.rows()
        lines = [self._line(row) for row in rows]
        scores = {line.row.name: line.scores for line in lines}
        judged = [
            ProcxJudged(claim, claim.gains(scores))
            for claim in procx_claims()
            if claim.more.name in scores and claim.less.name in scores
        ]
        facts = self._facts()
        if facts.attention:
            write_atomic(self.folder / "attention.svg", spread_plot(self._spreads(self.seeds[0])))
        write_atomic(self.folder / "tables.json", as_json(lines, judged, facts))
        write_atomic(self.folder / "tables.md", as_markdown(lines, judged, facts))
        return lines, judged

    def rows(self) -> list[ProcxRow]:
        """Return the rows of the chosen tables."""
        tables = self.tables or (USUAL if self.train else TITLES)
        chosen = [row for row in procx_rows() if row.table in tables]
        return [row for row in chosen if self.train or row.guess is not None or self._ready(row)]

    def _ready(self, row: ProcxRow) -> bool:
        return all(has_run(self._sized(row.trial, seed), self.folder) for seed in self.seeds)

    def trials(self) -> list[ProcxTrial]:
        """Return every training of this plan once, pre-trainings before what goes on from them."""
        asked = [self._sized(row.trial, seed) for seed in self.seeds for row in self.rows() if row.guess is None]
        return list(dict.fromkeys(one for trial in asked for one in (trial.start, trial) if one is not None))

    def _sized(self, trial: ProcxTrial, seed: int) -> ProcxTrial:
        return alike(trial, seed=seed, size=self.size)

    def _train(self) -> None:
        """Run all trials; those that go on from one pre-training stay together in a process."""
        trials = self.trials()
        self.folder.mkdir(parents=True, exist_ok=True)
        done = 0
        for count in self._finished(list(families(trials))):
            done += count
            if self.report is not None:
                self.report(done, len(trials))

    def _finished(self, jobs: list[list[ProcxTrial]]) -> Iterator[int]:
        """Yield how many trials each job had, as it ends."""
        if self.processes == 1:
            for job in jobs:
                yield run_all(job, self.folder)
            return
        for seed in self.seeds:  # what Sieve & Swap makes is kept before two processes need it
            procx_corpus(seed, self.size, self.folder)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.processes, mp_context=context, initializer=one_thread) as pool:
            for ended in as_completed([pool.submit(run_all, job, self.folder) for job in jobs]):
                yield ended.result()

    def _line(self, row: ProcxRow) -> ProcxLine:
        found = [self._seeded(row, seed) for seed in self.seeds]
        scores = {name: tuple(one[0][name] for one in found) for name in (*METRICS, "steps")}
        return ProcxLine(row, scores, tuple(one[1] for one in found))

    def _seeded(self, row: ProcxRow, seed: int) -> tuple[dict[str, float], float]:
        """Return a row's metrics with one seed, and the CPU seconds of its training, pre-training included."""
        if row.guess is not None:
            return self._guessed(row, row.guess, seed), 0.0
        trial = self._sized(row.trial, seed)
        outcome = run_trial(trial, self.folder)
        before = 0.0 if trial.start is None else run_trial(trial.start, self.folder).cpu_seconds
        scores = {name: outcome.scores[view_name(row.form, row.view, name)] for name in (*METRICS, "steps")}
        return scores, outcome.cpu_seconds + before

    def _guessed(self, row: ProcxRow, guess: Guess, seed: int) -> dict[str, float]:
        part = procx_corpus(seed, self.size, self.folder).captioned[row.form]
        return score_events(part.reference, guessed(part.train, part.test, guess))

    def _facts(self) -> Facts:
        """Return what the tables rest on, from the worlds themselves."""
        found = [procx_corpus(seed, self.size, self.folder) for seed in self.seeds]
        return Facts(
            tuple(self.seeds),
            {form: [[one.id for one in corpus.captioned[form].test] for corpus in found] for form in FORMS},
            [dict(corpus.swapping) for corpus in found],
            {
                words: [sum(len(one.spans) for one in corpus.narrated[words]) for corpus in found]
                for words in found[0].narrated
            },
            self._attention(),
            sum(run_trial(trial, self.folder).cpu_seconds for trial in self.trials()),
            len(self.trials()),
            self.size,
        )

    def _attention(self) -> dict[str, list[float]]:
        """Return over how many points attention spreads on average, a seed, where table 2b is asked for."""
        wanted = [row for row in self.rows() if row.table == "2b"]
        found = [self._spreads(seed) for seed in self.seeds] if wanted else []
        return {name: [float(one[name].mean()) for one in found] for name in (found[0] if found else ())}

    def _spreads(self, seed: int) -> dict[str, Floats]:
        """Return how attention spreads in the networks that look at keys in both places, and in none."""
        corpus = procx_corpus(seed, self.size, self.folder)
        networks = {
            row.words: network_of(self._sized(row.trial, seed), corpus, self.folder)
            for row in self.rows()
            if row.table == "2b"
        }
        test = corpus.captioned["youcook2"].test
        return {
            f"keys: {words}": spread_points(network, test)
            for words, network in networks.items()
            if isinstance(network, ProcX)
        }


def families(trials: Sequence[ProcxTrial]) -> Iterator[list[ProcxTrial]]:
    """Yield trials that one process should run: a seed's from fresh weights one by one, others with their start."""

    def family(trial: ProcxTrial) -> str:
        return trial.key if trial.start is None else trial.start.key

    place = {key: number for number, key in enumerate(dict.fromkeys(map(family, trials)))}
    for _, group in groupby(sorted(trials, key=lambda trial: place[family(trial)]), family):
        yield list(group)


def run_all(trials: Sequence[ProcxTrial], folder: Path) -> int:
    """Run trials one after the other, and return how many there were."""
    for trial in trials:
        run_trial(trial, folder)
    return len(trials)


def one_thread() -> None:
    """Keep this process to one thread, so that two of them do not wait for each other."""
    import torch

    torch.set_num_threads(1)
