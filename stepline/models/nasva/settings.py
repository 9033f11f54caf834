"""Settings of NaSVA: its network and losses, its data and runs, placing, self-training. Nothing
heavy is imported."""

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
AlignabilityTargets: TypeAlias = Literal["kept", "agreement"]
OrderDraw: TypeAlias = Literal["sample", "batch"]
UnshownTexts: TypeAlias = Literal["other task", "same task", "unlike"]


class AlignerNetworkSettings(Settings):
    """The grounding network: NaSVA section 3.2 and its supplement, sizes as in the released
    code."""

    video_width: Width = 768  # C of a feature row; InternVideo and CLIP-L/14: 768, S3D: 512
    text_width: Width = 768  # C of a sentence vector
    width: Width = 256  # D; supplement
    heads: Heads = 8  # supplement
    encoder_layers: LayersOrZero = 3  # section 3.2
    decoder_layers: Layers = 3  # section 3.2
    feed_forward: Width = 2048  # released code; the paper gives none
    projection: Width = 64  # d of the vectors whose cosine is the score; supplement
    text_positions: Width = 1024  # most texts that can be in order; released code
    # of what each block adds, and inside the feed-forward (released code)
    dropout: DropoutRate = 0.1
    # of attention weights. Released code: 0.1, which costs 2-4 times the time and memory
    attention_dropout: DropoutRate = 0.0
    # positions at every attention and LayerNorm on projections. "paper": neither
    form: NetworkForm = "released"
    # of each row, else unit rows drown in positions. Released: "none"
    feature_scale: FeatureScale = "unit_variance"
    # whether it has the head y of equation 1. The release never uses its own
    alignability: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "AlignerNetworkSettings":
        if self.width % self.heads or self.width % 2:
            raise ValueError(
                f"width {self.width} must be even and a multiple of heads {self.heads}"
            )
        return self


class AlignerLossSettings(Settings):
    """How the alignment matrix is trained: NaSVA section 3.3."""

    # rivals: seconds of the same video. "release": of the batch. `loss.py` says more
    form: LossForm = "paper"
    temperature: Positive = 0.07  # tau; NaSVA section 4.2, smaller is sharper
    # deep supervision. None: as the form has it (release yes, paper no)
    every_layer: bool | None = None
    alignability: AlignabilityTargets = "kept"  # what the head learns, where the network has one
    alignability_weight: NonNegative = 1.0  # of its loss next to that of the alignment
    shuffled: Fraction = 0.5  # chance that texts lose their order; supplement 6.3
    # whether each sample draws that chance or all of a batch together (released code)
    drawn: OrderDraw = "sample"


HeldOutScore: TypeAlias = Literal["recall", "loss"]
UnlabelledTexts: TypeAlias = Literal["keep", "drop"]


class AlignerDataSettings(Settings):
    """Which videos and texts become samples, and what counts as their labels."""

    # rows that a span labels. "inclusive" is the released code's. See `dataset.labelled_rows`
    label_rule: LabelRule = "covering"
    # which of a step's places is its label. Said alone: stage 1 of the paper
    step_place: StepLabelSource = "shown_or_said"
    # texts without a label: context, and what the alignability head learns from
    unlabelled: UnlabelledTexts = "keep"
    # rows of a video that are seen. Supplement: 1200 s
    longest: Annotated[int, Field(ge=1, le=1200)] = 1200
    slack: NonNegative = 5.0  # seconds that a video's stated length may differ from its features'
    # share of the videos, by their ids, that are not trained on but choose the best
    held_out: Fraction = 0.0
    held_out_most: Count = 500  # samples of them that are looked at
    # what chooses the best: the share of texts whose best row has their label
    held_out_score: HeldOutScore = "recall"


