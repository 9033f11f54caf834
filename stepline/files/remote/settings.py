"""Settings of remote files, without heavy imports."""

from typing import Annotated

from pydantic import Field

from stepline.settings import Count, NonNegative, Positive, Settings

BYTES_PER_MIB = 2**20  # bytes; sizes in settings are in MiB


class RemoteSettings(Settings):
    """How remote files are reached. No setting changes the content of a dataset."""

    attempts: Count = Field(
        10,
        description="tries of one request, a minute or more in all. What none can cure ends at "
        "the first",
    )
    pause: NonNegative = Field(
        0.5, description="s before the second try; doubles, to 30 s, less by chance"
    )
    seconds: Positive = Field(
        60.0, description="that one request of one block may take; a slower one is tried again"
    )
    block: Annotated[int, Field(ge=1, le=1024)] = Field(8, description="MiB read by one request")
    endpoint: str | None = Field(
        None,
        description="URL of an S3-compatible server (none: what AWS_ENDPOINT_URL says, else "
        "Amazon's)",
    )
    anonymous: bool = Field(False, description="ask without credentials, as public buckets allow")
    private: bool = Field(
        False, description="http(s) may lead to private addresses, this machine's own among them"
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="further hosts that a list from elsewhere may name, and http may redirect to "
        '("*": any)',
    )
    files: bool = Field(False, description="a list from elsewhere may name files of this machine")
    largest: Count = Field(32768, description="MiB of one file that is fetched; as media.max_bytes")
    longest: Positive = Field(7200.0, description="s that one file may take in all")
    most: Count = Field(
        10_000_000, description="files of a listing, rows of a list, that are taken from elsewhere"
    )
