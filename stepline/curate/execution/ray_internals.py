"""What the Ray engine changes inside Ray: all of it is here, since Ray promises none of it.

Tested with the release below, which the extra `ray` of pyproject.toml pins. A release that lacks
one of these parts is refused in one line that names it.
"""

import contextlib
import logging
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

from stepline.errors import ModelError

log = logging.getLogger(__name__)

TESTED_RELEASE = "2.60"  # of Ray; raise it here and in pyproject.toml once the tests pass
# prints notices of lost processes on stdout, among the data
PRINT_NOTICE = "ray._private.worker.print_to_stdstream"
# Each starts a process that costs seconds and does nothing on one machine. The dashboard asks the
# metadata servers of three clouds, also where it is to report nothing. include_dashboard=False
# leaves out its pages alone.
START_DASHBOARD = "ray._private.services.start_api_server"
START_LOG_MONITOR = "ray._private.node.Node.start_log_monitor"
START_AUTOSCALER = "ray._private.node.Node.start_monitor"
CHANGED_PARTS = (PRINT_NOTICE, START_DASHBOARD, START_LOG_MONITOR, START_AUTOSCALER)


def check_internals(release: str) -> None:
    """Raise ModelError, with the names, where the installed Ray lacks a part that is changed here.

    release: of the installed Ray.
    """
    # All are checked before one is changed.
    missing = []
    for part in CHANGED_PARTS:
        try:
            pkgutil.resolve_name(part)
        except (ImportError, AttributeError):
            missing.append(part)
    if missing:
        what = f"Ray {release} has no {', '.join(missing)}"
        raise ModelError(f"{what}; pip install 'ray=={TESTED_RELEASE}.*'")


@contextlib.contextmanager
def notices_in_log() -> Iterator[None]:
    """Send Ray's notices of lost processes to the log."""

    def log_notice(notice: dict[str, Any], **_: Any) -> None:
        log.info("Ray: %s", " ".join(notice["lines"]))

    with _replaced(PRINT_NOTICE, log_notice):
        yield


@contextlib.contextmanager
def without_watchers() -> Iterator[None]:
    """Keep Ray from starting a dashboard, log monitor and autoscaler. It goes on as where they
    cannot be started."""

    def start_nothing(*_: Any, **__: Any) -> None:
        return None

    def start_no_server(*_: Any, **__: Any) -> tuple[None, None]:
        return None, None  # its address, its process

    with (
        _replaced(START_DASHBOARD, start_no_server),
        _replaced(START_LOG_MONITOR, start_nothing),
        _replaced(START_AUTOSCALER, start_nothing),
    ):
        yield


@contextlib.contextmanager
def _replaced(part: str, function: Callable[..., Any]) -> Iterator[None]:
    """Put a function in the place of a part of Ray."""
    # The usual part comes back whatever happens.
    owner_name, _, name = part.rpartition(".")
    owner = pkgutil.resolve_name(owner_name)
    usual = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, usual)
