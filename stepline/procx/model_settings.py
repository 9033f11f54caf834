"""Settings of the whole network; nothing heavy is imported here.

ProcX says 4 + 4 layers, 256 rows and dropout 0.1 and leaves the other sizes open: those are PDVC's code.
"""

from typing import Annotated, Final

from pydantic import Field, model_validator

from stepline.procx.settings import AttentionForm, AttentionSettings
from stepline.procx.text_settings import CaptionerSettings
from stepline.settings import Count, CountOrZero, Settings


class ModelSettings(Settings):
    """The network that finds and describes steps: ProcX section 5 and appendix D."""

    features: Count = 512  # C of a feature row; S3D: 512
    rows: Count = 256  # that each video is resized to; section 6.3
    standardise: bool = True  # numbers are 1 on average: unit rows drown in biases; PDVC's code: as given
    attention: AttentionSettings = AttentionSettings()  # of encoder and decoder, and all widths
    decoder_form: AttentionForm | None = None  # of the decoder's attention; None: as the encoder's; table 2b
    encoder_layers: Count = 4  # section 5 has "scaled up" PDVC's 2
    decoder_layers: Count = 4
    feed_forward: Count = 512  # inside each layer; PDVC's code
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # section E.2
    queries: Count = 100  # N, most steps that can be found; PDVC's code, the paper gives none
    most_steps: Count = 20  # the count head says 0 to this; PDVC's code for YouCook2
    longest_duration: CountOrZero = 256  # seconds; longer videos look alike to the duration embedding; PDVC's; 0: none
    refine: bool = True  # each decoder layer moves the boxes of the one before; PDVC's code
    fuse: bool = True  # whether the text decoder sees the fused levels beside its query; appendix D
    captioner: CaptionerSettings = CaptionerSettings()

    @property
    def decoder_attention(self) -> AttentionSettings:
        """The decoder's attention: the encoder's, but for its form."""
        return self.attention.model_copy(update={"form": self.decoder_form or self.attention.form})

    @model_validator(mode="after")
    def _fits(self) -> "ModelSettings":
        width = self.attention.width
        if self.captioner.width != width:
            raise ValueError(f"captioner.width {self.captioner.width} must be attention.width {width}")
        if width % 4:
            raise ValueError(f"attention.width {width} must be a multiple of 4: places and duration share it")
        return self


PROCX: Final = ModelSettings()  # as in the paper
PDVC: Final = ModelSettings(  # the baseline, as its release trains YouCook2; its rows are 200
    attention=AttentionSettings(form="vanilla"),
    encoder_layers=2,
    decoder_layers=2,
    fuse=False,
    captioner=CaptionerSettings(kind="lstm", dropout=0.5, longest=30),
)
SMALL: Final = ModelSettings(  # learns the simulated world in minutes
    attention=AttentionSettings(width=64, heads=4),
    encoder_layers=2,
    decoder_layers=2,
    feed_forward=128,
    queries=20,
    captioner=CaptionerSettings(width=64, heads=4, text_layers=1, joint_layers=1, feed_forward=128, projection=32),
)
SMALL_PDVC: Final = ModelSettings(
    attention=AttentionSettings(width=64, heads=4, form="vanilla"),
    encoder_layers=2,
    decoder_layers=2,
    feed_forward=128,
    queries=20,
    fuse=False,
    captioner=CaptionerSettings(kind="lstm", width=64, heads=4, longest=48),
)
