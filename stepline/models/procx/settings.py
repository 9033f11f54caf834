"""Settings of ProcX: network, losses, data, training run, and describing with a trained network.
Nothing heavy here.

ProcX says 4 + 4 layers, 256 rows and dropout 0.1 and leaves the other sizes open. Those are PDVC's
code. Depth, width and search of the paper's text decoder are unstated. The defaults here are ours.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from stepline.models.training.settings import TrainSettings
from stepline.settings import (
    Batch,
    Count,
    CountOrZero,
    Fraction,
    Heads,
    Layers,
    NonNegative,
    Positive,
    Settings,
    Width,
)

AttentionForm = Literal["key-aware", "vanilla"]
QueryForm = Literal["shared", "roles"]
PositionForm = Literal["middle", "end"]


class AttentionSettings(Settings):
    """Sizes and form of the multi-scale deformable attention (ProcX section 5, equations 9 to
    12)."""

    width: Width = 512
    """D, width of queries, video rows and output; PDVC's code"""
    heads: Heads = 8
    """number of attention heads; PDVC's code"""
    levels: Annotated[int, Field(ge=1, le=16)] = 4
    """number of temporal scales; PDVC's code"""
    points: Annotated[int, Field(ge=1, le=64)] = 4
    """sampling points per query, head and level; PDVC's code"""
    form: AttentionForm = "key-aware"
    """attention weights from the sampled keys (eq. 12). "vanilla": from the query only (eq. 10)"""

    @model_validator(mode="after")
    def _check_sizes(self) -> "AttentionSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self


class VocabularySettings(Settings):
    """Size and characters of the captions' WordPiece vocabulary (ProcX section 6.3)."""

    size: Annotated[int, Field(ge=64, le=1_000_000)] = 10_000
    """largest number of tokens; ProcX section 6.3"""
    lower: bool = True
    """lower-case all sentences; those of YouCook2 are in lower case"""
    rare: Count = 2
    """least occurrences of a character with its own token; others are spelled in UTF-8 bytes"""


class CaptionerSettings(Settings):
    """Sizes of the network that writes the captions: a transformer as in CoCa, or PDVC's LSTM."""

    kind: Literal["transformer", "lstm"] = "transformer"
    """ "transformer": as in CoCa. "lstm": PDVC's"""
    width: Width = 512
    """D, width of a word vector, equal to that of the queries; PDVC"""
    heads: Heads = 8
    """number of attention heads"""
    text_layers: Layers = 2
    """number of layers with self-attention only; CoCa: as many as joint layers"""
    joint_layers: Layers = 2
    """number of layers that also attend to the query and the video"""
    feed_forward: Width = 2048
    """hidden width of the feed-forward blocks"""
    projection: Width = 256
    """width of the vectors that the contrastive loss compares"""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """dropout rate; section E.2"""
    longest: Width = 48
    """largest number of tokens of a caption, end mark included; PDVC: 30 words"""

    @model_validator(mode="after")
    def _check_sizes(self) -> "CaptionerSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self


class ModelSettings(Settings):
    """Sizes and forms of the network that localizes and captions steps (ProcX section 5, appendix
    D)."""

    features: Width = 512
    """width of a feature row; S3D: 512"""
    rows: Width = 256
    """number of rows each video is resized to; section 6.3"""
    standardise: bool = True
    """scale features to a root mean square of 1, since unit rows are small against biases. PDVC's code: no scaling"""
    attention: AttentionSettings = AttentionSettings()
    """attention of encoder and decoder; its width is that of the network"""
    decoder_form: AttentionForm | None = None
    """attention form of the decoder; table 2b. None: that of the encoder"""
    encoder_layers: Layers = 4
    """number of layers; PDVC: 2, "scaled up" in section 5"""
    decoder_layers: Layers = 4
    """number of layers"""
    feed_forward: Width = 512
    """hidden width of the feed-forward blocks; PDVC's code"""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """dropout rate; section E.2"""
    queries: Width = 100
    """number of decoder queries, the most steps that can be found; PDVC's code, not in the paper"""
    query_form: QueryForm = Field(
        "shared",
        description='"shared": the same queries give boxes and captions. "roles": captions have a '
        "second set of queries with a decoder that attends at the boxes; ROS-DVC and DDVC",
    )
    position_form: PositionForm = Field(
        "middle",
        description='time of a row in the encoding: its "middle", as in PDVC\'s code, or its '
        '"end", as in networks trained without this setting',
    )
    most_steps: Width = 20
    """largest number of steps the count head predicts; PDVC's code for YouCook2"""
    longest_duration: CountOrZero = 256
    """seconds above which all durations are encoded alike; PDVC's code. 0: durations are not encoded"""
    fuse: bool = True
    """whether the captioner also attends to the fused pyramid levels; appendix D"""
    captioner: CaptionerSettings = CaptionerSettings()
    """sizes of the network that writes the captions"""

    @property
    def decoder_attention(self) -> AttentionSettings:
        """Settings of the decoder's attention: those of the encoder, with the form `decoder_form`
        if it is set."""
        return self.attention.model_copy(update={"form": self.decoder_form or self.attention.form})

    @model_validator(mode="after")
    def _check_sizes(self) -> "ModelSettings":
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


