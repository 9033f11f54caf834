"""Settings of media: limits of files and downloads, and of the decoder."""

from typing import Annotated, TypeAlias

from pydantic import Field

from stepline.limits import MAX_SECOND
from stepline.settings import Bytes, Count, NonNegative, Positive, Settings

# Left out where none is chosen, as in the keys of results from before it could be.
TrackNumber: TypeAlias = Annotated[
    Annotated[int, Field(ge=1, le=1000)] | None, Field(exclude_if=lambda number: number is None)
]


class MediaSettings(Settings):
    """Limits against hostile or broken files, and options of the decoder."""

    max_bytes: Bytes = Field(32 * 2**30, description="bytes; a day of 720p is about 20 GiB")
    max_duration: Annotated[float, Field(gt=0.0, le=MAX_SECOND)] = Field(
        12 * 3600.0, description="s"
    )
    max_streams: Count = Field(64, description="tracks in one file; films have about 20")
    max_pixels: Count = Field(8192 * 4352, description="pixels of one picture; 8K video fits")
    skip_nonref: bool = Field(
        True,
        description="leave out frames that no other one needs, where far fewer are wanted than "
        "there are",
    )
    threads: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="of the picture decoder; speech takes the rest"
    )
    audio_track: TrackNumber = Field(
        None, description="that is heard, counted from 1; None: one in which is speech"
    )


class LinkSettings(Settings):
    """Settings of downloads by URL. They do not affect the steps of a video."""

    attempts: Count = Field(
        6, description="tries in a row that bring nothing, until a download is given up"
    )
    pause: NonNegative = Field(0.5, description="s before the second try; doubles, to 30 s")
    seconds: Positive = Field(30.0, description="that a server may be silent")
    longest: Positive = Field(7200.0, description="s that one video may take in all")
    largest: Annotated[int, Field(ge=1, le=2**30)] = Field(8192, description="MiB of one video")
    height: Annotated[int, Field(ge=1, le=10_000)] = Field(
        720, description="pixels. A page's best picture that is not higher"
    )
    most: Count = Field(100, description="videos of a playlist")
    private: bool = Field(
        False, description="may lead to private addresses, this machine's own among them"
    )
