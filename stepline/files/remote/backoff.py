"""Trying again what may succeed the next time: one loop, pauses that double, HTTP statuses that pass.

def pause_after(error: Exception, tries: int) -> float:
    if tries == 3 or not isinstance(error, TimeoutError):
        raise error
    return doubled_pause(0.5, tries)

page = retry(fetch_page, pause_after)
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MAX_PAUSE_SECONDS = 30.0  # between two tries, where a user of the loop sets no other
# HTTP statuses that another try may cure: timeouts, too many requests, a server in trouble
TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


def retry(action: Callable[[], T], pause_after: Callable[[Exception, int], float]) -> T:
    """Return what `action` returns, called again after each failure for which `pause_after` has a
    pause.

    pause_after: gets the exception and how many tries there were, the failed one included. It
    returns the seconds to wait before the next try, or raises what the caller shall see.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - pause_after raises what is not tried again
            seconds = pause_after(error, tries)
        time.sleep(seconds)


def doubled_pause(first: float, tries: int, most: float = MAX_PAUSE_SECONDS) -> float:
    """Return the seconds to wait after `tries`: `first`, doubled each time, `most` at most."""
    return min(most, first * 2.0 ** (tries - 1))
