"""The videos that a command is given: opened, with a bar while a link is fetched, or awaited in folders."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepline.cli.errors import print_message
from stepline.cli.progress import download_bar
from stepline.errors import SettingsError

if TYPE_CHECKING:
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.pipeline.sources import VideoArgument, VideoSource
    from stepline.records import Span


@contextlib.contextmanager
def open_video(
    source: "VideoSource", out: Path, settings: "StepsSettings", **options: Any
) -> "Iterator[Request]":
    """Yield what `source.open` does; of a link, print what is fetched, with a bar on a
    terminal."""
    if not source.is_link:
        with source.open(out, settings, **options) as request:
            yield request
        return
    print_message(f"fetching {source.label}")
    with contextlib.ExitStack() as stack:
        with download_bar(None) as report:
            opened = source.open(out, settings, report=report, **options)
            request = stack.enter_context(opened)
        yield request


@contextlib.contextmanager
def open_only_video(
    video: "VideoArgument",
    settings: "StepsSettings",
    out: Path | None = None,
    captions: Path | None = None,
    part: "Span | None" = None,
) -> "Iterator[Request]":
    """Yield what `open_only_source` does; of a link, with a bar on a terminal while it is
    fetched."""
    from stepline.pipeline.sources import open_only_source

    with contextlib.ExitStack() as stack:
        with download_bar(None) if isinstance(video, str) else contextlib.nullcontext() as report:
            request = stack.enter_context(
                open_only_source(video, settings, out, captions=captions, part=part, report=report)
            )
        yield request


SCAN_SECONDS = 2.0  # s between two looks into the folders that are watched


def arriving_videos(folders: "Sequence[VideoArgument]") -> Iterator[list[Path]]:
    """Yield, for ever, the videos and captions alone that have come or changed since, once their size has stood still
    between two looks.

    Raises SettingsError where a path is no folder.
    """
    from stepline.pipeline.sources import find_videos

    for folder in folders:
        if not Path(folder).is_dir():
            raise SettingsError(
                f"--watch: {folder} is no folder; name the folders in which videos arrive"
            )
    last_states: dict[Path, tuple[int, int]] = {}
    yielded: dict[Path, tuple[int, int]] = {}
    print_message("watching; Ctrl-C ends it")
    while True:
        now: dict[Path, tuple[int, int]] = {}
        for path in find_videos(map(Path, folders), needed=False, captions=True):
            with contextlib.suppress(FileNotFoundError):  # it has gone between the two
                now[path] = (path.stat().st_size, path.stat().st_mtime_ns)
        ready = [
            path
            for path, state in now.items()
            if state == last_states.get(path) and state != yielded.get(path)
        ]
        if ready:
            yielded |= {path: now[path] for path in ready}
            yield ready
        last_states = now
        time.sleep(SCAN_SECONDS)
