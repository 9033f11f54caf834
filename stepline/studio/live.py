"""The event logs of live runs in a library, as `stepline live --out FOLDER` writes them there."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from stepline.errors import NotFoundError
from stepline.files.locks import read_owner
from stepline.live.run import EVENTS_SUFFIX, RECORDING_SUFFIX
from stepline.pipeline.batch import video_lock
from stepline.records import FrozenModel
from stepline.studio.events import HEARTBEAT_EVENT, HEARTBEAT_SECONDS, POLL_SECONDS

log = logging.getLogger(__name__)

MAX_READ_BYTES = 2**20  # of a log at a time
MAX_LINE_BYTES = 4096  # of a log's first and last line


class LiveRun(FrozenModel):
    """A live run with a log in the library.

    Attributes:
        name: name of the run.
        finished: whether it has finished.
        running: whether a process still follows the source. A run that is neither was interrupted.
    """

    name: str
    finished: bool
    running: bool


def list_live_logs(folder: Path) -> list[LiveRun]:
    """Return the live runs with a log in the folder, the newest first."""
    # A link could lead out of the library.
    logs = [
        path
        for path in folder.glob(f"*{EVENTS_SUFFIX}")
        if path.is_file() and not path.is_symlink()
    ]
    logs.sort(key=lambda path: (-path.stat().st_mtime, path.name))
    runs = []
    for path in logs:
        name = path.name.removesuffix(EVENTS_SUFFIX)
        owner = read_owner(video_lock(f"{name}{RECORDING_SUFFIX}", folder))
        finished = _is_finished(path)
        runs.append(LiveRun(name=name, finished=finished, running=owner is not None))
    return runs


def find_live_log(folder: Path, name: str) -> Path:
    """Return the log of a run. Raises NotFoundError for an unknown name."""
    if name not in (run.name for run in list_live_logs(folder)):
        raise NotFoundError("no such live run")
    return folder / f"{name}{EVENTS_SUFFIX}"


@dataclass(frozen=True)
class LogPart:
    """A part of the log file of a live run.

    Attributes:
        first: the first line of the file, which identifies the run.
        lines: whole lines that were read.
        end: position in the file after these lines, in bytes.
        in_long_line: whether `end` is inside a line of more than MAX_READ_BYTES, which is skipped.
    """

    first: bytes = b""
    lines: bytes = b""
    end: int = 0
    in_long_line: bool = False


async def follow_log(path: Path, is_stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield the events of a run from the first one, as text/event-stream, until the server stops.

    If the run begins again, the event "anew" comes first, then its events from the first one.
    """
    yield "retry: 2000\n\n"
    last = LogPart()
    seconds_since_event = 0.0
    run = b""  # the first line, which distinguishes one run from another
    while not is_stopping():
        # The log is read in a thread, since its disk may be slow.
        part = await run_in_threadpool(_read_log_part, path, last)
        if run and part.first and part.first != run:
            yield "event: anew\ndata: {}\n\n"
            last = LogPart()
            run = b""
            continue
        run = part.first or run
        # There is more of the log.
        if part.end > last.end:
            if part.in_long_line and not last.in_long_line:
                log.warning("%s: a line of more than %d bytes is left out", path, MAX_READ_BYTES)
            last = part
            seconds_since_event = 0.0
            # A carriage return would end a field of the stream.
            text = part.lines.decode("utf-8", "replace").replace("\r", " ")
            events = [f"data: {line}\n\n" for line in text.split("\n") if line]
            if events:
                yield "".join(events)
            continue
        # Nothing new: a comment now and then keeps the connection open.
        seconds_since_event += POLL_SECONDS
        if seconds_since_event >= HEARTBEAT_SECONDS:
            seconds_since_event = 0.0
            yield HEARTBEAT_EVENT
        await asyncio.sleep(POLL_SECONDS)


def _read_log_part(path: Path, last: LogPart) -> LogPart:
    """Return the first line of a log, and the whole lines behind the last part."""
    try:
        with path.open("rb") as file:
            first = file.readline(MAX_LINE_BYTES)
            file.seek(last.end)
            data = file.read(MAX_READ_BYTES)
    except FileNotFoundError:
        return replace(last, first=b"", lines=b"")
    # A first line that is still being written does not identify a run.
    if not first.endswith(b"\n"):
        first = b""
    # The rest of a line that is too long is passed over.
    start = 0
    if last.in_long_line:
        start = data.find(b"\n") + 1
    behind_lines = data.rfind(b"\n") + 1
    if not behind_lines and (last.in_long_line or len(data) == MAX_READ_BYTES):
        return LogPart(first, b"", last.end + len(data), in_long_line=True)
    return LogPart(first, data[start:behind_lines], last.end + behind_lines)


def _is_finished(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_LINE_BYTES))
        whole_lines = file.read().rpartition(b"\n")[0]
    return b'"event": "finished"' in whole_lines.rpartition(b"\n")[2]
