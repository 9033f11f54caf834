"""WYS2's tables in the simulated world: `python -m lab wys2-tables`."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import ClassVar

from lab.study import Claim, ClaimResult, RowResult, Study
from lab.wys2.rows import (
    AUC_MEASURE,
    PAPER_CLAIMS,
    TABLE_TITLES,
    Wys2Row,
    Wys2Size,
    Wys2Trial,
    grid_rows,
    wys2_rows,
)
from lab.wys2.trials import Wys2Trials


@dataclass(frozen=True)
class Wys2Study(Study[Wys2Row, Wys2Trial]):
    """ROC-AUC in per cent as in the paper. Without a choice of tables all but the grid."""

    size: Wys2Size = field(default_factory=Wys2Size)

    titles: ClassVar[Mapping[str, str]] = TABLE_TITLES
    columns: ClassVar[Sequence[str]] = (AUC_MEASURE, "validation", "precision", "positives")
    forms: ClassVar[Mapping[str, tuple[float, str]]] = {
        "precision": (1.0, ".0%"),
        "positives": (1.0, ".0f"),
    }
    means_only: ClassVar[Collection[str]] = ("precision", "positives")
    published_names: ClassVar[Sequence[str]] = (AUC_MEASURE,)
    heads: ClassVar[Mapping[str, str]] = {
        AUC_MEASURE: "ROC-AUC, test",
        "validation": "ROC-AUC, validation",
        "precision": "shown of the positives",
    }
    scale: ClassVar[float] = 100.0

    @property
    def store(self) -> Wys2Trials:
        """A folder in the study's."""
        return Wys2Trials(self.folder / "trials")

    def rows(self) -> list[Wys2Row]:
        """Return the rows of the chosen tables."""
        tables = self.tables or set(TABLE_TITLES) - {"grid"}
        return [row for row in (*wys2_rows(), *grid_rows()) if row.table in tables]

    def sized(self, trial: Wys2Trial, seed: int) -> Wys2Trial:
        """Return a row's trial with this seed, of this study's size in all that the row does not
        set itself."""
        own_size = {name: getattr(trial.size, name) for name in trial.size.model_fields_set}
        return trial.changed(seed=seed, size=self.size.model_copy(update=own_size))

    def claims(self) -> Sequence[Claim]:
        """Return the paper's orderings."""
        return PAPER_CLAIMS

    def as_markdown(
        self, results: Sequence[RowResult[Wys2Row]], judged: Sequence[ClaimResult]
    ) -> str:
        """Return the tables, then the claims. The grid's best rows first."""

        def rank(result: RowResult[Wys2Row]) -> float:
            if result.row.table == "grid":
                return -mean(result.scores["validation"])
            return -math.inf

        return super().as_markdown(sorted(results, key=rank), judged)
