"""`stepline experiment nasva-tables`: run what is lacking, and write the tables."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.experiments.claims import ASSERTED, REPORTED, Claim
from stepline.experiments.nasva_tables import Row, rows, sized
from stepline.experiments.table import Judged, Line, as_json, as_markdown
from stepline.experiments.trial import Size, Trial
from stepline.experiments.trials import Laboratory, Outcome
from stepline.store import write_atomic

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What is run: tables by name (none: all), seeds, size. report: told how many of how many trials are done."""

    folder: Path
    seeds: Sequence[int] = (0, 1, 2)
    tables: Sequence[str] = ()
    size: Size = field(default_factory=Size)
    report: Callable[[int, int], None] | None = None

    def run(self) -> tuple[list[Line], list[Judged]]:
        """Train what is not in the folder yet, write tables.json and tables.md there, and return their content."""
        laboratory = Laboratory(self.folder / "trials")
        trials = list(self._trials())
        for done, trial in enumerate(trials):
            if self.report is not None:
                self.report(done, len(trials))
            laboratory.outcome(trial)
        lines = [self._line(row, laboratory) for row in self._rows()]
        judged = [self._judged(claim, laboratory) for claim in self._claims()]
        write_atomic(self.folder / "tables.json", as_json(lines, judged, self.seeds))
        write_atomic(self.folder / "tables.md", as_markdown(lines, judged))
        return lines, judged

    def _rows(self) -> list[Row]:
        return [row for row in rows() if not self.tables or row.table in self.tables]

    def _claims(self) -> list[Claim]:
        """Return the claims about trials that the chosen tables hold anyway."""
        known = {row.trial.key for row in self._rows()}
        return [claim for claim in (*ASSERTED, *REPORTED) if all(trial.key in known for trial in claim.trials)]

    def _trials(self) -> Iterator[Trial]:
        """Yield every trial once, a seed after the other, so that a corpus is made once."""
        for seed in self.seeds:
            backbones = sorted({row.trial.backbone for row in self._rows()}, key="usual".__ne__)
            for backbone in backbones:
                chosen = (row.trial for row in self._rows() if row.trial.backbone == backbone)
                yield from dict.fromkeys(sized(trial, self.size, seed) for trial in chosen)

    def _line(self, row: Row, laboratory: Laboratory) -> Line:
        trials = [sized(row.trial, self.size, seed) for seed in self.seeds]
        outcomes = [laboratory.outcome(trial) for trial in trials]
        names = dict.fromkeys(name for outcome in outcomes for name in outcome.scores)
        scores = {name: tuple(outcome.scores.get(name, math.nan) for outcome in outcomes) for name in names}
        return Line(row, scores, tuple(laboratory.cost(trial) for trial in trials))

    def _judged(self, claim: Claim, laboratory: Laboratory) -> Judged:
        def of(seed: int) -> Callable[[Trial], Outcome]:
            return lambda trial: laboratory.outcome(sized(trial, self.size, seed))

        return Judged(claim, tuple(claim.gain(of(seed)) for seed in self.seeds))
