"""ProcX's tables in the simulated world: `python -m lab procx-tables`."""

import multiprocessing
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import ClassVar

from lab.procx.attention_spread import spread_points
from lab.procx.claims import TABLE_CLAIMS
from lab.procx.corpus import baseline_steps, procx_corpus
from lab.procx.rows import (
    BENCHMARK_FORMS,
    METRIC_COLUMNS,
    TABLE_TITLES,
    USUAL_TABLES,
    ProcxRow,
    ProcxSize,
    ProcxTrial,
    procx_rows,
)
from lab.procx.trials import METRIC_NAMES, ProcxTrials, score_events, score_name
from lab.study import Claim, Outcome, Study
from stepline.evaluate.benchmarks import DENSE_RULE
from stepline.evaluate.bootstrap import Floats
from stepline.models.procx.model import ProcX


@dataclass(frozen=True)
class Facts:
    """What the tables rest on.

    scored: ids of the scored videos, by form, a list per seed.
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
    """ProcX's tables.

    processes: of one thread each. train_missing: False keeps only rows whose trials have all run.
    """

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
        """Return the rows of the chosen tables.

        Where nothing is to be trained, these are the rows of all tables that have run.
        """
        usual = USUAL_TABLES if self.train_missing else TABLE_TITLES
        tables = self.tables or usual
        rows = [row for row in procx_rows() if row.table in tables]
        if self.train_missing:
            return rows
        return [row for row in rows if row.baseline is not None or self._has_run(row)]

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
        rows = [row for row in self.rows() if row.baseline is None]
        trials: dict[ProcxTrial, None] = {}
        for seed in self.seeds:
            for row in rows:
                trial = self.sized(row.trial, seed)
                trials.update(dict.fromkeys((*trial.predecessors, trial)))
        return list(trials)

    def train(self) -> dict[ProcxTrial, str]:
        """Run all trials. Those that go on from one pre-training stay together in a process."""
        if not self.train_missing:
            return {}
        trials = self.trials()
        self.folder.mkdir(parents=True, exist_ok=True)
        finished = 0
        for count in self._finished(list(families(trials))):
            finished += count
            if self.report is not None:
                self.report(finished, len(trials))
        return {}

    def _finished(self, jobs: list[list[ProcxTrial]]) -> Iterator[int]:
        """Yield how many trials each job had, as it ends."""
        if self.processes == 1:
            for job in jobs:
                yield run_trials(job, self.folder)
            return
        # what Sieve & Swap makes is kept before two processes need it
        for seed in self.seeds:
            procx_corpus(seed, self.size, self.folder)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            self.processes, mp_context=context, initializer=limit_to_one_thread
        ) as pool:
            futures = [pool.submit(run_trials, job, self.folder) for job in jobs]
            for future in as_completed(futures):
                yield future.result()

    def outcome(self, row: ProcxRow, seed: int) -> Outcome:
        """Return the metrics of a row's baseline, or of the steps that it selects of its trial."""
        if row.baseline is not None:
            part = procx_corpus(seed, self.size, self.folder).captioned[row.form]
            steps = baseline_steps(part.train, part.test, row.baseline)
            return Outcome(score_events(part.reference, steps), 0.0)
        outcome = super().outcome(row, seed)
        scores = {}
        for name in (*METRIC_NAMES, "steps"):
            scores[name] = outcome.scores[score_name(row.form, row.selection, name)]
        return Outcome(scores, outcome.cpu_seconds)

    def facts(self) -> dict[str, object]:
        """Return the rule of scoring, the scored ids, and what else the tables rest on."""
        facts = self._facts
        return {
            "protocol": {
                "benchmarks": ["youcook2", "tasty"],
                "convention": "stepline",
                "rule": DENSE_RULE,
            },
            "size": self.size.model_dump(mode="json"),
            "cpu_seconds": facts.cpu_seconds,
            "trainings": facts.trainings,
            "sieve_and_swap": [dict(quality) for quality in facts.swap_quality],
            "narrated_steps": dict(facts.steps),
            "attention": dict(facts.attention),
            "scored": dict(facts.scored),
        }

    def preface(self) -> str:
        """Return what was scored, and how."""
        facts = self._facts
        # means over the seeds
        counts = []
        for form, ids_by_seed in facts.scored.items():
            sizes = "/".join(str(len(ids)) for ids in ids_by_seed)
            counts.append(f"{form} {sizes}")
        steps = [f"{wording} {mean(count):.0f}" for wording, count in facts.steps.items()]
        swaps = []
        for name in facts.swap_quality[0]:
            average = mean(quality[name] for quality in facts.swap_quality)
            swaps.append(f"{name} {average:.3g}")
        text = (
            f"Protocol of every number: youcook2 and tasty, convention stepline: {DENSE_RULE}.\n"
            f"Videos scored, a seed: {', '.join(counts)}; "
            "their ids are in tables.json (`scored`). "
            f"Per cent, the mean of {len(self.seeds)} seeds (least to most). "
            f"{facts.trainings} trainings, {facts.cpu_seconds:.0f} CPU s.\n"
            f"Steps of the narrated videos: {', '.join(steps)}. "
            f"Sieve & Swap by the planted truth: {', '.join(swaps)}.\n"
        )
        if not facts.attention:
            return text
        spreads = [f"{name} {mean(points):.1f}" for name, points in facts.attention.items()]
        return text + (
            "Points over which a query and head of the last decoder layer spreads: "
            f"{', '.join(spreads)}.\n"
        )

    @cached_property
    def _facts(self) -> Facts:
        corpora = [procx_corpus(seed, self.size, self.folder) for seed in self.seeds]
        trials = self.trials()
        # lists per seed, by form, by wording and by row
        scored: dict[str, list[list[str]]] = {form: [] for form in BENCHMARK_FORMS}
        steps: dict[str, list[int]] = {wording: [] for wording in corpora[0].narrated}
        for corpus in corpora:
            for form in BENCHMARK_FORMS:
                scored[form].append([sample.id for sample in corpus.captioned[form].test])
            for wording, samples in corpus.narrated.items():
                steps[wording].append(sum(len(sample.spans) for sample in samples))
        attention: dict[str, list[float]] = {}
        for seed in self.seeds:
            for name, points in self._attention_spreads(seed).items():
                attention.setdefault(name, []).append(float(points.mean()))
        return Facts(
            scored=scored,
            swap_quality=[dict(corpus.swap_quality) for corpus in corpora],
            steps=steps,
            attention=attention,
            cpu_seconds=sum(self.store.outcome(trial).cpu_seconds for trial in trials),
            trainings=len(trials),
        )

    def _attention_spreads(self, seed: int) -> dict[str, Floats]:
        """Return how attention spreads in the networks of table 2b, nothing without this table."""
        spreads = {}
        for row in self.rows():
            if row.table != "2b":
                continue
            corpus = procx_corpus(seed, self.size, self.folder)
            network = self.store.network(self.sized(row.trial, seed), corpus)
            if isinstance(network, ProcX):
                samples = corpus.captioned["youcook2"].test
                spreads[f"keys: {row.name}"] = spread_points(network, samples)
        return spreads


def families(trials: Sequence[ProcxTrial]) -> Iterator[list[ProcxTrial]]:
    """Yield trials that one process should run together.

    A trial from fresh weights is alone, another one is with its start.
    """

    def family(trial: ProcxTrial) -> str:
        return trial.key if trial.start is None else trial.start.key

    groups: dict[str, list[ProcxTrial]] = {}
    for trial in trials:
        groups.setdefault(family(trial), []).append(trial)
    yield from groups.values()


def run_trials(trials: Sequence[ProcxTrial], folder: Path) -> int:
    """Run trials one after the other, and return how many there were."""
    for trial in trials:
        ProcxTrials(folder).outcome(trial)
    return len(trials)


def limit_to_one_thread() -> None:
    """Use one thread in this process, so that two processes do not wait for each other."""
    import torch

    torch.set_num_threads(1)