class AlignerRunSettings(Settings):
    """All settings of `stepline train nasva`. `model.video_width` and `model.text_width` are the
    features' own."""

    model: AlignerNetworkSettings = AlignerNetworkSettings()
    loss: AlignerLossSettings = AlignerLossSettings()
    data: AlignerDataSettings = AlignerDataSettings()
    train: TrainSettings = TrainSettings()


Mode: TypeAlias = Literal["step", "narration"]
TextOrder: TypeAlias = Literal["none", "given"]
SpanRule: TypeAlias = Literal["start", "center", "grown"]


class AlignerSettings(Settings):
    """How a trained network places texts. Its choices were made on two worlds (seeds 10, 11) that
    no result uses."""

    # the trained network, a .safetensors file or a folder of one. None: no network is used
    path: Path | None = None
    # "narration": the texts are in spoken order, and the network gets their places
    mode: Mode = "step"
    # rows up to which a video is aligned as a whole. NaSVA trained on as many
    whole: Count = 1200
    window: Count = 600  # rows of a window of a longer video; TAN: 64
    stride: Count = 300  # rows from window to window, at most half a window; TAN: 16
    batch: Batch = 4  # windows aligned together
    # compute in bfloat16, faster where the processor has it. Moves a score by up to 0.006
    bf16: bool = False
    # tau that turns cosines into chances (NaSVA section 4.2, smaller is sharper)
    temperature: Positive = 0.07
    compete: NonNegative = 1.0  # how far texts compete for seconds; 0 not at all
    # "given": texts that are shown in another order than the given one cost `order_cost`
    order: TextOrder = "none"
    # nats that a text shown before the shown one in front of it costs
    order_cost: NonNegative = 1.5
    speech: NonNegative = 0.25  # weight of when a text is said, where that is known; 0 not at all
    typical: Count = 8  # rows that a text keeps from others; NaSVA's 8 s
    # "start", "center": `duration` from, around the best row. "grown": around the peak
    spans: SpanRule = "grown"
    duration: Positive = 8.0  # seconds of a span that is not grown; NaSVA section 4.2
    smooth: Count = 7  # rows, odd, over which chances are summed before a span is grown
    grow: Fraction = 0.4  # share of the peak at which it stops growing
    shown_threshold: Fraction = 0.5  # P(shown) below which a text counts as not shown

    @model_validator(mode="after")
    def _fits(self) -> "AlignerSettings":
        if 2 * self.stride > self.window:
            raise ValueError(f"stride {self.stride} must be at most half of window {self.window}")
        if self.smooth % 2 == 0:
            raise ValueError(f"smooth {self.smooth} must be odd")
        return self


FirstLabels: TypeAlias = Literal["asr", "video", "agreed"]
RecordPlace: TypeAlias = Literal["said", "shown"]
ThresholdKind: TypeAlias = Literal["cosine", "quantile"]
BestAt: TypeAlias = Literal["start", "center"]


class RefineSettings(Settings):
    """How a network's alignment matrix becomes labels: NaSVA section 3.3, its tables 3, 8 and 9."""

    # eps2. The paper's 0.8 is a cosine and does not carry over to other features
    threshold: Fraction = 0.0
    # "cosine": of the best second. "quantile": share of the texts to drop
    threshold_kind: ThresholdKind = "quantile"
    # where in its label the best second is. NaSVA: start, which its table 8 prefers
    position: BestAt = "center"
    # length of a label. None: grown around the best second. NaSVA section 4.2
    seconds: Positive | None = 8.0
    grow: Fraction = 0.7  # zeta, share of the peak at which a grown label ends; NaSVA section 4.2
    # seconds that the teachers' best seconds may be apart. None: they need not agree
    agree: Positive | None = 4.0
    # the record's own places that the best second must be as near to
    agree_with: tuple[RecordPlace, ...] = ()
    least_kept: Fraction = 0.02  # share of texts that must keep a label, else it is an error

    @model_validator(mode="after")
    def _drops_less_than_all(self) -> "RefineSettings":
        if self.threshold_kind == "quantile" and self.threshold >= 1.0:
            raise ValueError("a quantile of 1 drops every text; give less than 1")
        if self.agree_with and self.agree is None:
            raise ValueError("agree_with needs agree, the seconds that places may lie apart")
        return self


