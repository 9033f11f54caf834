"""What ends the fetching of a link, as one line that names the link and says the cure.

    with as_link_error(url):
        downloader.extract_info(url)

urllib and yt-dlp raise errors of many kinds, which hold their causes in fields of their own.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stepline.errors import MediaError, SteplineError
from stepline.files.remote.addresses import display_url

MAX_REASON_CHARS = 160  # of what urllib or yt-dlp says
CAUSE_FIELDS = ("__cause__", "__context__", "cause", "reason")  # of an error, with what made it


@contextmanager
def as_link_error(url: str) -> Iterator[None]:
    """Make of whatever ends the fetching of a link one MediaError that names it and says the
    cure."""
    name = display_url(url)
    try:
        yield
    # yt-dlp raises what its thousand extractors raise. Each becomes one line below.
    except Exception as error:
        causes = list(_causes(error))
        own_reasons = [str(cause) for cause in causes if isinstance(cause, SteplineError)]
        reason = own_reasons[0] if own_reasons else ""
        reason = reason or _reason(error, causes)
        for cause in causes:  # the answers that they hold
            close = getattr(cause, "close", None)
            if close is not None:
                close()
        raise MediaError(f"{name}: {reason}") from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was made of, also where yt-dlp or urllib keep that in a field."""
    waiting = [error]
    visited_ids = set()
    while waiting:
        cause = waiting.pop()
        if id(cause) in visited_ids:
            continue
        visited_ids.add(id(cause))
        yield cause
        values = [getattr(cause, name, None) for name in CAUSE_FIELDS]
        values += getattr(cause, "unexpected_errors", ())
        exc_info = getattr(cause, "exc_info", None) or (None, None)
        values += exc_info[1:2]
        waiting += [value for value in values if isinstance(value, BaseException)]


def _reason(error: Exception, causes: Sequence[BaseException]) -> str:
    """Return what went wrong and what to do, from what urllib or yt-dlp raised."""
    statuses = [getattr(cause, "status", None) for cause in causes]
    whole_statuses = [status for status in statuses if isinstance(status, int)]
    status = whole_statuses[0] if whole_statuses else None
    if status in (401, 403):
        return "access is denied; download it as its owner allows, and give the file"
    if status in (404, 410):
        return "is not there; correct the address"
    if status is not None and status >= 400:
        return f"the server answered {status}; try again later: what has come is kept"
    if "Unsupported URL" in str(error):
        return "no video is found on this page; give the address of the video itself"
    text = str(getattr(error, "reason", None) or error) or type(error).__name__
    text, _, _ = text.partition("; please report")
    text = re.sub(r"^ERROR: (\[[^]]*\] )?", "", text)
    line = " ".join(text.split())
    cure = "see whether its server is up, then run again: what has come is kept"
    return f"cannot be fetched ({line[:MAX_REASON_CHARS]}); {cure}"
