"""Settings of NaSVA: network, loss, training data, training runs, localization, self-training.
Importing this file does not import torch."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

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

Teachers: TypeAlias = Annotated[int, Field(ge=1, le=100)]
DropoutRate: TypeAlias = Annotated[float, Field(ge=0.0, lt=1.0)]
NetworkForm: TypeAlias = Literal["released", "paper"]
FeatureScale: TypeAlias = Literal["unit_variance", "none"]
LossForm: TypeAlias = Literal["paper", "release"]
OrderDraw: TypeAlias = Literal["sample", "batch"]


class AlignerNetworkSettings(Settings):
    """The grounding network: NaSVA, section 3.2 and supplement. Sizes are those of the released
    code."""

    video_width: Width = Field(
        768, description="C of a feature row; InternVideo and CLIP-L/14: 768, S3D: 512"
    )
    text_width: Width = Field(768, description="C of a sentence vector")
    width: Width = Field(256, description="D, width of the network; supplement")
    heads: Heads = Field(8, description="attention heads; supplement")
    encoder_layers: LayersOrZero = Field(3, description="layers over feature rows; section 3.2")
    decoder_layers: Layers = Field(3, description="layers over texts; section 3.2")
    feed_forward: Width = Field(2048, description="hidden width of the feed-forward; released code")
    projection: Width = Field(
        64, description="d of the vectors whose cosine is the score; supplement"
    )
    text_positions: Width = Field(
        1024, description="largest number of texts in order; released code"
    )
    dropout: DropoutRate = Field(
        0.1,
        description="dropout of each block's output and inside the feed-forward (released code)",
    )
    attention_dropout: DropoutRate = Field(
        0.0,
        description="dropout of attention weights. Released code: 0.1, which takes 2-4 times the time "
        "and memory",
    )
    form: NetworkForm = Field(
        "released",
        description='"released": as the published code, with positions at every attention and LayerNorm '
        'on projections. "paper": neither',
    )
    feature_scale: FeatureScale = Field(
        "unit_variance",
        description='scale of feature rows: mean square 1, or as they are. Released: "none"',
    )
    alignability: bool = Field(
        False, description="whether the network has the alignability head, y of equation 1"
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> "AlignerNetworkSettings":
        if self.width % self.heads or self.width % 2:
            raise ValueError(
                f"width {self.width} must be even and a multiple of heads {self.heads}"
            )
        return self


class AlignerLossSettings(Settings):
    """The loss of the network, and the shuffling of texts: NaSVA, section 3.3."""

    form: LossForm = Field(
        "paper",
        description='rivals: seconds of the same video. "release": of the batch. `loss.py` says '
        "more",
    )
    temperature: Positive = Field(0.07, description="tau; NaSVA section 4.2, smaller is sharper")
    shuffled: Fraction = Field(
        0.5, description="probability that texts are shuffled; supplement 6.3"
    )
    drawn: OrderDraw = Field(
        "sample",
        description="whether shuffling is drawn for each sample, or once per batch (released code)",
    )


UnlabelledTexts: TypeAlias = Literal["keep", "drop"]


class AlignerDataSettings(Settings):
    """Which videos and texts become training samples, and which rows their labels cover."""

    label_rule: LabelRule = Field(
        "covering",
        description='rows that a span labels. "inclusive" is the released code\'s. See '
        "`dataset.find_labelled_rows`",
    )
    step_place: StepLabelSource = Field(
        "shown_or_said", description='span that labels a step. "said": stage 1 of the paper'
    )
    unlabelled: UnlabelledTexts = Field(
        "keep",
        description="texts without a label: context, and what the alignability head learns from",
    )
    longest: Annotated[int, Field(ge=1, le=1200)] = Field(
        1200, description="feature rows of a video that are used. Supplement: 1200 s"
    )
    slack: NonNegative = Field(
        5.0, description="seconds that a video's stated length may differ from its features'"
    )
    held_out: Fraction = Field(
        0.0,
        description="fraction of the videos, chosen by id, that are not trained on and choose the best "
        "network",
    )


class AlignerRunSettings(Settings):
    """All settings of `stepline train nasva`. `model.video_width` and `model.text_width` are taken
    from the features."""

    model: AlignerNetworkSettings = AlignerNetworkSettings()
    loss: AlignerLossSettings = AlignerLossSettings()
    data: AlignerDataSettings = AlignerDataSettings()
    train: TrainSettings = TrainSettings()


Mode: TypeAlias = Literal["step", "narration"]
TextOrder: TypeAlias = Literal["none", "given"]
SpanRule: TypeAlias = Literal["start", "center", "grown"]


class AlignerSettings(Settings):
    """How a trained network localizes texts. The defaults were chosen on two simulated sets (seeds
    10, 11) that no result uses."""

    path: Path | None = Field(
        None,
        description="the trained network, a .safetensors file or a folder of one. None: no "
        "network is used",
    )
    mode: Mode = Field(
        "step",
        description='"narration": the texts are in spoken order, and the network gets their places',
    )
    whole: Count = Field(
        1200, description="rows up to which a video is aligned as a whole. NaSVA trained on as many"
    )
    window: Count = Field(600, description="rows of each window of a longer video; TAN: 64")
    stride: Count = Field(
        300, description="rows between the starts of windows, at most half a window; TAN: 16"
    )
    batch: Batch = Field(4, description="windows aligned together")
    temperature: Positive = Field(
        0.07,
        description="tau that turns cosines into probabilities; smaller is sharper (NaSVA section 4.2)",
    )
    compete: NonNegative = Field(
        1.0, description="weight of the competition of texts for feature rows. 0: none"
    )
    order: TextOrder = Field(
        "none",
        description='"given": two texts that are shown in another order than in the list cost up to '
        "1.5 nats",
    )
    speech: NonNegative = Field(
        0.25, description="weight of the time at which a text is said, if it is known. 0: none"
    )
    typical: Count = Field(
        8, description="feature rows that a text occupies when texts compete; NaSVA: 8 s"
    )
    spans: SpanRule = Field(
        "grown",
        description='"start", "center": `duration` from, around the best row. "grown": around the '
        "peak",
    )
    duration: Positive = Field(
        8.0, description="seconds of a span that is not grown; NaSVA section 4.2"
    )
    smooth: Count = Field(
        7,
        description="odd number of rows over which probabilities are summed before a span is grown",
    )
    grow: Fraction = Field(0.4, description="fraction of the peak at which a grown span ends")
    shown_threshold: Fraction = Field(
        0.5, description="P(shown) below which a text counts as not shown"
    )

    @model_validator(mode="after")
    def _check_windows(self) -> "AlignerSettings":
        if 2 * self.stride > self.window:
            raise ValueError(f"stride {self.stride} must be at most half of window {self.window}")
        if self.smooth % 2 == 0:
            raise ValueError(f"smooth {self.smooth} must be odd")
        return self


ThresholdKind: TypeAlias = Literal["cosine", "quantile"]
BestAt: TypeAlias = Literal["start", "center"]


class RefineSettings(Settings):
    """How alignment matrices become labels: NaSVA, section 3.3, tables 3, 8 and 9."""

    threshold: Fraction = Field(
        0.0,
        description="eps2. The paper's 0.8 is a cosine and does not carry over to other features",
    )
    threshold_kind: ThresholdKind = Field(
        "quantile",
        description='"cosine": of the best second. "quantile": share of the texts to drop',
    )
    position: BestAt = Field(
        "center",
        description="where in its label the best second is. NaSVA: start, which its table 8 "
        "prefers",
    )
    seconds: Positive | None = Field(
        8.0,
        description="length of a label in seconds. None: grown around the best second. NaSVA section 4.2",
    )
    grow: Fraction = Field(
        0.7, description="zeta, fraction of the peak at which a grown label ends; NaSVA section 4.2"
    )
    agree: Positive | None = Field(
        4.0,
        description="largest distance in seconds of the teachers' best seconds. None: they need not "
        "agree",
    )

    @model_validator(mode="after")
    def _check_quantile(self) -> "RefineSettings":
        if self.threshold_kind == "quantile" and self.threshold >= 1.0:
            raise ValueError("a quantile of 1 drops every text; give less than 1")
        return self


RoundNumber: TypeAlias = Annotated[int, Field(ge=1, le=20)]
# Goes unnamed where no round differs, so that runs of before are the same.
RoundTable: TypeAlias = Annotated[
    dict[RoundNumber, RefineSettings], Field(exclude_if=lambda rounds: not rounds)
]


class SelfTrainSettings(Settings):
    """Rounds of training and labelling: NaSVA, section 3.3."""

    rounds: Annotated[int, Field(ge=0, le=20)] = Field(
        1, description="times that labels are made again (NaSVA section 4.2)"
    )
    teachers: Teachers = Field(
        2, description="networks of other seeds whose matrices are averaged; the paper has one"
    )
    teacher_epochs: Count = Field(
        4,
        description="epochs of a teacher. A teacher that trains long overfits the noise of its labels",
    )
    refine: RefineSettings = RefineSettings()
    by_round: RoundTable = Field(
        default_factory=dict,
        description="what a round, by its number from 1, has in place of `refine`: "
        "by_round.2.position=center",
    )

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


SaidSource: TypeAlias = Literal["given", "likeness"]


class RefineRunSettings(Settings):
    """All settings of `stepline refine`, which localizes the steps of a dataset by rounds of
    training and pseudo-labelling.

    `said` and `coarse` give the first labels: where each step is spoken. `model.video_width` and
    `model.text_width` are taken from the features.
    """

    said: SaidSource = Field(
        "given",
        description="where a step is said: as its record has it, or by likeness to the narration "
        "again",
    )
    coarse: CoarseSettings = CoarseSettings()
    data: AlignerDataSettings = AlignerDataSettings()
    model: AlignerNetworkSettings = AlignerNetworkSettings()
    loss: AlignerLossSettings = AlignerLossSettings()
    train: TrainSettings = Field(
        TrainSettings(),
        description="of the final network. Teachers stop after rounds.teacher_epochs",
    )
    rounds: SelfTrainSettings = SelfTrainSettings()


class NasvaSettings(Settings):
    """Localization of steps in a video."""

    coarse: CoarseSettings = CoarseSettings()
    ground: GroundSettings = GroundSettings()
    aligner: AlignerSettings = AlignerSettings()
