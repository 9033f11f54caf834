"""Settings of what ProcX says of a video; nothing heavy is imported here."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.procx.text_settings import Count, SearchSettings, Whole
from stepline.settings import Settings

Share: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0)]
When: TypeAlias = Literal["speechless", "always", "alone"]
Half: TypeAlias = Annotated[float, Field(ge=0.0, le=0.5)]
Amount: TypeAlias = Annotated[float, Field(ge=0.0)]


class DescribeSettings(Settings):
    """Which of the network's proposals are steps, and how their sentences are found."""

    path: Path | None = None       # the trained network: its file, or the folder of its run
    when: When = "speechless"      # speech tells no step; "always", as `captions`; "alone": speech is not asked
    count: Whole | None = None     # steps of a video; None: as many as the network counts
    least: Whole = 1               # steps, where the network counts fewer; PDVC's code
    floor: Share = 0.0             # a proposal less sure than this is no step, whatever the count
    choose: Literal["surest", "apart"] = "surest"   # "apart": the surest set without overlap; not in the paper
    overlap: Half = 0.2            # apart: share of the shorter of two steps in which they may, and are then parted
    caption_weight: Amount = 0.0   # of a caption's likelihood beside the confidence, of all queries; PDVC: 1.0
    caption_power: Amount = 2.0    # the likelihood is log P / tokens^this; PDVC's code
    speech: bool = False           # read what is said around each step; for a network that was trained with speech
    search: SearchSettings = SearchSettings()
    batch: Count = 16              # videos looked at at once; for speed alone
