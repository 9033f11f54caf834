"""Settings of the grounding network and of its losses; nothing heavy is imported here."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from stepline.settings import Count, CountOrZero, Fraction, NonNegative, Positive, Settings

Drop: TypeAlias = Annotated[float, Field(ge=0.0, lt=1.0)]
NetworkForm: TypeAlias = Literal["released", "paper"]
FeatureScale: TypeAlias = Literal["unit_variance", "none"]
LossForm: TypeAlias = Literal["paper", "release"]
AlignabilityTargets: TypeAlias = Literal["kept", "agreement"]
OrderDraw: TypeAlias = Literal["sample", "batch"]


class ModelSettings(Settings):
    """The grounding network: NaSVA section 3.2 and its supplement, sizes as in the released code."""

    video_width: Count = 768  # C of a feature row; InternVideo and CLIP-L/14: 768, S3D: 512
    text_width: Count = 768  # C of a sentence vector
    width: Count = 256  # D; supplement
    heads: Count = 8  # supplement
    encoder_layers: CountOrZero = 3  # section 3.2
    decoder_layers: Count = 3  # section 3.2
    feed_forward: Count = 2048  # released code; the paper gives none
    projection: Count = 64  # d of the vectors whose cosine is the score; supplement
    text_positions: Count = 1024  # most texts that can be in order; released code
    dropout: Drop = 0.1  # of what each block adds, and inside the feed-forward; released code
    attention_dropout: Drop = 0.0  # of attention weights; released code: 0.1, which costs 2-4 times the time and memory
    form: NetworkForm = "released"  # positions at every attention and LayerNorm on projections; "paper": neither
    feature_scale: FeatureScale = "unit_variance"  # of each row, else unit rows drown in positions; released: "none"
    alignability: bool = False  # whether it has the head y of equation 1; the release never uses its own

    @model_validator(mode="after")
    def _fits(self) -> "ModelSettings":
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width {self.width} must be even and a multiple of heads {self.heads}")
        return self


class LossSettings(Settings):
    """How the alignment matrix is trained: NaSVA section 3.3."""

    form: LossForm = "paper"  # rivals: seconds of the same video; "release": of the batch; `loss.py` says more
    temperature: Positive = 0.07  # tau; NaSVA section 4.2, smaller is sharper
    every_layer: bool | None = None  # deep supervision; None: as the form has it (release yes, paper no)
    alignability: AlignabilityTargets = "kept"  # what the head learns, where the network has one
    alignability_weight: NonNegative = 1.0  # of its loss beside that of the alignment
    shuffled: Fraction = 0.5  # chance that texts lose their order; supplement 6.3
    drawn: OrderDraw = "sample"  # whether each sample draws that chance or all of a batch at once (released code)
