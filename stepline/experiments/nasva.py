"""`stepline experiment nasva-tables`: run what is lacking, and write the tables."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.errors import ShapeError
from stepline.experiments.claims import ASSERTED, REPORTED, Claim
from stepline.experiments.nasva_tables import Row, rows, sized
from stepline.experiments.on_disk import read_corpus
from stepline.experiments.table import Judged, Line, as_json, as_markdown
from stepline.experiments.trial import Size, Trial
from stepline.experiments.trials import Laboratory, Outcome
from stepline.store import write_atomic


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
