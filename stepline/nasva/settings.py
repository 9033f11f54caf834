"""Settings of coarse placing and of grounding; nothing heavy is imported here."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.settings import Settings

Share: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0)]
Positive: TypeAlias = Annotated[float, Field(gt=0.0)]
LabelRule: TypeAlias = Literal["covering", "inclusive"]


class CoarseSettings(Settings):
    """Where a step is said, by its likeness to the narration (NaSVA section 3.1)."""

    temperature: Positive = 0.07   # nu; the paper gives none, 0.07 is its tau elsewhere; smaller is sharper
    grow: Share = 0.7              # zeta, share of the peak at which the window stops growing; NaSVA section 4.2
    floor: Share = 0.20            # eps1, a step whose best score stays below is dropped; NaSVA section 4.2
    label_rule: LabelRule = "covering"   # which seconds a narration covers; `coarse.narration_labels` says how


class GroundSettings(Settings):
    """Where a step is shown, by where it is said and what is seen."""

    shown_rate: Share = 0.6        # P(a written step is shown), before any evidence; NaSVA: 0.606 of its steps are
    unsaid_rate: Share = 0.3       # the same for a step that nobody speaks of (a recipe's line); half of `shown_rate`
    shown_threshold: Share = 0.5   # P(shown) below which a step is only "said"
    vision_penalty: Annotated[float, Field(ge=0.0)] = 1.0   # rate of the exponential prior on the weight of vision
    vision_limit: Positive = 3.0   # greatest weight that vision may earn, a standard deviation; keeps it finite
    vision_alone: Positive = 1.0   # the weight where nothing is said, so that nothing can be learned
    smooth: Annotated[float, Field(ge=0.0)] = 2.0   # seconds, width of the smoothing of similarity inside a shot
    compete: Share = 1.0           # how far steps compete for seconds: 0 not at all, 1 one step a second
    typical: Positive = 8.0        # seconds an action is shown; WhenAct's median
    grow: Share = 0.5              # share of the peak at which a shown span stops growing
    alternatives: Annotated[int, Field(ge=1)] = 3   # spans kept a step, the best first


class NasvaSettings(Settings):
    """Placing steps in the video."""

    coarse: CoarseSettings = CoarseSettings()
    ground: GroundSettings = GroundSettings()