RoundNumber: TypeAlias = Annotated[int, Field(ge=1, le=20)]
# Goes unnamed where no round differs, so that runs of before are the same.
RoundTable: TypeAlias = Annotated[
    dict[RoundNumber, RefineSettings], Field(exclude_if=lambda rounds: not rounds)
]


class SelfTrainSettings(Settings):
    """Rounds of training on labels and labelling again: NaSVA section 3.3."""

    # "video": likeness to the picture (Step-Video). "agreed": said, where also grounded
    first: FirstLabels = "asr"
    # times that labels are made again (NaSVA section 4.2)
    rounds: Annotated[int, Field(ge=0, le=20)] = 1
    teachers: Teachers = 2  # networks of other seeds whose matrices are averaged; the paper has one
    # a teacher stops early: one that trains long learns its labels' noise by heart
    teacher_epochs: Count = 4
    # share of the videos that no teacher sees, on which rounds are compared
    held_out: Fraction = 0.1
    # seconds apart at which two rounds still agree on where a held-out text is shown
    same: Positive = 4.0
    # agreement of two rounds on held-out texts at which no further round is made
    enough: Fraction = 0.9
    refine: RefineSettings = RefineSettings()
    # what a round, by its number from 1, has in place of `refine`: by_round.2.position=center
    by_round: RoundTable = Field(default_factory=dict)

    @property
    def asks_where_shown(self) -> bool:
        """Whether the record's own places of what is shown have a say."""
        numbers = range(1, self.rounds + 1)
        in_a_round = any("shown" in self.refinement(number).agree_with for number in numbers)
        return self.first == "agreed" or in_a_round or "shown" in self.refine.agree_with

    def refinement(self, number: int) -> RefineSettings:
        """Return how the labels of a round are made: `refine`, and what the round has of its
        own."""
        own = self.by_round.get(number, RefineSettings())
        changes = {name: getattr(own, name) for name in own.model_fields_set}
        return self.refine.model_copy(update=changes)

    @field_serializer("by_round")
    def _own_values(self, rounds: dict[int, RefineSettings]) -> dict[str, JsonValue]:
        """Leave out what a round has from `refine`, so that it is not read back as its own."""
        return {
            str(number): settings.model_dump(mode="json", exclude_unset=True)
            for number, settings in rounds.items()
        }

    @model_validator(mode="after")
    def _rounds_fit(self) -> "SelfTrainSettings":
        for number in self.by_round:
            if number > self.rounds:
                cure = f"give rounds.rounds={number}, or take it out"
                raise ValueError(f"by_round.{number} has no round; {cure}")
            RefineSettings.model_validate(self.refinement(number).model_dump())
        return self


SaidSource: TypeAlias = Literal["given", "likeness"]


class RefineRunSettings(Settings):
    """All settings of `stepline refine`. `model.video_width` and `model.text_width` are the
    features' own."""

    # where a step is said: as its record has it, or by likeness to the narration again
    said: SaidSource = "given"
    coarse: CoarseSettings = CoarseSettings()
    data: AlignerDataSettings = AlignerDataSettings()
    model: AlignerNetworkSettings = AlignerNetworkSettings()
    loss: AlignerLossSettings = AlignerLossSettings()
    # of the final network. Teachers stop after rounds.teacher_epochs
    train: TrainSettings = TrainSettings()
    rounds: SelfTrainSettings = SelfTrainSettings()


class NasvaSettings(Settings):
    """Placing steps in the video."""

    coarse: CoarseSettings = CoarseSettings()
    ground: GroundSettings = GroundSettings()
    aligner: AlignerSettings = AlignerSettings()
