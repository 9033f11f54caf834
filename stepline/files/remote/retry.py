"""Retries with exponential backoff, and one-line messages for requests that failed.

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
# HTTP statuses after which a retry may succeed: timeouts, too many requests, a server in trouble
TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
# Classes of errors for a failed connection, by name, since their packages need not be installed.
CONNECTION_ERROR_NAMES = frozenset(
    {
        "HTTPClientError",
        "ClientConnectionError",
        "ClientPayloadError",
        "IncompleteRead",
        "ResponseParserError",
        # gcsfs's 502, and a failed renewal of Google's credentials.
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
REFUSED_KEY_CODES = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
)
# The path that gcsfs does not find where there is no such bucket.
GS_OBJECTS_PATH = re.compile(r"(?:^|/storage/v1/)b/[^/]+/o$")
NO_CREDENTIALS_NAMES = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "NoAuthTokenError", "DefaultCredentialsError"}
)


class ShortReadError(OSError):
    """A response with fewer or more bytes than requested."""


class OutOfReachError(StoreError):
    """A server that failed to answer, or was too busy, on every try."""


def retry(action: Callable[[], T], pause_after: Callable[[Exception, int], float]) -> T:
    """Return the result of `action`, called again after each failure that `pause_after` allows.

    Args:
        action: the call.
        pause_after: (error, number of tries so far) -> seconds to wait before the next try. It
            raises the final error.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - pause_after raises final errors
            seconds = pause_after(error, tries)
        time.sleep(seconds)


def exponential_backoff(first: float, tries: int, most: float = MAX_PAUSE_SECONDS) -> float:
    """Return the pause in seconds after a failed try: `first`, doubled per further try.

    Args:
        first: seconds after the first try.
        tries: number of tries so far.
        most: maximal pause in seconds.
    """
    return min(most, first * 2.0 ** (tries - 1))


def retry_request(action: Callable[[], T], name: str, settings: RemoteSettings) -> T:
    """Return the result of `action`, with transient failures retried by exponential backoff.

    Args:
        action: the request.
        name: of the file in messages, without secrets.
        settings: number of tries, and pauses.

    Raises StoreError for a permanent failure immediately, OutOfReachError for a transient one after
    the last try. The message is one line, without text of the server or its client.
    """

    def pause_after(error: Exception, tries: int) -> float:
        # Our own errors, and a lack of memory, are permanent.
        if isinstance(error, (StoreError, MemoryError)):
            raise error
        for cause in causes(error):
            if isinstance(cause, StoreError):  # a limit of ours, wrapped by a client
                raise StoreError(str(cause)) from error
        reason = retry_reason(error)
        if reason is None:
            raise StoreError(f"{name}: {failure_reason(error)}") from error
        if tries == settings.attempts:
            raise OutOfReachError(
                f"{name}: {reason}, {tries} times in a row; "
                "see whether its server is up, then run again: what is done stays done"
            ) from error
        # At random, so that many clients do not retry together.
        pause = exponential_backoff(settings.pause, tries) * random.uniform(0.5, 1.0)
        log.info(
            "%s: %s; try %d of %d in %.1f s", name, reason, tries + 1, settings.attempts, pause
        )
        return pause

    return retry(action, pause_after)


def retry_reason(error: BaseException) -> str | None:
    """Return why a retry may succeed, or None for a permanent failure."""
    if _class_names(error) & CONNECTION_ERROR_NAMES:
        return "the connection failed"
    if _s3_error_code(error) == "ConditionalRequestConflict":
        return "another one writes it at the same time"
    status = _http_status(error)
    if status in TRANSIENT_STATUSES:
        return f"the server answered {status}"
    # Any other status is an answer, which a retry would get too.
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
    """Return whether a file could not be created because it exists."""
    if _http_status(error) == 412:
        return True
    return any(isinstance(cause, FileExistsError) for cause in causes(error))


def lacks_conditional_writes(error: BaseException) -> bool:
    """Return whether a store, or an old client, does not support conditional writes."""
    if _http_status(error) == 501:
        return True
    return any(type(cause).__name__ == "ParamValidationError" for cause in causes(error))


def failure_reason(error: BaseException) -> str:
    """Return the reason of a permanent failure, with the cure."""
    # The most specific sign first.
    names = _class_names(error)
    code = _s3_error_code(error)
    status = _http_status(error)
    if names & NO_CREDENTIALS_NAMES:
        return f"no credentials were found; {CREDENTIALS_CURE}"
    missing_paths = [str(cause) for cause in causes(error) if isinstance(cause, FileNotFoundError)]
    if code == "NoSuchBucket" or any(map(GS_OBJECTS_PATH.search, missing_paths)):
        return "there is no such bucket; make it first, or correct its name"
    if code in REFUSED_KEY_CODES:
        return f"the server does not know these credentials ({code}); {CREDENTIALS_CURE}"
    if "PermissionError" in names or status in (401, 403):
        return f"access is denied; {ACCESS_CURE}"
    if "FileNotFoundError" in names or status == 404:
        return "is not there; correct the address"
    if "IsADirectoryError" in names:
        return "is a folder; give a file"
    detail = f" {code or status or ''}".rstrip()
    return (
        f"cannot be reached ({type(error).__name__}{detail}); correct the address or its settings"
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then the errors that caused it."""
    earlier_ids = set()
    # The causes may form a circle.
    cause: BaseException | None = error
    while cause is not None and id(cause) not in earlier_ids:
        earlier_ids.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _class_names(error: BaseException) -> set[str]:
    """Return the names of all classes and base classes of an error and its causes."""
    return {kind.__name__ for cause in causes(error) for kind in type(cause).__mro__}


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status in an error of botocore, aiohttp or gcsfs."""
    for cause in causes(error):
        response = getattr(cause, "response", None)
        metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
        if isinstance(cause, OSError) and str(cause).startswith("Forbidden: "):
            return 403
        # aiohttp's errors have both attributes, and warn of `code`. Those of gcsfs have only `code`,
        # a number or a word.
        attribute = cause.status if hasattr(cause, "status") else getattr(cause, "code", None)
        for status in (metadata.get("HTTPStatusCode"), attribute):
            if isinstance(status, int) and 100 <= status < 600 and status != 200:
                return status
            if isinstance(status, str) and status.isdigit() and len(status) == 3:
                return int(status)
    return None


def _s3_error_code(error: BaseException) -> str:
    """Return the error code of an S3 server, such as "NoSuchBucket", "" without one."""
    for cause in causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            if code and not code.isdigit():
                return code
    return ""
