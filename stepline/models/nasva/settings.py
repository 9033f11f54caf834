"""Settings of NaSVA: network, loss, training data, training runs, localization, self-training.
Importing this file does not import torch."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue, field_serializer, model_validator

from stepline.grounding.settings import CoarseSettings, GroundSettings, LabelRule
from stepline.models.training.settings import StepLabelSource, TrainSettings
from stepline.settings import (
    Batch,
    Count,
    Fraction,
    Heads,
    Layers,
    LayersOrZero,
    NonNegative,
    Positive,
    Settings,
    Width,
)

Teachers = Annotated[int, Field(ge=1, le=100)]
DropoutRate = Annotated[float, Field(ge=0.0, lt=1.0)]


class AlignerNetworkSettings(Settings):
    """The grounding network: NaSVA, section 3.2 and supplement. Sizes are those of the released
    code."""

    video_width: Width = 768
    """C of a feature row; InternVideo and CLIP-L/14: 768, S3D: 512"""
    text_width: Width = 768
    """C of a sentence vector"""
    width: Width = 256
    """D, width of the network; supplement"""
    heads: Heads = 8
    """attention heads; supplement"""
    encoder_layers: LayersOrZero = 3
    """layers over feature rows; section 3.2"""
    decoder_layers: Layers = 3
    """layers over texts; section 3.2"""
    feed_forward: Width = 2048
    """hidden width of the feed-forward; released code"""
    projection: Width = 64
    """d of the vectors whose cosine is the score; supplement"""
    text_positions: Width = 1024
    """largest number of texts in order; released code"""
    dropout: DropoutRate = 0.1
    """dropout of each block's output and inside the feed-forward (released code)"""
    attention_dropout: DropoutRate = 0.0
    """dropout of attention weights. Released code: 0.1, which takes 2-4 times the time and memory"""
    form: Literal["released", "paper"] = Field(
        "released",
        description='"released": as the published code, with positions at every attention and LayerNorm '
        'on projections. "paper": neither',
    )
    feature_scale: Literal["unit_variance", "none"] = Field(
        "unit_variance",
        description='scale of feature rows: mean square 1, or as they are. Released: "none"',
    )
    alignability: bool = False
    """whether the network has the alignability head, y of equation 1"""

    @model_validator(mode="after")
    def _check_sizes(self) -> "AlignerNetworkSettings":
        if self.width % self.heads or self.width % 2:
            raise ValueError(
                f"width {self.width} must be even and a multiple of heads {self.heads}"
            )
        return self


class AlignerLossSettings(Settings):
    """The loss of the network, and the shuffling of texts: NaSVA, section 3.3."""

    form: Literal["paper", "release"] = "paper"
    """rivals: seconds of the same video. "release": of the batch. `loss.py` says more"""
    temperature: Positive = 0.07
    """tau; NaSVA section 4.2, smaller is sharper"""
    shuffled: Fraction = 0.5
    """probability that texts are shuffled; supplement 6.3"""
    drawn: Literal["sample", "batch"] = "sample"
    """whether shuffling is drawn for each sample, or once per batch (released code)"""


class AlignerDataSettings(Settings):
    """Which videos and texts become training samples, and which rows their labels cover."""

    label_rule: LabelRule = "covering"
    """rows that a span labels. "inclusive" is the released code's. See `dataset.find_labelled_rows`"""
    step_place: StepLabelSource = "shown_or_said"
    """span that labels a step. "said": stage 1 of the paper"""
    unlabelled: Literal["keep", "drop"] = "keep"
    """texts without a label: context, and what the alignability head learns from"""
    longest: Annotated[int, Field(ge=1, le=1200)] = 1200
    """feature rows of a video that are used. Supplement: 1200 s"""
    slack: NonNegative = 5.0
    """seconds that a video's stated length may differ from its features'"""
    held_out: Fraction = 0.0
    """fraction of the videos, chosen by id, that are not trained on and choose the best network"""


class AlignerRunSettings(Settings):
    """All settings of `stepline train nasva`. `model.video_width` and `model.text_width` are taken
    from the features."""

    model: AlignerNetworkSettings = AlignerNetworkSettings()
    loss: AlignerLossSettings = AlignerLossSettings()
    data: AlignerDataSettings = AlignerDataSettings()
    train: TrainSettings = TrainSettings()


Mode = Literal["step", "narration"]


