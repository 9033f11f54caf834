"""Settings of media: limits of files and downloads, and of the decoder."""

from typing import Annotated

from pydantic import Field

from stepline.limits import MAX_SECOND
from stepline.settings import Bytes, Count, NonNegative, Positive, Settings

# Left out where none is chosen, as in the keys of results from before it could be.
TrackNumber = Annotated[
    Annotated[int, Field(ge=1, le=1000)] | None, Field(exclude_if=lambda number: number is None)
]


class MediaSettings(Settings):
    """Limits against hostile or broken files, and options of the decoder."""

    max_bytes: Bytes = 32 * 2**30
    """bytes; a day of 720p is about 20 GiB"""
    max_duration: Annotated[float, Field(gt=0.0, le=MAX_SECOND)] = 12 * 3600.0
    """seconds of a video"""
    max_streams: Count = 64
    """streams in one file; films have about 20"""
    max_pixels: Count = 8192 * 4352
    """pixels of one frame; 8K video fits"""
    skip_nonref: bool = True
    """skip decoding of frames that no other frame refers to, where few are needed"""
    threads: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU threads of the video decoder; speech uses the others"""
    audio_track: TrackNumber = None
    """number of the audio stream to use, from 1 on; None: the one with speech"""


class LinkSettings(Settings):
    """Settings of downloads by URL. They do not affect the steps of a video."""

    attempts: Count = 6
    """failed tries in a row after which a download is given up"""
    pause: NonNegative = 0.5
    """seconds before the second try; doubles up to 30 s"""
    seconds: Positive = 30.0
    """seconds without data after which a server has failed"""
    longest: Positive = 7200.0
    """seconds that the download of one video may take"""
    largest: Annotated[int, Field(ge=1, le=2**30)] = 8192
    """MiB that one video may have"""
    height: Annotated[int, Field(ge=1, le=10_000)] = 720
    """maximal height of a page's video in pixels"""
    most: Count = 100
    """videos that are taken from a playlist"""
    private: bool = False
    """allow links to private addresses, also of this machine"""
