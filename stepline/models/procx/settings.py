"""Settings of ProcX: network, losses, data, training run, and describing with a trained network.
Nothing heavy here.

ProcX says 4 + 4 layers, 256 rows and dropout 0.1 and leaves the other sizes open. Those are PDVC's
code. Depth, width and search of the paper's text decoder are unstated. The defaults here are ours.
"""

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, model_validator

from stepline.models.training.settings import TrainSettings
from stepline.settings import (
    Batch,
    Count,
    CountOrZero,
    Fraction,
    Heads,
    Layers,
    LayersOrZero,
    NonNegative,
    Positive,
    Settings,
    Width,
)

AttentionForm: TypeAlias = Literal["key-aware", "vanilla"]
QueryStart: TypeAlias = Literal["xavier", "zero"]
QueryForm: TypeAlias = Literal["shared", "roles"]
PositionForm: TypeAlias = Literal["middle", "end"]
Padding: TypeAlias = Literal["zero", "border"]


class AttentionSettings(Settings):
    """Multi-scale deformable attention: ProcX section 5, equations 9 to 12. Sizes as in PDVC's
    code."""

    width: Width = 512  # D, of queries, memory and output; PDVC's code
    heads: Heads = 8  # PDVC's code
    levels: Annotated[int, Field(ge=1, le=16)] = 4  # temporal scales; PDVC's code
    # points read per query, head and level, PDVC's code
    points: Annotated[int, Field(ge=1, le=64)] = 4
    # weights from sampled keys (eq. 12). "vanilla": from the query alone (eq. 10)
    form: AttentionForm = "key-aware"
    # beyond a level's ends, as the CUDA kernels. "border": as PDVC's code on a CPU
    padding: Padding = "zero"
    # of the query projection, key-aware. "zero": all points count alike at first
    query_start: QueryStart = "xavier"

    @model_validator(mode="after")
    def _fits(self) -> "AttentionSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self


CaptionerKind: TypeAlias = Literal["transformer", "lstm"]


class VocabularySettings(Settings):
    """The WordPiece vocabulary, ProcX section 6.3."""

    size: Annotated[int, Field(ge=64, le=1_000_000)] = 10_000  # most tokens; ProcX section 6.3
    lower: bool = True  # all in lower case, as the sentences of YouCook2 are
    rare: Count = 2  # a character seen less often is spelt in bytes, as unseen ones are


class CaptionerSettings(Settings):
    """The network that says what a query saw: CoCa's decoder, or PDVC's LSTM as a baseline."""

    kind: CaptionerKind = "transformer"  # "lstm": PDVC's, one layer
    width: Width = 512  # D, as of the queries; PDVC
    heads: Heads = 8
    text_layers: Layers = 2  # that see words alone; CoCa has as many as of the next
    joint_layers: Layers = 2  # that see the query as well
    transcript_layers: LayersOrZero = 1  # that read a transcript, where one is given
    feed_forward: Width = 2048
    projection: Width = 256  # d of the vectors that the contrastive loss compares
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # section E.2
    longest: Width = 48  # most tokens of a caption, its end mark included; PDVC: 30 words
    # most tokens of what is said around a step. The rest is left out
    longest_transcript: Width = 128

    @model_validator(mode="after")
    def _fits(self) -> "CaptionerSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self


class SearchSettings(Settings):
    """How a caption is looked for."""

    # hypotheses kept per caption, 1: the most likely token, as PDVC
    beam: Annotated[int, Field(ge=1, le=100)] = 1
    length_penalty: NonNegative = 1.0  # captions are ranked by log P / tokens^this; with a beam
    shortest: CountOrZero = 1  # fewest tokens before the end mark; 0: a caption may be empty
    longest: Width | None = None  # most tokens; None: as many as the network can


