"""Retries with exponential backoff, and the one-line message of a request that cannot succeed.

def pause_after(error: Exception, tries: int) -> float:
    if tries == 3 or not isinstance(error, TimeoutError):
        raise error
    return exponential_backoff(0.5, tries)

page = retry(fetch_page, pause_after)
"""

import errno
import logging
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from stepline.errors import StoreError
from stepline.files.remote.settings import RemoteSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_PAUSE_SECONDS = 30.0  # between two tries, where a user of the loop sets no other
# HTTP statuses that another try may cure: timeouts, too many requests, a server in trouble
TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
# What clients call a connection that failed. They are named, since they need not be installed.
BROKEN_CONNECTIONS = frozenset(
    {
        "HTTPClientError",
        "ClientConnectionError",
        "ClientPayloadError",
        "IncompleteRead",
        "ResponseParserError",
        # gcsfs's 502, and what keeps Google's credentials from being renewed.
        "ProxyError",
        "TransportError",
    }
)
_TRANSIENT_NAMES = ("EAGAIN", "EBUSY", "EINTR", "EIO", "ESTALE", "EREMOTEIO", "ETIMEDOUT")
# Linux has all of these.
TRANSIENT_ERRNOS = frozenset(
    getattr(errno, name) for name in _TRANSIENT_NAMES if hasattr(errno, name)
)
CREDENTIALS_CURE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, "
    "or anonymous=true for a public bucket"
)
ACCESS_CURE = "check the credentials, or ask its owner for the right to read, and to write --out"
REFUSED_KEY = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
)
# What gcsfs does not find where there is no such bucket.
GS_OBJECTS = re.compile(r"(?:^|/storage/v1/)b/[^/]+/o$")
NO_CREDENTIALS = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "NoAuthTokenError", "DefaultCredentialsError"}
)


class ShortReadError(OSError):
    """A response with fewer or more bytes than requested."""


class OutOfReachError(StoreError):
    """A server that did not answer, or was too busy, on every try."""


