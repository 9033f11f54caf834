"""Settings of media: how large a file may be, and how hard the decoder works."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.limits import MAX_SECOND
from stepline.settings import Bytes, Count, NonNegative, Positive, Settings

# It decides results: NVDEC gives NV12, which becomes other pixels at full size, and MPEG-2 and
# MPEG-4 leave decoders free to round. The CPU's goes unnamed, as in the keys of results from before
# there was another.
Decoder: TypeAlias = Annotated[
    Literal["cpu", "cuda"], Field(exclude_if=lambda decoder: decoder == "cpu")
]

# Goes unnamed where none is chosen, as in the keys of results from before it could be.
TrackNumber: TypeAlias = Annotated[
    Annotated[int, Field(ge=1, le=1000)] | None, Field(exclude_if=lambda number: number is None)
]


class MediaSettings(Settings):
    """Limits that keep a hostile or broken file from taking the machine, and what decoding may
    leave out."""

    max_bytes: Bytes = 32 * 2**30  # bytes; a day of 720p is about 20 GiB
    max_duration: Annotated[float, Field(gt=0.0, le=MAX_SECOND)] = 12 * 3600.0  # s
    max_streams: Count = 64  # tracks in one file; films have about 20
    max_pixels: Count = 8192 * 4352  # pixels of one picture; 8K video fits
    # leave out frames that no other one needs, where far fewer are wanted than there are
    skip_nonref: bool = True
    threads: Annotated[int, Field(ge=1, le=64)] = 1  # of the picture decoder; speech takes the rest
    # of pictures to encode. "cuda": NVIDIA's (NVDEC), where build, machine and file allow it
    decoder: Decoder = "cpu"
    audio_track: TrackNumber = None  # that is heard, counted from 1; None: one in which is speech


class LinkSettings(Settings):
    """How a video that is named by an address is fetched. Nothing here decides what its steps
    are."""

    attempts: Count = 6  # tries in a row that bring nothing, until a download is given up
    pause: NonNegative = 0.5  # s before the second try; doubles, to 30 s
    seconds: Positive = 30.0  # that a server may be silent
    longest: Positive = 7200.0  # s that one video may take in all
    largest: Annotated[int, Field(ge=1, le=2**30)] = 8192  # MiB of one video
    # pixels. A page's best picture that is not higher
    height: Annotated[int, Field(ge=1, le=10_000)] = 720
    most: Count = 100  # videos of a playlist
    private: bool = False  # may lead to private addresses, this machine's own among them
