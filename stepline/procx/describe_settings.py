"""Settings of what ProcX says of a video; nothing heavy is imported here."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.procx.text_settings import SearchSettings
from stepline.settings import Count, CountOrZero, Fraction, NonNegative, Settings

When: TypeAlias = Literal["speechless", "always", "alone"]
Half: TypeAlias = Annotated[float, Field(ge=0.0, le=0.5)]


class DescribeSettings(Settings):
    """Which of the network's proposals are steps, and how their sentences are found."""

    path: Path | None = None  # the trained network: its file, or the folder of its run
    when: When = "speechless"  # speech tells no step; "always", as `captions`; "alone": speech is not asked
    count: CountOrZero | None = None  # steps of a video; None: as many as the network counts
    least: CountOrZero = 1  # steps, where the network counts fewer; PDVC's code
    floor: Fraction = 0.0  # a proposal less sure than this is no step, whatever the count
    choose: Literal["surest", "apart"] = "surest"  # "apart": the surest set without overlap; not in the paper
    overlap: Half = 0.2  # apart: share of the shorter of two steps in which they may, and are then parted
    caption_weight: NonNegative = 0.0  # of a caption's likelihood beside the confidence, of all queries; PDVC: 1.0
    caption_power: NonNegative = 2.0  # the likelihood is log P / tokens^this; PDVC's code
    speech: bool = False  # read what is said around each step; for a network that was trained with speech
    search: SearchSettings = SearchSettings()
    batch: Count = 16  # videos looked at at once; for speed alone