def retry(action: Callable[[], T], pause_after: Callable[[Exception, int], float]) -> T:
    """Return the result of `action`, called again after each failure for which `pause_after` has a
    pause.

    pause_after: gets the exception and the number of tries so far. It returns the seconds to wait
    before the next try, or raises the final error.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - pause_after raises what is not tried again
            seconds = pause_after(error, tries)
        time.sleep(seconds)


def exponential_backoff(first: float, tries: int, most: float = MAX_PAUSE_SECONDS) -> float:
    """Return the exponential backoff in seconds: `first`, doubled after each try, at most `most`."""
    return min(most, first * 2.0 ** (tries - 1))


def retry_request(action: Callable[[], T], name: str, settings: RemoteSettings) -> T:
    """Return the result of `action`, with transient failures retried by exponential backoff.

    Args:
        action: the request.
        name: of the request in messages, without secrets.
        settings: number of tries, and pauses.

    Raises StoreError for a permanent failure immediately, OutOfReachError for a transient one after
    the last try. The one-line message holds no text of the server or its client.
    """

    def pause_after(error: Exception, tries: int) -> float:
        # What is ours, or a lack of memory, does not pass.
        if isinstance(error, (StoreError, MemoryError)):
            raise error
        for cause in causes(error):
            if isinstance(cause, StoreError):  # a limit of ours, in what a client made of it
                raise StoreError(str(cause)) from error
        reason = retry_reason(error)
        if reason is None:
            raise StoreError(f"{name}: {failure_reason(error)}") from error
        if tries == settings.attempts:
            cure = "see whether its server is up, then run again: what is done stays done"
            raise OutOfReachError(f"{name}: {reason}, {tries} times in a row; {cure}") from error
        # At random, so that many clients do not come back together.
        pause = exponential_backoff(settings.pause, tries) * random.uniform(0.5, 1.0)
        log.info(
            "%s: %s; try %d of %d in %.1f s", name, reason, tries + 1, settings.attempts, pause
        )
        return pause

    return retry(action, pause_after)


def retry_reason(error: BaseException) -> str | None:
    """Return why another try may succeed, or None for a permanent failure."""
    if _class_names(error) & BROKEN_CONNECTIONS:
        return "the connection failed"
    if _code(error) == "ConditionalRequestConflict":
        return "another one writes it at the same time"
    status = _status(error)
    if status in TRANSIENT_STATUSES:
        return f"the server answered {status}"
    # Any other status is an answer, which the next try would get too.
    if status is not None:
        return None
    for cause in causes(error):
        if isinstance(cause, ShortReadError):
            return "an answer broke off"
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        if isinstance(cause, ConnectionError):
            return "the connection failed"
        if isinstance(cause, OSError) and cause.errno in TRANSIENT_ERRNOS:
            return "the disk or server is busy"
    return None


def exists_already(error: BaseException) -> bool:
    """Return whether a file was not created because it exists."""
    if _status(error) == 412:
        return True
    return any(isinstance(cause, FileExistsError) for cause in causes(error))


def lacks_conditional_writes(error: BaseException) -> bool:
    """Return whether a store, or an old client, does not support conditional writes."""
    if _status(error) == 501:
        return True
    return any(type(cause).__name__ == "ParamValidationError" for cause in causes(error))


def failure_reason(error: BaseException) -> str:
    """Return the reason of a failure and its cure."""
    # The most specific sign first.
    names = _class_names(error)
    code = _code(error)
    if names & NO_CREDENTIALS:
        return f"no credentials were found; {CREDENTIALS_CURE}"
    lost = [str(cause) for cause in causes(error) if isinstance(cause, FileNotFoundError)]
    if code == "NoSuchBucket" or any(map(GS_OBJECTS.search, lost)):
        return "there is no such bucket; make it first, or correct its name"
    if code in REFUSED_KEY:
        return f"the server does not know these credentials ({code}); {CREDENTIALS_CURE}"
    if "PermissionError" in names or _status(error) in (401, 403):
        return f"access is denied; {ACCESS_CURE}"
    if "FileNotFoundError" in names or _status(error) == 404:
        return "is not there; correct the address"
    if "IsADirectoryError" in names:
        return "is a folder; give a file"
    detail = f" {code or _status(error) or ''}".rstrip()
    return (
        f"cannot be reached ({type(error).__name__}{detail}); correct the address or its settings"
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    earlier_ids: set[int] = set()
    # A chain of causes may be a circle.
    cause: BaseException | None = error
    while cause is not None and id(cause) not in earlier_ids:
        earlier_ids.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _class_names(error: BaseException) -> set[str]:
    """Return the names of all classes of an error and its causes."""
    return {kind.__name__ for cause in causes(error) for kind in type(cause).__mro__}


def _status(error: BaseException) -> int | None:
    """Return the HTTP status in an error of botocore, aiohttp or gcsfs."""
    for cause in causes(error):
        response = getattr(cause, "response", None)
        metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
        if isinstance(cause, OSError) and str(cause).startswith("Forbidden: "):
            return 403
        # aiohttp's errors have both, and warn of the older name. Those of gcsfs have only `code`,
        # a number or a word.
        own = cause.status if hasattr(cause, "status") else getattr(cause, "code", None)
        for status in (metadata.get("HTTPStatusCode"), own):
            if isinstance(status, int) and 100 <= status < 600 and status != 200:
                return status
            if isinstance(status, str) and status.isdigit() and len(status) == 3:
                return int(status)
    return None


def _code(error: BaseException) -> str:
    """Return the error code of an S3 server, "" without one."""
    for cause in causes(error):
        response = getattr(cause, "response", None)
        if not isinstance(response, dict):
            continue
        code = str(response.get("Error", {}).get("Code", ""))
        if code and not code.isdigit():
            return code
    return ""
