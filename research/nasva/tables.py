"""NaSVA's tables in the simulated world or on real features: `python -m research nasva-tables`."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from research.nasva.corpus import read_corpus
from research.nasva.rows import (
    AFTER_START,
    ASSERTED,
    EXPLAINED,
    INSIDE,
    REPORTED,
    SAID,
    STEPS,
    TITLES,
    UNUSUAL,
    NasvaRow,
    NasvaSize,
    NasvaTrial,
    nasva_rows,
    sized,
)
from research.nasva.trials import NasvaTrials
from research.study import Claim, Study
from stepline.errors import ShapeError, SteplineError

AUC = tuple(
    f"{kind} AUC {scorer}"
    for kind in ("recipe", "step", "narration")
    for scorer in ("cosine", "head")
)


@dataclass(frozen=True)
class NasvaStudy(Study[NasvaRow, NasvaTrial]):
    """data: real data, as `corpus.read_corpus` reads it. Else the simulated world."""

    size: NasvaSize = field(default_factory=NasvaSize)
    data: Path | None = None

    titles: ClassVar[Mapping[str, str]] = TITLES
    columns: ClassVar[Sequence[str]] = (STEPS, SAID, "labels kept", INSIDE)
    own_columns: ClassVar[Mapping[str, Sequence[str]]] = {
        "lag": (STEPS, SAID, INSIDE, AFTER_START),
        **dict.fromkeys(("head", "unshown"), (STEPS, SAID, *AUC)),
        **dict.fromkeys(("2", "4", "size", "dropout"), (STEPS, SAID)),
    }
    published_names: ClassVar[Sequence[str]] = (STEPS, SAID)
    heads: ClassVar[Mapping[str, str]] = {
        STEPS: "steps R@1",
        SAID: "narrations R@1",
        INSIDE: "inside the window",
        "recipe AUC cosine": "steps, cosine",
        "recipe AUC head": "steps, head",
        "step AUC cosine": "written steps, cosine",
        "step AUC head": "written steps, head",
        "narration AUC cosine": "narrations, cosine",
        "narration AUC head": "narrations, head",
    }
    # a threshold that keeps no label is a result, not the end
    expected_errors: ClassVar[tuple[type[SteplineError], ...]] = (ShapeError,)

    @property
    def store(self) -> NasvaTrials:
        """A folder for the simulated world, another for each real data."""
        if self.data is None:
            return NasvaTrials(self.folder / "trials")
        data = self.data.resolve()
        # scored by the official rules
        name = hashlib.sha256(f"{data} official".encode()).hexdigest()[:8]
        return NasvaTrials(self.folder / f"trials-{name}", lambda trial: read_corpus(data, trial))

    def rows(self) -> list[NasvaRow]:
        """Return the rows of the chosen tables, real data without those of planted labels."""
        usual = [table for table in TITLES if table not in UNUSUAL]
        chosen = [row for row in nasva_rows() if row.table in (self.tables or usual)]
        return [row for row in chosen if self.data is None or not needs_planted_truth(row.trial)]

    def trials(self) -> list[NasvaTrial]:
        """Return the trial of every row and seed, each once, those of a corpus after one
        another."""
        trials = super().trials()
        return sorted(
            trials,
            key=lambda trial: (
                trial.seed,
                trial.world,
                trial.lag or 0.0,
                trial.size.videos,
                trial.backbone != "usual",
                trial.backbone,
            ),
        )

    def sized(self, trial: NasvaTrial, seed: int) -> NasvaTrial:
        """Return a row's trial with this seed, of this study's size. On real data with the paper's
        thresholds."""
        return sized(trial, self.size, seed, cosines=self.data is not None)

    def facts(self) -> dict[str, object]:
        """Return what was asked for, as a command."""
        tables = "".join(f" --table {table}" for table in self.tables)
        later = f" --first-seed {self.seeds[0]}" if self.seeds[0] else ""
        asked = f"--videos {self.size.videos} --seeds {len(self.seeds)}{later}{tables}"
        return {"command": f"python -m research nasva-tables {asked}"}

    def claims(self) -> Sequence[Claim]:
        """Return the paper's orderings, and what goes beyond it."""
        return (*ASSERTED, *REPORTED, *EXPLAINED)


def needs_planted_truth(trial: NasvaTrial) -> bool:
    """Tell whether a trial learns from labels that only simulated videos have."""
    return trial.planted or trial.labels.first == "planted"
