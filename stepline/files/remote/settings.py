"""Settings of files anywhere. Nothing heavy is imported here."""

from typing import Annotated

from pydantic import Field

from stepline.settings import Count, NonNegative, Positive, Settings

BYTES_PER_MIB = 2**20  # bytes; sizes in settings are in MiB


class RemoteSettings(Settings):
    """How files are reached. Nothing here decides what is in a dataset."""

    # tries of one request, a minute or more in all. What none can cure ends at the first
    attempts: Count = 10
    pause: NonNegative = 0.5  # s before the second try; doubles, to 30 s, less by chance
    seconds: Positive = 60.0  # that one request of one block may take; a slower one is tried again
    block: Annotated[int, Field(ge=1, le=1024)] = 8  # MiB read by one request
    # URL of an S3-compatible server (none: what AWS_ENDPOINT_URL says, else Amazon's)
    endpoint: str | None = None
    anonymous: bool = False  # ask without credentials, as public buckets allow
    private: bool = False  # http(s) may lead to private addresses, this machine's own among them
    # further hosts that a list from elsewhere may name, and http may redirect to ("*": any)
    hosts: tuple[str, ...] = ()
    files: bool = False  # a list from elsewhere may name files of this machine
    largest: Count = 32768  # MiB of one file that is fetched; as media.max_bytes
    longest: Positive = 7200.0  # s that one file may take in all
    most: Count = 10_000_000  # files of a listing, rows of a list, that are taken from elsewhere
