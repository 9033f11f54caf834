"""Settings of what the grounding network is trained on; nothing heavy is imported here."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.nasva.settings import LabelRule
from stepline.settings import Count, Fraction, NonNegative, Settings
from stepline.training_settings import StepPlace

HeldOutScore: TypeAlias = Literal["recall", "loss"]
Unlabelled: TypeAlias = Literal["keep", "drop"]


class DataSettings(Settings):
    """Which videos and texts become samples, and what counts as their labels."""

    label_rule: LabelRule = "covering"  # rows that a span labels; "inclusive" is the released code's; `targets.py`
    step_place: StepPlace = "shown_or_said"  # which of a step's places is its label; said alone: stage 1 of the paper
    unlabelled: Unlabelled = "keep"  # texts without a label: context, and what the alignability head learns from
    longest: Annotated[int, Field(ge=1, le=1200)] = 1200  # rows of a video that are seen; supplement: 1200 s
    slack: NonNegative = 5.0  # seconds that a video's stated length may differ from its features'
    held_out: Fraction = 0.0  # share of the videos, by their ids, that are not trained on but choose the best
    held_out_most: Count = 500  # samples of them that are looked at
    held_out_score: HeldOutScore = "recall"  # what chooses the best: the share of texts whose best row has their label
