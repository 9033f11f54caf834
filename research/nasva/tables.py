"""`python -m research nasva-tables`: run what is lacking, and write the tables.

Rows and claims of an experiment as JSON and as Markdown: the mean over seeds, from least to most.

Orderings of the paper, and what goes beyond it, as differences between trials, seed by seed.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from research.nasva.corpus import Size, Trial, read_corpus
from research.nasva.rows import (
    ALL_PLANTED,
    EARLY,
    FIRST,
    NARRATED,
    OURS,
    PAPER,
    SAID,
    STEPS,
    Row,
    fixed,
    labelled,
    round_of,
    rows,
    sized,
    start,
)
from research.nasva.trials import Laboratory, Outcome
from stepline.errors import ShapeError
from stepline.storage import write_atomic

INSIDE = "labels inside"
REFINED = labelled(*PAPER)
CENTER, AVERAGED = labelled(round_of()), labelled(round_of(teachers=2))
BOTH = labelled(*PAPER, texts="W+S")
VIDEO, VIDEO_REFINED = labelled(first="video"), labelled(*PAPER, first="video")


@dataclass(frozen=True)
class Claim:
    """How far `more` scores above `less`; with `beyond`, how much further than its second above its first.

    least: what the mean over the seeds must exceed, None where nothing is asserted. published: the paper's difference.
    """

    words: str
    score: str
    more: Trial
    less: Trial
    least: float | None = None
    published: float | None = None
    beyond: tuple[Trial, Trial] | None = None

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trainings that the claim is about."""
        return (self.more, self.less, *(self.beyond or ()))

    def gain(self, outcome: Callable[[Trial], Outcome]) -> float:
        """Return the difference, in points."""
        more, less, *rest = (outcome(trial).scores[self.score] for trial in self.trials)
        return more - less - (rest[1] - rest[0] if rest else 0.0)

    def holds(self, gains: Sequence[float]) -> bool | None:
        """Tell whether the mean gain is what is asserted; None where nothing is."""
        return None if self.least is None else sum(gains) / len(gains) > self.least


ASSERTED = (
    Claim("W + S above W, steps", STEPS, BOTH, NARRATED, 5.0, 10.2),
    Claim("self-training on Step-ASR labels, equally long training, steps", STEPS, REFINED, FIRST, 4.0, 7.7),
    Claim("the same above that of Step-Video labels", STEPS, REFINED, FIRST, 2.0, 7.3, (VIDEO, VIDEO_REFINED)),
    Claim("refined S above W, steps", STEPS, REFINED, NARRATED, 0.0, 9.0),
    Claim("W above refined S, narrations", SAID, NARRATED, REFINED, 0.0, 23.3),
    Claim("refined labels in the planted window more often than coarse ones", INSIDE, REFINED, FIRST, 0.0),
    Claim("our student above the early-stopped teacher, steps", STEPS, labelled(OURS), EARLY, 0.0),
    Claim("our student above the early-stopped teacher, narrations", SAID, labelled(OURS), EARLY, 0.0),
)

REPORTED = (
    Claim("the paper's student above the early-stopped teacher, steps", STEPS, REFINED, EARLY),
    Claim("start above center, 8 s, steps", STEPS, REFINED, labelled(fixed(0.8, "center", 8.0)), None, 6.5),
    Claim("eps2 0.8 above 0.7, start, steps", STEPS, REFINED, labelled(start(0.7)), None, 1.4),
    Claim("two teachers averaged above one, center, steps", STEPS, AVERAGED, CENTER),
    Claim("teachers that agree above averaged, steps", STEPS, labelled(OURS), AVERAGED),
    Claim("a second round of ours above the first, steps", STEPS, labelled(OURS, OURS), labelled(OURS)),
    Claim("W + S above W, narrations", SAID, BOTH, NARRATED, None, 6.2),
    Claim("the ceiling above W + S, steps", STEPS, ALL_PLANTED, BOTH),
)


