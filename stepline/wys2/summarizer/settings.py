"""Settings of the summarizer; nothing heavy is imported here."""

from typing import Annotated

from pydantic import Field, model_validator

from stepline.settings import Count, CountOrZero, Positive, Settings
from stepline.training.settings import TrainSettings

TRAINING = TrainSettings(epochs=20, batch=16, learning_rate=1e-3)  # its own defaults; IV-Sum's are not in its paper


class SummarizerSettings(Settings):
    """The network and its segments: IV-Sum, section 3; sizes that it leaves open are small."""

    video_width: Count = 512  # of a feature row; a training run takes that of its features
    text_width: CountOrZero = 0  # of a sentence vector; 0: speech is not used; so too
    seconds: Positive = 4.0  # of a segment; IV-Sum: 32 frames at 8 a second
    width: Count = 128  # between layers
    heads: Count = 4
    layers: Count = 2
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1

    @model_validator(mode="after")
    def _fits(self) -> "SummarizerSettings":
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width {self.width} must be even and a multiple of heads {self.heads}")
        return self


class SummarizerRunSettings(Settings):
    """Everything that makes a summarizer."""

    summarizer: SummarizerSettings = SummarizerSettings()
    train: TrainSettings = TRAINING