class AlignerSettings(Settings):
    """How a trained network localizes texts. The defaults were chosen on two simulated sets (seeds
    10, 11) that no result uses."""

    path: Path | None = None
    """the trained network, a .safetensors file or a folder of one. None: no network is used"""
    mode: Mode = "step"
    """ "narration": the texts are in spoken order, and the network gets their places"""
    whole: Count = 1200
    """rows up to which a video is aligned as a whole. NaSVA trained on as many"""
    window: Count = 600
    """rows of each window of a longer video; TAN: 64"""
    stride: Count = 300
    """rows between the starts of windows, at most half a window; TAN: 16"""
    batch: Batch = 4
    """windows aligned together"""
    temperature: Positive = 0.07
    """tau that turns cosines into probabilities; smaller is sharper (NaSVA section 4.2)"""
    compete: NonNegative = 1.0
    """weight of the competition of texts for feature rows. 0: none"""
    order: Literal["none", "given"] = "none"
    """ "given": two texts that are shown in another order than in the list cost up to 1.5 nats"""
    speech: NonNegative = 0.25
    """weight of the time at which a text is said, if it is known. 0: none"""
    typical: Count = 8
    """feature rows that a text occupies when texts compete; NaSVA: 8 s"""
    spans: Literal["start", "center", "grown"] = "grown"
    """ "start", "center": `duration` from, around the best row. "grown": around the peak"""
    duration: Positive = 8.0
    """seconds of a span that is not grown; NaSVA section 4.2"""
    smooth: Count = 7
    """odd number of rows over which probabilities are summed before a span is grown"""
    grow: Fraction = 0.4
    """fraction of the peak at which a grown span ends"""
    shown_threshold: Fraction = 0.5
    """P(shown) below which a text counts as not shown"""

    @model_validator(mode="after")
    def _check_windows(self) -> "AlignerSettings":
        if 2 * self.stride > self.window:
            raise ValueError(f"stride {self.stride} must be at most half of window {self.window}")
        if self.smooth % 2 == 0:
            raise ValueError(f"smooth {self.smooth} must be odd")
        return self


BestAt = Literal["start", "center"]


class RefineSettings(Settings):
    """How alignment matrices become labels: NaSVA, section 3.3, tables 3, 8 and 9."""

    threshold: Fraction = 0.0
    """eps2. The paper's 0.8 is a cosine and does not carry over to other features"""
    threshold_kind: Literal["cosine", "quantile"] = "quantile"
    """ "cosine": of the best second. "quantile": share of the texts to drop"""
    position: BestAt = "center"
    """where in its label the best second is. NaSVA: start, which its table 8 prefers"""
    seconds: Positive | None = 8.0
    """length of a label in seconds. None: grown around the best second. NaSVA section 4.2"""
    grow: Fraction = 0.7
    """zeta, fraction of the peak at which a grown label ends; NaSVA section 4.2"""
    agree: Positive | None = 4.0
    """largest distance in seconds of the teachers' best seconds. None: they need not agree"""

    @model_validator(mode="after")
    def _check_quantile(self) -> "RefineSettings":
        if self.threshold_kind == "quantile" and self.threshold >= 1.0:
            raise ValueError("a quantile of 1 drops every text; give less than 1")
        return self


RoundNumber = Annotated[int, Field(ge=1, le=20)]
# Goes unnamed where no round differs, so that runs of before are the same.
RoundTable = Annotated[
    dict[RoundNumber, RefineSettings], Field(exclude_if=lambda rounds: not rounds)
]


class SelfTrainSettings(Settings):
    """Rounds of training and labelling: NaSVA, section 3.3."""

    rounds: Annotated[int, Field(ge=0, le=20)] = 1
    """times that labels are made again (NaSVA section 4.2)"""
    teachers: Teachers = 2
    """networks of other seeds whose matrices are averaged; the paper has one"""
    teacher_epochs: Count = 4
    """epochs of a teacher. A teacher that trains long overfits the noise of its labels"""
    refine: RefineSettings = RefineSettings()
    by_round: RoundTable = Field(default_factory=dict)
    """what a round, by its number from 1, has in place of `refine`: by_round.2.position=center"""

    def get_round_settings(self, number: int) -> RefineSettings:
        """Return how a round makes its labels: `refine`, with the values of `by_round` for this
        round."""
        own = self.by_round.get(number, RefineSettings())
        changes = {name: getattr(own, name) for name in own.model_fields_set}
        return self.refine.model_copy(update=changes)

    @field_serializer("by_round")
    def _serialize_round_values(self, rounds: dict[int, RefineSettings]) -> dict[str, JsonValue]:
        """Leave out what a round takes from `refine`, so that it is not read back as the round's
        own."""
        return {
            str(number): settings.model_dump(mode="json", exclude_unset=True)
            for number, settings in rounds.items()
        }

    @model_validator(mode="after")
    def _check_rounds(self) -> "SelfTrainSettings":
        for number in self.by_round:
            if number > self.rounds:
                raise ValueError(
                    f"by_round.{number} has no round; give rounds.rounds={number}, or take it out"
                )
            RefineSettings.model_validate(self.get_round_settings(number).model_dump())
        return self


class RefineRunSettings(Settings):
    """All settings of `stepline refine`, which localizes the steps of a dataset by rounds of
    training and pseudo-labelling.

    `said` and `coarse` give the first labels: where each step is spoken. `model.video_width` and
    `model.text_width` are taken from the features.
    """

    said: Literal["given", "likeness"] = "given"
    """where a step is said: as its record has it, or by likeness to the narration again"""
    coarse: CoarseSettings = CoarseSettings()
    data: AlignerDataSettings = AlignerDataSettings()
    model: AlignerNetworkSettings = AlignerNetworkSettings()
    loss: AlignerLossSettings = AlignerLossSettings()
    train: TrainSettings = TrainSettings()
    """of the final network. Teachers stop after rounds.teacher_epochs"""
    rounds: SelfTrainSettings = SelfTrainSettings()


class NasvaSettings(Settings):
    """Localization of steps in a video."""

    coarse: CoarseSettings = CoarseSettings()
    ground: GroundSettings = GroundSettings()
    aligner: AlignerSettings = AlignerSettings()
