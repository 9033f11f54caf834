"""NaSVA's tables in the simulated world: `python -m lab nasva-tables`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lab.nasva.rows import (
    CLAIMS,
    LABELS_INSIDE,
    NARRATION_RECALL,
    STEP_RECALL,
    TABLE_TITLES,
    UNUSUAL_TABLES,
    NasvaRow,
    NasvaSize,
    NasvaTrial,
    nasva_rows,
    version_2_claims,
)
from lab.nasva.trials import NasvaTrials
from lab.study import Claim, Study
from stepline.errors import ShapeError, SteplineError


@dataclass(frozen=True)
class NasvaStudy(Study[NasvaRow, NasvaTrial]):
    """NaSVA's tables."""

    size: NasvaSize = field(default_factory=NasvaSize)

    titles: ClassVar[Mapping[str, str]] = TABLE_TITLES
    columns: ClassVar[Sequence[str]] = (STEP_RECALL, NARRATION_RECALL, "labels kept", LABELS_INSIDE)
    own_columns: ClassVar[Mapping[str, Sequence[str]]] = {
        "2": (STEP_RECALL, NARRATION_RECALL),
        "4": (STEP_RECALL, NARRATION_RECALL),
    }
    published_names: ClassVar[Sequence[str]] = (STEP_RECALL, NARRATION_RECALL)
    heads: ClassVar[Mapping[str, str]] = {
        STEP_RECALL: "steps R@1",
        NARRATION_RECALL: "narrations R@1",
        LABELS_INSIDE: "inside the window",
    }
    # a threshold that keeps no label is a result, not the end
    expected_errors: ClassVar[tuple[type[SteplineError], ...]] = (ShapeError,)

    @property
    def store(self) -> NasvaTrials:
        """A folder in the study's."""
        return NasvaTrials(self.folder / "trials")

    def rows(self) -> list[NasvaRow]:
        """Return the rows of the chosen tables."""
        usual = [table for table in TABLE_TITLES if table not in UNUSUAL_TABLES]
        tables = self.tables or usual
        return [row for row in nasva_rows() if row.table in tables]

    def trials(self) -> list[NasvaTrial]:
        """Return the trial of every row and seed, each once, those of one corpus together."""
        return sorted(super().trials(), key=_corpus_order)

    def sized(self, trial: NasvaTrial, seed: int) -> NasvaTrial:
        """Return a row's trial with this seed and this study's size."""
        return trial.changed(size=self.size, seed=seed)

    def facts(self) -> dict[str, object]:
        """Return the command of this study."""
        command = f"python -m lab nasva-tables --videos {self.size.videos}"
        command += f" --seeds {len(self.seeds)}"
        first_seed = self.seeds[0]
        if first_seed:
            command += f" --first-seed {first_seed}"
        for table in self.tables:
            command += f" --table {table}"
        return {"command": command}

    def claims(self) -> Sequence[Claim]:
        """Return the paper's orderings, and what goes beyond it."""
        return (*CLAIMS, *version_2_claims())


def _corpus_order(trial: NasvaTrial) -> tuple[object, ...]:
    """Return the key that sorts trials by their corpus."""
    return (trial.seed, trial.world, trial.size.videos, trial.backbone != "usual", trial.backbone)