TITLES = {
    "2": "Table 2: training texts (W narrations, S written steps) and backbones",
    "3": "Table 3: where labels come from, thresholds, self-training; S alone",
    "4": "Table 4: backbones and recognisers; W alone",
    "8": "Table 8: the first refinement; S alone",
    "9": "Table 9: rounds of self-training",
    "beyond": "Beyond the paper: a student better than its early-stopped teacher; S alone where not said",
    "head": "Alignability: ROC-AUC of the head beside the best cosine's; two teachers that agree, S alone",
    "size": "Networks of the paper's size, trained as long as a teacher; S alone",
    "dropout": "Attention dropout; two teachers that agree, S alone",
}
AUC = tuple(f"{kind} AUC {of}" for kind in ("recipe", "step", "narration") for of in ("cosine", "head"))
NAMES = {
    STEPS: "steps R@1",
    SAID: "narrations R@1",
    "labels kept": "labels kept",
    "labels inside": "inside the window",
    "recipe AUC cosine": "steps, cosine",
    "recipe AUC head": "steps, head",
    "step AUC cosine": "written steps, cosine",
    "step AUC head": "written steps, head",
    "narration AUC cosine": "narrations, cosine",
    "narration AUC head": "narrations, head",
}


@dataclass(frozen=True)
class Line:
    """A row with what its trials gave: each score a seed, in per cent, and the CPU seconds, teachers included.

    failure: why one of them could not be trained; there are no scores then.
    """

    row: Row
    scores: Mapping[str, tuple[float, ...]]
    cpu_seconds: tuple[float, ...]
    failure: str | None = None


@dataclass(frozen=True)
class Judged:
    """A claim with its difference a seed."""

    claim: Claim
    gains: tuple[float, ...]


def as_json(lines: Sequence[Line], judged: Sequence[Judged], seeds: Sequence[int]) -> str:
    """Return all that was measured."""
    rows = [
        {"table": line.row.table, "row": line.row.words, "published": dict(line.row.published),
         "scores": {name: list(values) for name, values in line.scores.items()}, "cpu_seconds": list(line.cpu_seconds),
         "failure": line.failure,
         "trial": line.row.trial.model_dump(mode="json")}
        for line in lines
    ]  # fmt: skip
    claims = [
        {"claim": one.claim.words, "score": one.claim.score, "published": one.claim.published,
         "must_exceed": one.claim.least, "gains": list(one.gains), "holds": one.claim.holds(one.gains)}
        for one in judged
    ]  # fmt: skip
    return json.dumps({"seeds": list(seeds), "rows": rows, "claims": claims}, indent=1) + "\n"


def as_markdown(lines: Sequence[Line], judged: Sequence[Judged]) -> str:
    """Return one table a table of the paper, then the claims."""
    parts = []
    for table in dict.fromkeys(line.row.table for line in lines):
        parts.append(_table(table, [line for line in lines if line.row.table == table]))
    return "\n".join([*parts, _claims(judged)]) if judged else "\n".join(parts)


def spread(values: Sequence[float]) -> str:
    """Return the mean, and from least to most where there are several."""
    if not values:
        return "–"
    middle = f"{mean(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def _table(table: str, lines: Sequence[Line]) -> str:
    columns = _columns(table)
    published = table in "23489"
    head = ["row", *(["published: steps, narrations"] if published else []), *(NAMES[name] for name in columns)]
    rows = [
        [_words(line), *([_published(line.row)] if published else []),
         *(spread(line.scores.get(name, ())) for name in columns), _seconds(line)]
        for line in lines
    ]  # fmt: skip
    return f"### {TITLES[table]}\n\n{_grid([*head, 'CPU s'], rows)}"


def _seconds(line: Line) -> str:
    return f"{mean(line.cpu_seconds):.0f}" if line.cpu_seconds else "–"


def _words(line: Line) -> str:
    return line.row.words if line.failure is None else f"{line.row.words}: {line.failure}"


def _columns(table: str) -> tuple[str, ...]:
    if table == "head":
        return (STEPS, SAID, *AUC)
    return (STEPS, SAID) if table in ("2", "4", "size", "dropout") else (STEPS, SAID, "labels kept", "labels inside")


def _published(row: Row) -> str:
    return ", ".join(f"{row.published[name]:.1f}" for name in (STEPS, SAID) if name in row.published) or "–"


def _claims(judged: Sequence[Judged]) -> str:
    said = {True: "holds", False: "**does not hold**", None: "not asserted"}
    rows = [
        [one.claim.words, "–" if one.claim.published is None else f"{one.claim.published:+.1f}",
         ", ".join(f"{gain:+.1f}" for gain in one.gains), f"{mean(one.gains):+.1f}",
         "–" if one.claim.least is None else f"> {one.claim.least:g}", said[one.claim.holds(one.gains)]]
        for one in judged
    ]  # fmt: skip
    head = ["claim", "paper", "a seed", "mean", "must exceed", "verdict"]
    return f"### Orderings, differences in points\n\n{_grid(head, rows)}"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


