"""The videos that a command is given: opened, with a bar while a link is fetched, or awaited in folders."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepline.cli.errors import print_message
from stepline.cli.progress import download_bar
from stepline.errors import SettingsError

if TYPE_CHECKING:
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.pipeline.sources import InputKind, VideoArgument, VideoSource
    from stepline.records import Span


@contextlib.contextmanager
def open_video(
    source: "VideoSource", out: Path, settings: "StepsSettings", **options: Any
) -> "Iterator[Request]":
    """Yield what `source.open` does. Of a link, print what is fetched, with a bar on a terminal."""
    # Only a link takes a while before its work begins.
    if source.kind != "link":
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
    """Yield what `open_only_source` does. A link is fetched with a bar on a terminal."""
    from stepline.pipeline.sources import open_only_source

    with contextlib.ExitStack() as stack:
        with download_bar(None) if isinstance(video, str) else contextlib.nullcontext() as report:
            request = stack.enter_context(
                open_only_source(video, settings, out, captions=captions, part=part, report=report)
            )
        yield request


SCAN_SECONDS = 2.0  # s between two looks into the folders that are watched
# s for which a video must not change until it counts as whole. Copies over a network pause
STILL_SECONDS = 10.0


def arriving_videos(folders: "Sequence[VideoArgument]") -> "Iterator[dict[Path, InputKind]]":
    """Yield, without end, the videos and captions alone that have come or changed since, as
    `find_inputs` does. Each comes once it has been still for some seconds.

    Raises SettingsError where a path is not a folder.
    """
    from stepline.pipeline.sources import find_inputs

    for folder in folders:
        if not Path(folder).is_dir():
            raise SettingsError(
                f"--watch: {folder} is not a folder; name the folders in which videos arrive"
            )

    # files that have not changed since the last look are whole
    looks: dict[Path, tuple[FileState, int]] = {}  # in which a file has been as it is
    yielded: dict[Path, FileState] = {}
    print_message("watching; Ctrl-C ends it")
    while True:
        # Each look sees all files again, so that those that are gone are forgotten.
        before, looks = looks, {}
        ready = {}
        for path, kind in find_inputs(map(Path, folders), needed=False, captions=True).items():
            with contextlib.suppress(FileNotFoundError):  # it has gone between the two
                state = path.stat().st_size, path.stat().st_mtime_ns
                last_state, count = before.get(path, (state, 0))
                count = count + 1 if state == last_state else 1
                looks[path] = state, count
                if count < 2 or state == yielded.get(path):
                    continue
                # Captions are copied in one go, while the copy of a video may pause.
                is_still = (count - 1) * SCAN_SECONDS >= STILL_SECONDS
                if is_still or kind == "captions":
                    ready[path] = kind
                    yielded[path] = state
        if ready:
            yield ready
        time.sleep(SCAN_SECONDS)


FileState: TypeAlias = tuple[int, int]  # bytes, and when it changed last, in ns
