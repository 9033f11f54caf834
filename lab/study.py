"""A study remakes a paper's tables: each training is run once and kept, its scores are next to the
published ones.

    trial      one training, named by a hash of all that it does: tables share trainings, and a
               rerun finds them done
    outcome    its scores by name and its CPU seconds, kept as FOLDER/KEY/outcome.json next to its
               network
    row        a line of a table: its trial with seed 0, and the paper's values
    claim      an ordering: how far one row scores above another, per seed, and what the mean over
               seeds must exceed

`Study.run` trains what is lacking and writes tables.json and tables.md, scores as their mean, from
least to most.
"""

import hashlib
import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar, Generic, TypeVar

from stepline.errors import SteplineError
from stepline.files.atomic_files import write_atomic
from stepline.settings import Settings

logger = logging.getLogger(__name__)

T = TypeVar("T", bound="Trial")
R = TypeVar("R", bound="Row[Any]")


class Trial(Settings):
    """One training."""

    VERSION: ClassVar[int] = 1  # of what a trial does; another makes all trials new
    seed: int = 0  # of the simulated world, of the network and of the order of videos

    @property
    def key(self) -> str:
        """The name under which its outcome is kept: a hash of all fields."""
        return hashlib.sha256(f"{self.VERSION} {self.model_dump_json()}".encode()).hexdigest()[:20]

    @property
    def predecessors(self: T) -> "tuple[T, ...]":
        """The trainings whose networks it needs: its teachers, or its pre-training."""
        return ()

    def changed(self: T, **changes: object) -> T:
        """Return a trial that differs in some fields."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate({**fields, **changes})


@dataclass(frozen=True)
class Outcome:
    """What a trial gave: scores by name, CPU seconds of its own training alone, and what else was
    counted."""

    scores: Mapping[str, float]
    cpu_seconds: float
    counted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialStore(ABC, Generic[T]):
    """Where trials are run and their outcomes kept."""

    folder: Path

    @abstractmethod
    def run(self, trial: T, folder: Path) -> Outcome:
        """Train and score a trial. What it keeps of itself is written in `folder`."""

    def outcome(self, trial: T) -> Outcome:
        """Return what a trial gives, from disk where it has been run. Its predecessors are run
        before it."""
        folder = self.folder / trial.key
        path = folder / "outcome.json"
        if not path.exists():
            for predecessor in trial.predecessors:
                self.outcome(predecessor)
            outcome = self.run(trial, folder)
            tree = {"trial": trial.model_dump(mode="json"), **asdict(outcome)}
            write_atomic(path, json.dumps(tree, indent=1) + "\n")
            scores = {name: round(score, 3) for name, score in outcome.scores.items()}
            logger.info("%s: %.0f CPU s, %s", trial.key, outcome.cpu_seconds, scores)
        tree = json.loads(path.read_text(encoding="utf-8"))
        return Outcome(tree["scores"], tree["cpu_seconds"], tree.get("counted", {}))

    def has_run(self, trial: T) -> bool:
        """Say whether the outcomes of a trial and of its predecessors are there."""
        if not (self.folder / trial.key / "outcome.json").exists():
            return False
        return all(map(self.has_run, trial.predecessors))

    def cpu_seconds(self, trial: T) -> float:
        """Return the CPU seconds of a trial and of all predecessors."""
        return self.outcome(trial).cpu_seconds + sum(map(self.cpu_seconds, trial.predecessors))


@dataclass(frozen=True)
class Row(Generic[T]):
    """A row of a table: its trial with seed 0, and the paper's scores by the names of ours."""

    table: str
    name: str
    trial: T
    published: Mapping[str, float] = field(default_factory=dict)

    @property
    def subject(self) -> Hashable:
        """What claims know it by."""
        return self.trial

    def as_json(self) -> dict[str, object]:
        """Return the row as tables.json has it."""
        return {
            "table": self.table,
            "row": self.name,
            "published": dict(self.published),
            "trial": self.trial.model_dump(mode="json"),
        }


@dataclass(frozen=True)
class RowResult(Generic[R]):
    """A row with each score of its trials, per seed, and their CPU seconds, predecessors included.

    failure: why one of them could not be trained. There are no scores then.
    """

    row: R
    scores: Mapping[str, tuple[float, ...]]
    cpu_seconds: tuple[float, ...]
    failure: str | None = None


