"""Settings of remote files, without heavy imports."""

from typing import Annotated

from pydantic import Field

from stepline.settings import Count, NonNegative, Positive, Settings

BYTES_PER_MIB = 2**20  # bytes; sizes in settings are in MiB


class RemoteSettings(Settings):
    """How remote files are reached. No setting changes the content of a dataset."""

    attempts: Count = Field(
        10,
        description="tries of one request, a minute or more in all. A permanent failure is not "
        "retried",
    )
    pause: NonNegative = Field(
        0.5, description="s before the second try; doubled per try up to 30 s, shortened at random"
    )
    seconds: Positive = Field(60.0, description="s until a request for one block is tried again")
    block: Annotated[int, Field(ge=1, le=1024)] = Field(8, description="MiB read by one request")
    endpoint: str | None = Field(
        None, description="URL of an S3-compatible server (none: AWS_ENDPOINT_URL, else Amazon's)"
    )
    anonymous: bool = Field(False, description="send no credentials, as public buckets allow")
    private: bool = Field(
        False, description="http(s) may reach private addresses, such as this machine's own"
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="further hosts that a remote list may name, and http may redirect to "
        '("*": any)',
    )
    files: bool = Field(False, description="a remote list may name files of this machine")
    largest: Count = Field(
        32768, description="MiB of the largest file that is downloaded; as media.max_bytes"
    )
    longest: Positive = Field(7200.0, description="s that the download of one file may take")
    most: Count = Field(
        10_000_000, description="maximal number of files in a remote listing, or rows in a list"
    )
