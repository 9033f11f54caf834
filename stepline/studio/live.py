"""Live runs beside a library: the logs that `stepline live --out FOLDER` keeps there, and each line
as it comes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from stepline.live.run import EVENTS_SUFFIX
from stepline.studio.events import HEARTBEAT, LOOK

MOST = 2**20  # bytes of a log that are read at once


def live_logs(folder: Path) -> list[dict[str, Any]]:
    """Return the live runs whose logs lie in a folder, the newest first: name, and whether it has
    finished."""
    logs = [path for path in folder.glob(f"*{EVENTS_SUFFIX}") if path.is_file() and not path.is_symlink()]
    logs.sort(key=lambda path: (-path.stat().st_mtime, path.name))
    return [{"name": path.name.removesuffix(EVENTS_SUFFIX), "finished": _finished(path)} for path in logs]


def live_log(folder: Path, name: str) -> Path:
    """Return the log of a run. Raises LookupError for a name that `live_logs` does not tell."""
    if name not in (each["name"] for each in live_logs(folder)):
        raise LookupError(name)
    return folder / f"{name}{EVENTS_SUFFIX}"


async def follow_log(path: Path, stops: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield the events of a run from its first on, as text/event-stream has them, until the server
    stops.

    Where the run is begun anew, "anew" is told, and its events from the first on.
    """
    yield "retry: 2000\n\n"
    offset, silent, begun = 0, 0.0, b""
    while not stops():
        first, lines = await run_in_threadpool(_read, path, offset)
        if begun and first and first != begun:
            yield "event: anew\ndata: {}\n\n"
            offset, begun = 0, b""
            continue
        begun = first or begun
        if lines:
            offset, silent = offset + len(lines), 0.0
            yield "".join(
                f"data: {line}\n\n" for line in lines.decode("utf-8", "replace").split("\n") if line
            )
            continue
        silent += LOOK
        if silent >= HEARTBEAT:
            silent = 0.0
            yield ":\n\n"
        await asyncio.sleep(LOOK)


def _read(path: Path, offset: int) -> tuple[bytes, bytes]:
    """Return the first line of a log, which tells one run from another, and the whole lines from a
    byte on."""
    try:
        with path.open("rb") as file:
            first = file.readline(4096)
            file.seek(offset)
            data = file.read(MOST)
            return first if first.endswith(b"\n") else b"", data[: data.rfind(b"\n") + 1]
    except FileNotFoundError:
        return b"", b""


def _finished(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return b'"event": "finished"' in file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
