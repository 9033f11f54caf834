"""Settings of coarse alignment (where steps are said) and of grounding (where they are shown)."""

from typing import Annotated, Literal

from pydantic import Field

from stepline.settings import Count, Fraction, NonNegative, Positive, Settings

Window = Annotated[float, Field(ge=1.0, le=1e9)]
LabelRule = Literal["covering", "inclusive"]
MatchRule = Literal["softmax", "line-model"]


class CoarseSettings(Settings):
    """Where a step is said, by its similarity to the narration (NaSVA section 3.1)."""

    matching: MatchRule = Field(
        "softmax",
        description="how steps are matched to sentences: softmax of cosines, NaSVA section 3.1, "
        "or line-model: in their order, `grounding/line_model.py`",
    )
    encoder: Annotated[str, Field(exclude_if=lambda encoder: encoder == "minilm")] = Field(
        "minilm",
        description="softmax: the text encoder g: minilm, a folder, clip:FOLDER, "
        "internvideo:WEIGHTS or s3d:WEIGHTS. backbone: that of the step vectors (refine) or of "
        "vision.backbone (curate), minilm where they have none",
    )
    temperature: Positive = 0.07
    """nu. The paper gives none, 0.07 is its tau elsewhere. Smaller is sharper"""
    grow: Fraction = 0.7
    """zeta, share of the peak at which the window stops growing, NaSVA section 4.2"""
    floor: Fraction = 0.20
    """eps1, a step whose best score stays below is dropped, NaSVA section 4.2"""


class GroundSettings(Settings):
    """Settings of grounding: how speech and pictures decide where a step is shown."""

    shown_threshold: Fraction = 0.5
    """P(shown) below which no picture counts as showing a step"""
    typical: Positive = 8.0
    """seconds an action is shown; WhenAct's median"""
    grow: Fraction = 0.5
    """share of the peak at which a shown span stops growing"""
    window: Window = 900.0
    """seconds of a long video grounded together. Beyond 1.5 windows it is cut into several"""
    context: NonNegative = Field(
        120.0,
        description="seconds added before and after each window (see `window`). WhenAct: 1 % of the "
        "steps are shown farther from their words",
    )
    alternatives: Count = 1
    """most spans reported of a step, the best first. Of 135 further ones on real clips 38 are right"""
