"""Settings of remote files, without heavy imports."""

from typing import Annotated

from pydantic import Field

from stepline.settings import Count, NonNegative, Positive, Settings

BYTES_PER_MIB = 2**20  # bytes; sizes in settings are in MiB


class RemoteSettings(Settings):
    """How remote files are reached. No setting changes the content of a dataset."""

    attempts: Count = 10
    """tries of one request, a minute or more in all. A permanent failure is not retried"""
    pause: NonNegative = 0.5
    """s before the second try; doubled per try up to 30 s, shortened at random"""
    seconds: Positive = 60.0
    """s until a request for one block is tried again"""
    block: Annotated[int, Field(ge=1, le=1024)] = 8
    """MiB read by one request"""
    endpoint: str | None = None
    """URL of an S3-compatible server (none: AWS_ENDPOINT_URL, else Amazon's)"""
    anonymous: bool = False
    """send no credentials, as public buckets allow"""
    private: bool = False
    """http(s) may reach private addresses, such as this machine's own"""
    hosts: tuple[str, ...] = ()
    """further hosts that a remote list may name, and http may redirect to ("*": any)"""
    files: bool = False
    """a remote list may name files of this machine"""
    largest: Count = 32768
    """MiB of the largest file that is downloaded; as media.max_bytes"""
    longest: Positive = 7200.0
    """s that the download of one file may take"""
    most: Count = 10_000_000
    """maximal number of files in a remote listing, or rows in a list"""
