"""Settings of the baseline that writes times and sentences as one sequence; nothing heavy is imported here.

The form is Vid2Seq's (Yang et al., CVPR 2023), the size is not: no language model is pre-trained, and none is needed.
"""

from typing import Annotated, Final

from pydantic import Field, model_validator

from stepline.settings import Count, Settings


class Vid2SeqSettings(Settings):
    """A network that reads feature rows, and speech where it is given, and writes one sequence a video."""

    features: Count = 512  # C of a feature row; S3D: 512, CLIP: 768
    rows: Count = 100  # that each video is resized to; Vid2Seq
    bins: Count = 100  # time tokens: equal parts of a video's length; Vid2Seq
    width: Count = 512  # D; T5-base: 768
    heads: Count = 8
    video_layers: Count = 2  # on feature rows; Vid2Seq: 12
    speech_layers: Count = 2  # on what is said; Vid2Seq: 12
    writer_layers: Count = 2  # that write; Vid2Seq: 12
    feed_forward: Count = 2048
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # Vid2Seq
    longest: Count = 256  # most tokens of a video's steps, the end mark included; Vid2Seq
    longest_speech: Count = 1000  # most tokens of what is said; Vid2Seq
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # Vid2Seq

    @model_validator(mode="after")
    def _fits(self) -> "Vid2SeqSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self


SMALL_VID2SEQ: Final = Vid2SeqSettings(  # learns the simulated world in minutes
    rows=64, width=64, heads=4, speech_layers=1, feed_forward=128, longest=320, longest_speech=400
)
