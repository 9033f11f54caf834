"""Settings of what training ProcX lowers; nothing heavy is imported here."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from stepline.settings import CountOrZero, Fraction, NonNegative, Positive, Settings

ConfidenceForm: TypeAlias = Literal["varifocal", "focal"]
CountForm: TypeAlias = Literal["pdvc", "cross_entropy"]
ContrastForm: TypeAlias = Literal["pair", "multiple"]
TextLayers: TypeAlias = Literal["last", "every"]


class MatchSettings(Settings):
    """What a query must have to be given a step; PDVC's, as released. The paper leaves the cost open."""

    confidence: NonNegative = 2.0  # of the focal cost of its confidence
    l1: NonNegative = 0.0  # of the distance of center and length
    giou: NonNegative = 4.0  # of the gIoU, whose cost is -gIoU
    alpha: Fraction = 0.25  # of the focal cost
    gamma: NonNegative = 2.0  # of the focal cost


class LossSettings(Settings):
    """The parts of the loss and their weights: ProcX equation 14 and section E.2."""

    match: MatchSettings = MatchSettings()
    confidence: ConfidenceForm = "varifocal"  # equation 13 with its second branch mended; "focal": PDVC's
    count: CountForm = "pdvc"  # PDVC's binary form; "cross_entropy": as equation 8's text has it
    contrast: ContrastForm = "pair"  # InfoNCE (fine-tuning); "multiple": MIL-InfoNCE (pre-training)
    neighbours: CountOrZero = 1  # steps to either side whose texts MIL-InfoNCE takes as right too
    text_layers: TextLayers = "last"  # decoder layers whose queries are captioned and contrasted; PDVC: "every"
    giou_weight: NonNegative = 4.0  # section E.2
    l1_weight: NonNegative = 0.5  # section E.2; PDVC: 0
    confidence_weight: NonNegative = 2.0  # section E.2
    count_weight: NonNegative = 0.5  # section E.2
    caption_weight: NonNegative = 5.0  # section E.2; PDVC: 2
    contrast_weight: NonNegative = 0.8  # section E.2
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2  # of the captions' cross-entropy; section E.2
    varifocal_alpha: NonNegative = 0.75  # weight of a query without a step; VarifocalNet, the paper gives none
    varifocal_gamma: NonNegative = 2.0  # VarifocalNet
    focal_alpha: Fraction = 0.25  # PDVC
    focal_gamma: NonNegative = 2.0  # PDVC
    count_spread: Positive = 2.0  # steps; sigma of what is forgiven beside the true count
    count_beta: NonNegative = 1.0  # power of what is not forgiven; PDVC; 0: nothing is forgiven


PDVC: Final = LossSettings(  # the baseline's, as its release trains YouCook2
    confidence="focal", text_layers="every", l1_weight=0.0, caption_weight=2.0, contrast_weight=0.0, label_smoothing=0.0
)
