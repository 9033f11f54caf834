"""ProcX's tables in the simulated world: `python -m research procx-tables`."""

import multiprocessing
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import ClassVar

from research.procx.attention_spread import spread_plot, spread_points
from research.procx.corpus import baseline_steps, procx_corpus
from research.procx.rows import (
    BENCHMARK_FORMS,
    METRIC_COLUMNS,
    TABLE_CLAIMS,
    TABLE_TITLES,
    USUAL_TABLES,
    ProcxRow,
    ProcxSize,
    ProcxTrial,
    procx_rows,
)
from research.procx.trials import METRIC_NAMES, ProcxTrials, score_events, score_name
from research.study import Claim, Outcome, Study
from stepline.atomic_files import write_atomic
from stepline.evaluate.benchmarks import DENSE_RULE
from stepline.evaluate.bootstrap import Floats
from stepline.procx.model import ProcX


@dataclass(frozen=True)
class Facts:
    """What the tables rest on.

    scored: ids of the videos scored, by form, a list per seed.
    swap_quality: how right Sieve & Swap was, per seed.
    steps: of all narrated videos, by their wording, per seed.
    attention: over how many points it spreads on average, by the row of table 2b, per seed.
    cpu_seconds: of all trainings together.
    """

    scored: Mapping[str, Sequence[Sequence[str]]]
    swap_quality: Sequence[Mapping[str, float]]
    steps: Mapping[str, Sequence[int]]
    attention: Mapping[str, Sequence[float]]
    cpu_seconds: float
    trainings: int