class ModelSettings(Settings):
    """The network that finds and describes steps: ProcX section 5 and appendix D."""

    features: Width = 512  # C of a feature row; S3D: 512
    rows: Width = 256  # that each video is resized to; section 6.3
    # numbers are 1 on average, because unit rows drown in biases. PDVC's code: as given
    standardise: bool = True
    attention: AttentionSettings = AttentionSettings()  # of encoder and decoder, and all widths
    # of the decoder's attention, None: as the encoder's, table 2b
    decoder_form: AttentionForm | None = None
    encoder_layers: Layers = 4  # section 5 has "scaled up" PDVC's 2
    decoder_layers: Layers = 4
    feed_forward: Width = 512  # inside each layer; PDVC's code
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # section E.2
    queries: Width = 100  # N, most steps that can be found; PDVC's code, the paper gives none
    # "shared": places and words are read off the same queries. "roles": words off a second set. Its
    # own decoder reads at the boxes of the first. ROS-DVC and DDVC
    query_form: QueryForm = "shared"
    # where in its row a position is. "middle": as PDVC's code. "end": networks without this setting
    position_form: PositionForm = "middle"
    most_steps: Width = 20  # the count head says 0 to this; PDVC's code for YouCook2
    # seconds. Longer videos look alike to the duration embedding. PDVC's, 0: none
    longest_duration: CountOrZero = 256
    refine: bool = True  # each decoder layer moves the boxes of the one before; PDVC's code
    fuse: bool = True  # the text decoder sees the fused levels next to its query; appendix D
    captioner: CaptionerSettings = CaptionerSettings()

    @property
    def decoder_attention(self) -> AttentionSettings:
        """The decoder's attention: the encoder's, but for its form."""
        return self.attention.model_copy(update={"form": self.decoder_form or self.attention.form})

    @model_validator(mode="after")
    def _fits(self) -> "ModelSettings":
        width = self.attention.width
        if self.captioner.width != width:
            raise ValueError(
                f"captioner.width {self.captioner.width} must be attention.width {width}"
            )
        if width % 4:
            raise ValueError(
                f"attention.width {width} must be a multiple of 4: positions and duration share it"
            )
        return self


PROCX_MODEL: Final = ModelSettings()  # as in the paper
PDVC_MODEL: Final = ModelSettings(  # the baseline, as its release trains YouCook2; its rows are 200
    attention=AttentionSettings(form="vanilla"),
    encoder_layers=2,
    decoder_layers=2,
    fuse=False,
    captioner=CaptionerSettings(kind="lstm", dropout=0.5, longest=30),
)


ConfidenceForm: TypeAlias = Literal["varifocal", "focal"]
CountForm: TypeAlias = Literal["pdvc", "cross_entropy"]
ContrastForm: TypeAlias = Literal["pair", "multiple"]
TextLayers: TypeAlias = Literal["last", "every"]
CaptionMean: TypeAlias = Literal["tokens", "captions"]


class MatchSettings(Settings):
    """What a query must have to be given a step, PDVC's, as released. The paper leaves the cost
    open."""

    confidence: NonNegative = 2.0  # of the focal cost of its confidence
    l1: NonNegative = 0.0  # of the distance of center and length
    giou: NonNegative = 4.0  # of the gIoU, whose cost is -gIoU
    alpha: Fraction = 0.25  # of the focal cost
    gamma: NonNegative = 2.0  # of the focal cost


class LossSettings(Settings):
    """The parts of the loss and their weights: ProcX equation 14 and section E.2."""

    match: MatchSettings = MatchSettings()
    # equation 13 with its second branch corrected. "focal": PDVC's
    confidence: ConfidenceForm = "varifocal"
    count: CountForm = "pdvc"  # PDVC's binary form; "cross_entropy": as equation 8's text has it
    contrast: ContrastForm = "pair"  # InfoNCE (fine-tuning); "multiple": MIL-InfoNCE (pre-training)
    neighbours: CountOrZero = 1  # steps to either side whose texts MIL-InfoNCE takes as right too
    # decoder layers whose queries are captioned and contrasted, PDVC: "every"
    text_layers: TextLayers = "last"
    # what the captions' loss is a mean over. "captions": of each caption's own mean, PDVC
    caption_mean: CaptionMean = "tokens"
    giou_weight: NonNegative = 4.0  # section E.2
    l1_weight: NonNegative = 0.5  # section E.2; PDVC: 0
    confidence_weight: NonNegative = 2.0  # section E.2
    count_weight: NonNegative = 0.5  # section E.2
    caption_weight: NonNegative = 5.0  # section E.2; PDVC: 2
    contrast_weight: NonNegative = 0.8  # section E.2
    # of InfoNCE between the queries for words and for places of one step. It needs
    # model.query_form=roles
    role_weight: NonNegative = 0.0
    role_temperature: Positive = 0.07  # of it; CoCa's
    # of the IoU of two steps' boxes beyond that of the steps themselves
    overlap_weight: NonNegative = 0.0
    # of the captions' cross-entropy, section E.2
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2
    # weight of a query without a step. VarifocalNet, the paper gives none
    varifocal_alpha: NonNegative = 0.75
    varifocal_gamma: NonNegative = 2.0  # VarifocalNet
    focal_alpha: Fraction = 0.25  # PDVC
    focal_gamma: NonNegative = 2.0  # PDVC
    count_spread: Positive = 2.0  # steps; sigma of what is forgiven next to the true count
    count_beta: NonNegative = 1.0  # power of what is not forgiven; PDVC; 0: nothing is forgiven