@dataclass(frozen=True)
class Plan:
    """What is run: tables by name (none: all), seeds, size. report: told how many of how many trials are done."""

    folder: Path
    seeds: Sequence[int] = (0, 1, 2)
    tables: Sequence[str] = ()
    size: Size = field(default_factory=Size)
    report: Callable[[int, int], None] | None = None
    data: Path | None = None  # real data, as `on_disk` reads it; else the simulated world

    def run(self) -> tuple[list[Line], list[Judged]]:
        """Train what is not in the folder yet, write tables.json and tables.md there, and return their content."""
        laboratory = self._laboratory()
        failures = self._train(laboratory)
        lines = [self._line(row, laboratory, failures) for row in self._rows()]
        sound = [claim for claim in self._claims() if not failures.keys() & claim.trials]
        judged = [self._judged(claim, laboratory) for claim in sound]
        write_atomic(self.folder / "tables.json", as_json(lines, judged, self.seeds))
        write_atomic(self.folder / "tables.md", as_markdown(lines, judged))
        return lines, judged

    def _laboratory(self) -> Laboratory:
        """Return where trials are run: a folder for the simulated world, another for each real data."""
        if self.data is None:
            return Laboratory(self.folder / "trials")
        data = self.data.resolve()
        name = hashlib.sha256(str(data).encode()).hexdigest()[:8]
        return Laboratory(self.folder / f"trials-{name}", lambda trial: read_corpus(data, trial))

    def _train(self, laboratory: Laboratory) -> dict[Trial, str]:
        """Run all trials, and return those of the rows that could not be trained, with the reason."""
        failures: dict[Trial, str] = {}
        trials = list(self._trials())
        for done, (row, trial) in enumerate(trials):
            if self.report is not None:
                self.report(done, len(trials))
            try:
                laboratory.outcome(trial)
            except ShapeError as error:  # a threshold that keeps no label is a result, not the end
                failures[row] = str(error)
        return failures

    def _rows(self) -> list[Row]:
        """Return the rows of the chosen tables; real data have no planted ones."""
        chosen = [row for row in rows() if not self.tables or row.table in self.tables]
        return [row for row in chosen if self.data is None or not _needs_truth(row.trial)]

    def _sized(self, trial: Trial, seed: int) -> Trial:
        return sized(trial, self.size, seed, cosines=self.data is not None)

    def _claims(self) -> list[Claim]:
        """Return the claims about trials that the chosen tables hold anyway."""
        known = {row.trial.key for row in self._rows()}
        return [claim for claim in (*ASSERTED, *REPORTED) if all(trial.key in known for trial in claim.trials)]

    def _trials(self) -> Iterator[tuple[Trial, Trial]]:
        """Yield every trial once, as its row has it and as it is run, a corpus after the other."""
        for seed in self.seeds:
            backbones = sorted({row.trial.backbone for row in self._rows()}, key="usual".__ne__)
            for backbone in backbones:
                chosen = dict.fromkeys(row.trial for row in self._rows() if row.trial.backbone == backbone)
                yield from ((trial, self._sized(trial, seed)) for trial in chosen)

    def _line(self, row: Row, laboratory: Laboratory, failures: Mapping[Trial, str]) -> Line:
        if row.trial in failures:
            return Line(row, {}, (), failures[row.trial])
        trials = [self._sized(row.trial, seed) for seed in self.seeds]
        outcomes = [laboratory.outcome(trial) for trial in trials]
        names = dict.fromkeys(name for outcome in outcomes for name in outcome.scores)
        scores = {name: tuple(outcome.scores.get(name, math.nan) for outcome in outcomes) for name in names}
        return Line(row, scores, tuple(laboratory.cost(trial) for trial in trials))

    def _judged(self, claim: Claim, laboratory: Laboratory) -> Judged:
        def of(seed: int) -> Callable[[Trial], Outcome]:
            return lambda trial: laboratory.outcome(self._sized(trial, seed))

        return Judged(claim, tuple(claim.gain(of(seed)) for seed in self.seeds))


def _needs_truth(trial: Trial) -> bool:
    return trial.planted or trial.labels.first == "planted"