@dataclass(frozen=True)
class ProcxStudy(Study[ProcxRow, ProcxTrial]):
    """processes: of one thread each. train_missing: else only rows whose trials have all been
    run."""

    seeds: Sequence[int] = (2, 3, 4)  # sizes were chosen on worlds 0 and 1
    size: ProcxSize = field(default_factory=ProcxSize)
    processes: int = 1
    train_missing: bool = True

    titles: ClassVar[Mapping[str, str]] = TABLE_TITLES
    columns: ClassVar[Sequence[str]] = (*METRIC_COLUMNS, "F1", "steps")
    means_only: ClassVar[Collection[str]] = ("METEOR", "CIDEr", "BLEU-4", "F1", "steps")
    published_names: ClassVar[Sequence[str]] = ("SODA-C", "SODA-D")
    published_form: ClassVar[str] = ".2f"

    @property
    def store(self) -> ProcxTrials:
        """The study's own folder."""
        return ProcxTrials(self.folder)

    def rows(self) -> list[ProcxRow]:
        """Return the rows of the chosen tables. Of all tables what has been run, where nothing is
        to be trained."""
        tables = self.tables or (USUAL_TABLES if self.train_missing else TABLE_TITLES)
        chosen = [row for row in procx_rows() if row.table in tables]
        return [
            row
            for row in chosen
            if self.train_missing or row.baseline is not None or self._has_run(row)
        ]

    def _has_run(self, row: ProcxRow) -> bool:
        return all(self.store.has_run(self.sized(row.trial, seed)) for seed in self.seeds)

    def sized(self, trial: ProcxTrial, seed: int) -> ProcxTrial:
        """Return a row's trial with this seed, of this study's size."""
        return trial.changed(seed=seed, size=self.size)

    def claims(self) -> Sequence[Claim]:
        """Return the paper's orderings, and those of what goes beyond it."""
        return TABLE_CLAIMS

    def trials(self) -> list[ProcxTrial]:
        """Return every training once, pre-trainings before what goes on from them."""
        asked = [
            self.sized(row.trial, seed)
            for seed in self.seeds
            for row in self.rows()
            if row.baseline is None
        ]
        return list(dict.fromkeys(one for trial in asked for one in (*trial.predecessors, trial)))

    def train(self) -> dict[ProcxTrial, str]:
        """Run all trials. Those that go on from one pre-training stay together in a process."""
        if self.train_missing:
            trials, done = self.trials(), 0
            self.folder.mkdir(parents=True, exist_ok=True)
            for count in self._finished(list(families(trials))):
                done += count
                if self.report is not None:
                    self.report(done, len(trials))
        return {}

    def _finished(self, jobs: list[list[ProcxTrial]]) -> Iterator[int]:
        """Yield how many trials each job had, as it ends."""
        if self.processes == 1:
            for job in jobs:
                yield run_trials(job, self.folder)
            return
        for seed in self.seeds:  # what Sieve & Swap makes is kept before two processes need it
            procx_corpus(seed, self.size, self.folder)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            self.processes, mp_context=context, initializer=limit_to_one_thread
        ) as pool:
            for ended in as_completed([pool.submit(run_trials, job, self.folder) for job in jobs]):
                yield ended.result()

    def outcome(self, row: ProcxRow, seed: int) -> Outcome:
        """Return a row's metrics: of its baseline, or of its trial's steps as the row selects
        them."""
        if row.baseline is not None:
            part = procx_corpus(seed, self.size, self.folder).captioned[row.form]
            return Outcome(
                score_events(part.reference, baseline_steps(part.train, part.test, row.baseline)),
                0.0,
            )
        given = super().outcome(row, seed)
        scores = {
            name: given.scores[score_name(row.form, row.selection, name)]
            for name in (*METRIC_NAMES, "steps")
        }
        return Outcome(scores, given.cpu_seconds)

    def facts(self) -> dict[str, object]:
        """Return the rule of scoring, the ids scored, and what else the tables rest on. Draw
        attention.svg."""
        found = self._facts
        if found.attention:
            write_atomic(
                self.folder / "attention.svg", spread_plot(self._attention_spreads(self.seeds[0]))
            )
        return {
            "protocol": {
                "benchmarks": ["youcook2", "tasty"],
                "convention": "stepline",
                "rule": DENSE_RULE,
            },
            "size": self.size.model_dump(mode="json"),
            "cpu_seconds": found.cpu_seconds,
            "trainings": found.trainings,
            "sieve_and_swap": [dict(one) for one in found.swap_quality],
            "narrated_steps": dict(found.steps),
            "attention": dict(found.attention),
            "scored": dict(found.scored),
        }

    def preface(self) -> str:
        """Return what was scored, and how."""
        found = self._facts
        counts = ", ".join(
            f"{form} {'/'.join(str(len(ids)) for ids in lists)}"
            for form, lists in found.scored.items()
        )
        steps = ", ".join(f"{wording} {mean(count):.0f}" for wording, count in found.steps.items())
        first = found.swap_quality[0]
        swaps = ", ".join(
            f"{name} {mean(one[name] for one in found.swap_quality):.3g}" for name in first
        )
        spreads = ", ".join(
            f"{name} {mean(points):.1f}" for name, points in found.attention.items()
        )
        points = (
            f"Points over which a query and head of the last decoder layer spreads: {spreads}.\n"
        )
        return (
            f"Protocol of every number: youcook2 and tasty, convention stepline: {DENSE_RULE}.\n"
            f"Videos scored, a seed: {counts}; their ids are in tables.json (`scored`). Per cent, the mean of "
            f"{len(self.seeds)} seeds (least to most). {found.trainings} trainings, {found.cpu_seconds:.0f} CPU s.\n"
            f"Steps of the narrated videos: {steps}. Sieve & Swap by the planted truth: {swaps}.\n"
            f"{points if spreads else ''}"
        )

    @cached_property
    def _facts(self) -> Facts:
        corpora = [procx_corpus(seed, self.size, self.folder) for seed in self.seeds]
        trials = self.trials()
        spreads = [self._attention_spreads(seed) for seed in self.seeds]
        return Facts(
            {
                form: [[one.id for one in corpus.captioned[form].test] for corpus in corpora]
                for form in BENCHMARK_FORMS
            },
            [dict(corpus.swap_quality) for corpus in corpora],
            {
                wording: [
                    sum(len(one.spans) for one in corpus.narrated[wording]) for corpus in corpora
                ]
                for wording in corpora[0].narrated
            },
            {name: [float(one[name].mean()) for one in spreads] for name in spreads[0]},
            sum(self.store.outcome(trial).cpu_seconds for trial in trials),
            len(trials),
        )

    def _attention_spreads(self, seed: int) -> dict[str, Floats]:
        """Return how attention spreads in the networks of table 2b, none where it is not asked
        for."""
        spreads = {}
        for row in self.rows():
            if row.table == "2b":
                corpus = procx_corpus(seed, self.size, self.folder)
                network = self.store.network(self.sized(row.trial, seed), corpus)
                if isinstance(network, ProcX):
                    spreads[f"keys: {row.name}"] = spread_points(
                        network, corpus.captioned["youcook2"].test
                    )
        return spreads


def families(trials: Sequence[ProcxTrial]) -> Iterator[list[ProcxTrial]]:
    """Yield trials that one process should run: a seed's from fresh weights one by one, others with
    their start."""

    def family(trial: ProcxTrial) -> str:
        return trial.key if trial.start is None else trial.start.key

    order = {key: number for number, key in enumerate(dict.fromkeys(map(family, trials)))}
    for _, group in groupby(sorted(trials, key=lambda trial: order[family(trial)]), family):
        yield list(group)


def run_trials(trials: Sequence[ProcxTrial], folder: Path) -> int:
    """Run trials one after the other, and return how many there were."""
    for trial in trials:
        ProcxTrials(folder).outcome(trial)
    return len(trials)


def limit_to_one_thread() -> None:
    """Keep this process to one thread, so that two of them do not wait for each other."""
    import torch

    torch.set_num_threads(1)