PDVC_LOSSES: Final = LossSettings(  # the baseline's, as its release trains YouCook2
    confidence="focal",
    text_layers="every",
    caption_mean="captions",
    l1_weight=0.0,
    caption_weight=2.0,
    contrast_weight=0.0,
    label_smoothing=0.0,
)


StepSource: TypeAlias = Literal["reference", "captions", "steps", "narration"]
TextChoice: TypeAlias = Literal["own", "said", "any"]
HeldOutScore: TypeAlias = Literal["places", "words"]


class DataSettings(Settings):
    """Which videos become samples, and what of them is to be found and said."""

    # what a video's steps are, None: what its dataset gives, of other records the steps
    target: StepSource | None = None
    # "said": of swapped steps what was said (only-sieve). "any": drawn again each epoch
    wording: TextChoice = "own"
    speech: Fraction = 0.0  # chance of a video to come with what is said; 0: pictures alone
    around: NonNegative = 10.0  # s before and after a step whose speech is read with it
    slack: NonNegative = 5.0  # seconds that a video's stated length may differ from its features'
    # share of the videos, by their ids, that are not trained on but choose the best
    held_out: Fraction = 0.0
    held_out_most: Count = 500  # samples of them that are looked at
    # what makes a network the best of them: SODA-D. "words": the mean of SODA-D and SODA-C, slower
    held_out_score: HeldOutScore = "places"


DescribeWhen: TypeAlias = Literal["speechless", "always", "alone"]
HalfFraction: TypeAlias = Annotated[float, Field(ge=0.0, le=0.5)]


class DescribeSettings(Settings):
    """Which of the network's proposals are steps, and how their sentences are found."""

    path: Path | None = None  # the trained network: its file, or the folder of its run
    # speech describes no step. "always": as `captions`. "alone": speech is not asked
    when: DescribeWhen = "speechless"
    count: CountOrZero | None = None  # steps of a video; None: as many as the network counts
    least: CountOrZero = 1  # steps, where the network counts fewer; PDVC's code
    floor: Fraction = 0.0  # a proposal less sure than this is never a step, whatever the count
    choose: Literal["surest", "apart"] = "surest"  # "apart": most confident, no overlap
    # apart: share of the shorter of two steps in which they may, and are then parted
    overlap: HalfFraction = 0.2
    # of a caption's likelihood next to the confidence, of all queries. PDVC: 1.0
    caption_weight: NonNegative = 0.0
    caption_power: NonNegative = 2.0  # the likelihood is log P / tokens^this; PDVC's code
    # read what is said around each step, for a network that was trained with speech
    speech: bool = False
    search: SearchSettings = SearchSettings()
    batch: Batch = 16  # videos looked at together; for speed alone


class ProcxTrainSettings(TrainSettings):
    """How long and how fast ProcX learns. Defaults are section E.2's for YouCook2."""

    epochs: Count = 20  # section E.2; Tasty: 30; pre-training: 10
    batch: Batch = 8  # videos per step; section E.2; pre-training: 64
    # share of the steps in which the rate rises, unsaid
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    weight_decay: NonNegative = 1e-3  # AdamW's, of matrices alone; section E.2
    clip: Positive = 0.1  # greatest norm of a gradient; section E.2
    # of the rate, for the layers that place sampling points. Deformable DETR: 0.1
    offset_rate: NonNegative = 1.0


PROCX_TRAINING: Final = ProcxTrainSettings()


class ProcxRunSettings(Settings):
    """Everything that `stepline train procx` may set. `model.features` is the features' own
    width."""

    model: ModelSettings = ModelSettings()
    vocabulary: VocabularySettings = VocabularySettings()
    loss: LossSettings = LossSettings()
    data: DataSettings = DataSettings()
    train: ProcxTrainSettings = PROCX_TRAINING