@dataclass(frozen=True)
class Claim:
    """How far the row `more` scores above `less`. With `beyond`, how much further than its second
    above its first.

    published: the paper's difference.
    """

    statement: str
    metric: str
    more: Hashable
    less: Hashable
    published: float | None = None
    beyond: tuple[Hashable, Hashable] | None = None

    @property
    def subjects(self) -> tuple[Hashable, ...]:
        """All rows that it is about."""
        return (self.more, self.less, *(self.beyond or ()))

    def gains(self, scores: Mapping[Hashable, Mapping[str, Sequence[float]]]) -> tuple[float, ...]:
        """Return the difference, per seed. scores: of each row, by metric, per seed."""
        columns = [scores[subject][self.metric] for subject in self.subjects]
        gains = []
        for more, less, *beyond in zip(*columns, strict=True):
            gain = more - less
            if beyond:
                gain = gain - (beyond[1] - beyond[0])
            gains.append(gain)
        return tuple(gains)


@dataclass(frozen=True)
class ClaimResult:
    """A claim with its difference, per seed."""

    claim: Claim
    gains: tuple[float, ...]


@dataclass(frozen=True)
class Study(ABC, Generic[R, T]):
    """The tables of one paper. tables: by name (none: the usual ones). report: called with trials
    done and in all."""

    folder: Path
    seeds: Sequence[int] = (0, 1, 2)
    tables: Sequence[str] = ()
    report: Callable[[int, int], None] | None = None

    # by the tables' names, in the order in which they are written
    titles: ClassVar[Mapping[str, str]]
    columns: ClassVar[Sequence[str]]  # scores that tables show
    own_columns: ClassVar[Mapping[str, Sequence[str]]] = {}  # of tables that show others
    published_names: ClassVar[Sequence[str]]  # scores that the paper gives values of
    published_form: ClassVar[str] = ".1f"
    heads: ClassVar[Mapping[str, str]] = {}  # of columns whose head is not their score's name
    scale: ClassVar[float] = 1.0  # that makes scores per cent
    # scale and format of scores that are not per cent
    forms: ClassVar[Mapping[str, tuple[float, str]]] = {}
    means_only: ClassVar[Collection[str]] = ()  # scores without their least and most
    # that make a row fail, not the study
    expected_errors: ClassVar[tuple[type[SteplineError], ...]] = ()

    @property
    @abstractmethod
    def store(self) -> TrialStore[T]:
        """Where trials are run and kept."""

    @abstractmethod
    def rows(self) -> Sequence[R]:
        """Return the rows of the chosen tables."""

    @abstractmethod
    def sized(self, trial: T, seed: int) -> T:
        """Return a row's trial with this seed, of this study's size."""

    def claims(self) -> Sequence[Claim]:
        """Return the orderings that are looked at where their rows are chosen."""
        return ()

    def facts(self) -> dict[str, object]:
        """Return what tables.json says next to rows and claims."""
        return {}

    def run(self) -> tuple[list[RowResult[R]], list[ClaimResult]]:
        """Train what is not in the folder yet, write the tables there, and return their content."""
        failures = self.train()
        results = [self.result(row, failures) for row in self.rows()]
        scores = {result.row.subject: result.scores for result in results}
        judged = []
        for claim in self.claims():
            if all(claim.metric in scores.get(subject, ()) for subject in claim.subjects):
                judged.append(ClaimResult(claim, claim.gains(scores)))
        write_atomic(self.folder / "tables.json", self.as_json(results, judged))
        write_atomic(self.folder / "tables.md", self.as_markdown(results, judged))
        return results, judged

    def trials(self) -> list[T]:
        """Return the trial of every row and seed, each once."""
        trials: dict[T, None] = {}
        for seed in self.seeds:
            for row in self.rows():
                trials.setdefault(self.sized(row.trial, seed))
        return list(trials)

    def train(self) -> dict[T, str]:
        """Run the trials, and return those that could not be trained, with the reason."""
        failures: dict[T, str] = {}
        trials = self.trials()
        for count, trial in enumerate(trials):
            if self.report is not None:
                self.report(count, len(trials))
            try:
                self.store.outcome(trial)
            except self.expected_errors as error:
                failures[trial] = str(error)
        return failures

    def outcome(self, row: R, seed: int) -> Outcome:
        """Return what a row's trial gave. Its CPU seconds with those of its predecessors."""
        trial = self.sized(row.trial, seed)
        return Outcome(self.store.outcome(trial).scores, self.store.cpu_seconds(trial))

    def result(self, row: R, failures: Mapping[T, str]) -> RowResult[R]:
        """Return what a row's trials gave, per seed. NaN where one of them lacks a score that
        others have."""
        for seed in self.seeds:
            trial = self.sized(row.trial, seed)
            if trial in failures:
                return RowResult(row, {}, (), failures[trial])
        outcomes = [self.outcome(row, seed) for seed in self.seeds]
        cpu_seconds = tuple(outcome.cpu_seconds for outcome in outcomes)
        scores: dict[str, tuple[float, ...]] = {}
        for outcome in outcomes:
            for name in outcome.scores:
                scores[name] = tuple(other.scores.get(name, math.nan) for other in outcomes)
        return RowResult(row, scores, cpu_seconds)

    def as_json(self, results: Sequence[RowResult[R]], judged: Sequence[ClaimResult]) -> str:
        """Return all that was measured."""
        rows = []
        for result in results:
            row = {
                **result.row.as_json(),
                "scores": {name: list(values) for name, values in result.scores.items()},
                "cpu_seconds": list(result.cpu_seconds),
                "failure": result.failure,
            }
            rows.append(row)
        claims = [_claim_as_json(claim_result) for claim_result in judged]
        tree = {"seeds": list(self.seeds), **self.facts(), "rows": rows, "claims": claims}
        return json.dumps(tree, indent=1) + "\n"

    def as_markdown(self, results: Sequence[RowResult[R]], judged: Sequence[ClaimResult]) -> str:
        """Return one table per table of the paper, then the claims."""
        parts = []
        for table in dict.fromkeys(result.row.table for result in results):
            parts.append(self._table([result for result in results if result.row.table == table]))
        if judged:
            parts.append(self._claims_table(judged))
        return "\n".join(parts)

    def _table(self, results: Sequence[RowResult[R]]) -> str:
        """Return a table. The paper's column only where the paper gives a value, the CPU seconds
        last."""
        table = results[0].row.table
        columns = self.own_columns.get(table, self.columns)
        heads = ["row"]
        published_names = []
        for name in self.published_names:
            if any(name in result.row.published for result in results):
                published_names.append(name)
        if published_names:
            published_heads = [self.heads.get(name, name) for name in published_names]
            heads.append(f"paper: {', '.join(published_heads)}")
        heads += [self.heads.get(name, name) for name in columns]
        heads.append("CPU s")

        rows = []
        for result in results:
            cells = [result.row.name]
            if result.failure is not None:
                cells = [f"{result.row.name}: {result.failure}"]
            if published_names:
                cells.append(self._published(result.row))
            cells += [self._cell(name, result) for name in columns]
            cells.append(spread(result.cpu_seconds, ".0f", whole=True))
            rows.append(cells)
        return f"### {self.titles[table]}\n\n{markdown_table(heads, rows)}"

    def _cell(self, name: str, result: RowResult[R]) -> str:
        scale, form = self.forms.get(name, (self.scale, ".1f"))
        scores = [scale * score for score in result.scores.get(name, ())]
        return spread(scores, form, whole=name in self.means_only)

    def _published(self, row: R) -> str:
        values = []
        for name in self.published_names:
            if name in row.published:
                values.append(format(row.published[name], self.published_form))
        return ", ".join(values) or "–"

    def _claims_table(self, judged: Sequence[ClaimResult]) -> str:
        rows = []
        for claim_result in judged:
            claim = claim_result.claim
            gains = [self.scale * gain for gain in claim_result.gains]
            published = "–" if claim.published is None else f"{claim.published:+g}"
            row = [
                claim.statement,
                claim.metric,
                published,
                ", ".join(f"{gain:+.1f}" for gain in gains),
                f"{mean(gains):+.1f}",
            ]
            rows.append(row)
        head = ["claim", "metric", "paper", "a seed", "mean"]
        return f"### Orderings, differences in points\n\n{markdown_table(head, rows)}"


def _claim_as_json(result: ClaimResult) -> dict[str, object]:
    claim = result.claim
    return {
        "claim": claim.statement,
        "metric": claim.metric,
        "published": claim.published,
        "gains": list(result.gains),
    }


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean of at least two values."""
    from scipy.stats import t as student_t

    quantile = float(student_t.ppf((1 + level) / 2, len(values) - 1))
    half = quantile * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def spread(values: Sequence[float], form: str = ".1f", *, whole: bool = False) -> str:
    """Return the mean, and from least to most where there are several and `whole` is not asked
    for."""
    if not values:
        return "–"
    middle = format(mean(values), form)
    if whole or len(values) == 1:
        return middle
    return f"{middle} ({min(values):{form}} to {max(values):{form}})"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
