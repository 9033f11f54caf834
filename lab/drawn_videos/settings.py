"""Settings of the drawn world: size and cost of the pictures, and the statistics of the scripts."""

from typing import Annotated

from pydantic import Field

from stepline.settings import Fraction, Settings


class RenderSettings(Settings):
    """How a script becomes a file."""

    width: Annotated[int, Field(ge=64, le=1920, multiple_of=16)] = 640  # pixels
    # pixels. Whole macroblocks of 16
    height: Annotated[int, Field(ge=32, le=1088, multiple_of=16)] = 352
    frame_rate: Annotated[int, Field(ge=2, le=60)] = 12  # frames per second
    quality: Annotated[int, Field(ge=0, le=51)] = 29  # x264's crf; smaller is better and larger
    sound_bits: Annotated[int, Field(ge=16_000, le=192_000)] = 40_000  # bits a second of AAC
    threads: Annotated[int, Field(ge=1, le=64)] = 2  # x264's; the bytes depend on it


class ScriptSettings(Settings):
    """What the generated scripts are like. Fractions and seconds follow WhenAct's statistics
    (data/STATISTICS.md)."""

    said_only: Fraction = 0.15  # fraction of the steps that are said and never shown
    # fraction of the steps shown `far_least` to `far_most` away from where they are said
    far: Fraction = 0.22
    far_least: float = 5.5  # s between the shown span and the spoken one
    far_most: float = 20.0  # s
    offset: float = 1.0  # s, mean of shown start - said start of the other steps (WhenAct: 1.0)
    spread: float = 2.0  # s, its standard deviation
    # s, of the lognormal duration of a shown span (WhenAct: 8.0, in longer videos)
    shown_median: float = 6.5
    shown_sigma: float = 0.4  # of its logarithm
    shown_least: float = 3.0  # s
    shown_most: float = 14.0  # s
    twice: Fraction = 0.08  # fraction of the shown steps that are shown once more elsewhere
    chat: Fraction = 0.50  # probability of chat after a step
    least_steps: Annotated[int, Field(ge=3)] = 8
    most_steps: Annotated[int, Field(ge=3)] = 10
    shortest: float = 75.0  # s, of the whole video
    longest: float = 120.0  # s
