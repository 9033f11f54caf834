"""Settings of self-training; nothing heavy is imported here."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from stepline.settings import Count, Fraction, Positive, Settings

FirstLabels: TypeAlias = Literal["asr", "video"]
Threshold: TypeAlias = Literal["cosine", "quantile"]
Position: TypeAlias = Literal["start", "center"]


class RefineSettings(Settings):
    """How a network's alignment matrix becomes labels: NaSVA section 3.3, its tables 3, 8 and 9."""

    threshold: Fraction = 0.0  # eps2; the paper's 0.8 is a cosine and does not carry over to other features
    threshold_kind: Threshold = "quantile"  # "cosine": of the best second; "quantile": share of the texts to drop
    position: Position = "center"  # where in its label the best second lies; NaSVA: start, which its table 8 prefers
    seconds: Positive | None = 8.0  # length of a label; None: grown around the best second; NaSVA section 4.2
    grow: Fraction = 0.7  # zeta, share of the peak at which a grown label ends; NaSVA section 4.2
    agree: Positive | None = 4.0  # seconds that the teachers' best seconds may lie apart; None: they need not agree
    least_kept: Fraction = 0.02  # share of texts that must keep a label, else it is an error

    @model_validator(mode="after")
    def _drops_less_than_all(self) -> "RefineSettings":
        if self.threshold_kind == "quantile" and self.threshold >= 1.0:
            raise ValueError("a quantile of 1 drops every text; give less than 1")
        return self


class SelfTrainSettings(Settings):
    """Rounds of training on labels and labelling anew: NaSVA section 3.3."""

    first: FirstLabels = "asr"  # where the first labels come from; "video": likeness to the picture (Step-Video)
    rounds: Annotated[int, Field(ge=0, le=20)] = 1  # times that labels are made anew; NaSVA section 4.2
    teachers: Count = 2  # networks of other seeds whose matrices are averaged; the paper has one
    teacher_epochs: Count = 4  # a teacher stops early: one that trains long learns its labels' noise by heart
    held_out: Fraction = 0.1  # share of the videos that no teacher sees, on which rounds are compared
    same: Positive = 4.0  # seconds apart at which two rounds still agree on where a held-out text is shown
    enough: Fraction = 0.9  # agreement of two rounds on held-out texts at which no further round is made
    refine: RefineSettings = RefineSettings()
