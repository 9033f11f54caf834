"""`stepline experiment procx-tables`: run what is lacking, and write the tables with the paper's values beside ours."""

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from stepline.evaluate.statistics import Floats
from stepline.experiments.procx_attention import spread_plot, spread_points
from stepline.experiments.procx_baselines import guessed
from stepline.experiments.procx_claims import procx_claims
from stepline.experiments.procx_corpus import procx_corpus
from stepline.experiments.procx_rows import TITLES, USUAL, ProcxRow, procx_rows
from stepline.experiments.procx_scores import METRICS, score_events, view_name
from stepline.experiments.procx_table import Facts, ProcxJudged, ProcxLine, as_json, as_markdown
from stepline.experiments.procx_trial import FORMS, Guess, ProcxSize, ProcxTrial, alike
from stepline.experiments.procx_trials import has_run, network_of, run_trial
from stepline.procx.model import ProcX
from stepline.store import write_atomic

log = logging.getLogger(__name__)


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