CountForm = Literal["pdvc", "cross_entropy"]
CaptionMean = Literal["tokens", "captions"]


class LossSettings(Settings):
    """Forms and weights of the training losses (ProcX equation 14 and section E.2)."""

    confidence: Literal["varifocal", "focal"] = "varifocal"
    """form of the confidence loss: equation 13 with its second branch corrected. "focal": PDVC's"""
    count: CountForm = "pdvc"
    """form of the step-count loss: PDVC's binary form. "cross_entropy": as the text of equation 8 says"""
    contrast: Literal["pair", "multiple"] = "pair"
    """form of the contrastive loss: InfoNCE (fine-tuning). "multiple": MIL-InfoNCE (pre-training)"""
    neighbours: CountOrZero = 1
    """steps on each side whose texts are also positives in MIL-InfoNCE"""
    text_layers: Literal["last", "every"] = Field(
        "last",
        description='decoder layers whose queries are captioned and contrasted. PDVC: "every"',
    )
    caption_mean: CaptionMean = Field(
        "tokens",
        description='the caption loss is a mean over all tokens. "captions": a mean over captions of '
        "each caption's own mean, as in PDVC",
    )
    giou_weight: NonNegative = 4.0
    """weight of the gIoU loss; section E.2"""
    l1_weight: NonNegative = 0.5
    """weight of the L1 loss; section E.2; PDVC: 0"""
    confidence_weight: NonNegative = 2.0
    """weight of the confidence loss; section E.2"""
    count_weight: NonNegative = 0.5
    """weight of the step-count loss; section E.2"""
    caption_weight: NonNegative = 5.0
    """weight of the caption loss; section E.2; PDVC: 2"""
    contrast_weight: NonNegative = 0.8
    """weight of the contrastive loss; section E.2"""
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2
    """label smoothing of the caption loss; section E.2"""


StepSource = Literal["reference", "captions", "steps", "narration"]


class DataSettings(Settings):
    """Which videos are used for training, and which of their steps and texts."""

    target: StepSource | None = None
    """part of a record that gives the steps. None: the annotations of its dataset, or the steps of other records"""
    wording: Literal["own", "said"] = "own"
    """text of a swapped step. "own": the written step. "said": what was said (only-sieve)"""
    slack: NonNegative = 5.0
    """largest difference in seconds between the stated length of a video and that of its features"""
    held_out: Fraction = Field(
        0.0,
        description="share of the videos, chosen by id, that are left out of the training. The best "
        "network is chosen on them by SODA-D",
    )


class DescribeSettings(Settings):
    """Prediction of steps with a trained network: when it is used, and which proposals become
    steps."""

    path: Path | None = None
    """the trained network: its file, or the folder of its run"""
    when: Literal["speechless", "always", "alone"] = Field(
        "speechless",
        description='when the network describes a video: if the speech gives no step. "always": its steps '
        'are added as `captions`. "alone": always, and the speech is not used',
    )
    count: CountOrZero | None = None
    """number of steps of a video. None: as many as the network counts"""
    least: CountOrZero = 1
    """least number of steps, if the network counts fewer; PDVC's code"""
    floor: Fraction = 0.0
    """least confidence of a step; with it a video can have fewer steps than counted"""
    caption_weight: NonNegative = 0.0
    """weight of a caption's log likelihood added to the confidence. PDVC: 1.0"""
    batch: Batch = 16
    """videos per batch; affects speed only"""


class ProcxTrainSettings(TrainSettings):
    """Length, batch size and regularization of ProcX training. Defaults are those of section E.2
    for YouCook2, unless the text of a field says otherwise."""

    epochs: Count = 20
    """passes over the training videos; section E.2; Tasty: 30; pre-training: 10"""
    batch: Batch = 8
    """videos per update; section E.2; pre-training: 64"""
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """share of the updates in which the learning rate rises; not in the paper"""
    weight_decay: NonNegative = 1e-3
    """weight decay of AdamW, for matrices only; section E.2"""
    clip: Positive = 0.1
    """largest norm of the gradient; section E.2"""


class ProcxRunSettings(Settings):
    """All settings of `stepline train procx`. `model.features` is taken from the features.

    Attributes:
        model: sizes and forms of the network.
        vocabulary: tokens of the captions.
        loss: forms and weights of the losses.
        data: videos, steps and texts that are used.
        train: length and learning rate of the training.
    """

    model: ModelSettings = ModelSettings()
    vocabulary: VocabularySettings = VocabularySettings()
    loss: LossSettings = LossSettings()
    data: DataSettings = DataSettings()
    train: ProcxTrainSettings = ProcxTrainSettings()
