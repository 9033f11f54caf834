"""The live runs of a library: the logs that `stepline live --out FOLDER` writes there, followed
line by line."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from stepline.live.run import EVENTS_SUFFIX
from stepline.studio.events import HEARTBEAT_EVENT, HEARTBEAT_SECONDS, POLL_SECONDS

MAX_READ_BYTES = 2**20  # of a log at a time
MAX_LINE_BYTES = 4096  # of a log's first and last line


def live_logs(folder: Path) -> list[dict[str, Any]]:
    """Return the live runs with a log in the folder, the newest first: name, and whether it has
    finished."""
    logs = [
        path
        for path in folder.glob(f"*{EVENTS_SUFFIX}")
        if path.is_file() and not path.is_symlink()
    ]
    logs.sort(key=lambda path: (-path.stat().st_mtime, path.name))
    return [
        {"name": path.name.removesuffix(EVENTS_SUFFIX), "finished": _finished(path)}
        for path in logs
    ]


def live_log(folder: Path, name: str) -> Path:
    """Return the log of a run. Raises LookupError for a name that `live_logs` does not list."""
    if name not in (run["name"] for run in live_logs(folder)):
        raise LookupError(name)
    return folder / f"{name}{EVENTS_SUFFIX}"


async def follow_log(path: Path, is_stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield the events of a run from the first one, as text/event-stream, until the server stops.

    Where the run begins again, the event "anew" comes first, then its events from the first one.
    """
    yield "retry: 2000\n\n"
    offset = 0
    silence = 0.0
    run = b""  # the first line, which tells one run from another
    while not is_stopping():
        first, lines = await run_in_threadpool(_read, path, offset)
        if run and first and first != run:
            yield "event: anew\ndata: {}\n\n"
            offset = 0
            run = b""
            continue
        run = first or run
        if lines:
            offset += len(lines)
            silence = 0.0
            text = lines.decode("utf-8", "replace")
            yield "".join(f"data: {line}\n\n" for line in text.split("\n") if line)
            continue
        silence += POLL_SECONDS
        if silence >= HEARTBEAT_SECONDS:
            silence = 0.0
            yield HEARTBEAT_EVENT
        await asyncio.sleep(POLL_SECONDS)


def _read(path: Path, offset: int) -> tuple[bytes, bytes]:
    """Return the first line of a log, and the whole lines from a byte on."""
    try:
        with path.open("rb") as file:
            first = file.readline(MAX_LINE_BYTES)
            file.seek(offset)
            data = file.read(MAX_READ_BYTES)
    except FileNotFoundError:
        return b"", b""
    return first if first.endswith(b"\n") else b"", data[: data.rfind(b"\n") + 1]


def _finished(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_LINE_BYTES))
        whole_lines = file.read().rpartition(b"\n")[0]
    return b'"event": "finished"' in whole_lines.rpartition(b"\n")[2]
