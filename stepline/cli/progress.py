"""Progress of long work on stderr: one line that a terminal redraws, else a line now and then."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from stepline.cli.errors import draw_status, is_quiet, print_message

if TYPE_CHECKING:
    from stepline.curate.driver import PhaseProgress
    from stepline.models.training.loop import Progress as TrainingProgress
    from stepline.networks.weights import Report
    from stepline.progress import Progress

LINE_SECONDS = 30.0  # between two lines where stderr is not a terminal
REDRAW_SECONDS = 0.1  # between two texts of the line that a terminal redraws
GIB_BYTES = 2**30  # bytes
MEGABYTE_BYTES = 1e6


def _is_terminal() -> bool:
    return sys.stderr.isatty() and not is_quiet()


class ProgressLine:
    """The state of some work in one line.

    A terminal redraws the line. Elsewhere a line is printed every LINE_SECONDS.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._last = self.began
        self._is_terminal = _is_terminal()

    def __enter__(self) -> Self:
        """Return this line."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line from the terminal."""
        if self._is_terminal:
            draw_status("")

    def show(self, text: str, *, always: bool = False) -> None:
        """Show a text if it is time for one.

        Args:
            text: the state of the work.
            always: show it now.
        """
        now = time.monotonic()
        pause = REDRAW_SECONDS if self._is_terminal else LINE_SECONDS
        if always or now >= self._last + pause:
            self._last = now
            if self._is_terminal:
                draw_status(text)
            else:
                print_message(text)


@contextmanager
def progress_bars() -> Iterator["Progress"]:
    """Yield a callback that shows the progress of the stages of finding steps."""
    with ProgressLine() as line:
        stages: dict[str, str] = {}  # sound and picture are read at the same time
        began: tuple[float, float] | None = None  # of writing: the clock, and the second reached

        def report(stage: str, second: float, duration: float) -> None:
            nonlocal began
            total = f" of {duration:.0f}" if duration else ""
            stages[stage] = f"{stage}: {second:.0f}{total} s"
            if stage == "writing":  # by a language model, which can take minutes
                now = time.monotonic()
                began = began or (now, second)
                if second > began[1]:
                    seconds_left = (now - began[0]) / (second - began[1]) * (duration - second)
                    stages[stage] += f", {rough_time(seconds_left)} left"
            line.show(", ".join(stages.values()))

        yield report


class FolderProgress(ProgressLine):
    """Counts the finished videos of a folder, and shows the counts.

    The time left is by the bytes of the files, since a long video takes longer than a short one.

    Args:
        labels: the videos. If one is no file, as a link, all count as equally long.

    Attributes:
        finished: number of all videos that have ended.
        failed: number of videos that ended with an error.
        earlier: number of videos whose result an earlier run had made.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self.finished = 0
        self.failed = 0
        self.earlier = 0
        self._total = len(labels)
        are_files = all(map(os.path.isfile, labels))
        self._bytes_left = {label: os.path.getsize(label) if are_files else 1 for label in labels}
        self._bytes_worked = 0

    def add(self, label: str, *, failed: bool, earlier: bool) -> None:
        """Count a video that has ended."""
        self.finished += 1
        self.failed += failed
        self.earlier += earlier
        size = self._bytes_left.pop(label, 0)
        # Videos of an earlier run took no time, so they say nothing of the time left.
        self._bytes_worked += 0 if earlier else size

    def show_counts(self, *stage: Any) -> None:
        """Show the counts and the time left.

        stage: progress of the current video, where one is read at a time: the stage's name, the
            second reached and the duration in seconds.
        """
        text = self.text(time.monotonic() - self.began)
        if stage:
            name, second, duration = stage
            text += f"; {name}: {second:.0f} of {duration:.0f} s"
        self.show(text)

    def text(self, seconds: float) -> str:
        """Return the counts and the time left in words, after some seconds of work."""
        parts = [f"{self.finished:,} of {self._total:,}"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self._bytes_worked and self.finished < self._total:
            seconds_left = seconds / self._bytes_worked * sum(self._bytes_left.values())
            parts.append(f"{rough_time(seconds_left)} left")
        return ", ".join(parts)


def rough_time(seconds: float) -> str:
    """Return a time in its largest unit that gives two or more: 3 h, 90 min, 40 s."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.0f} h"
    if seconds >= 2 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s"


class TrainingProgressLine(ProgressLine):
    """Shows the progress of a training in one line.

    Attributes:
        last: progress at the last optimiser step. None if an earlier run had finished the training.
    """

    last: "TrainingProgress | None" = None

    def __call__(self, progress: "TrainingProgress") -> None:
        """Show a step. Of several processes only the first shows it."""
        from stepline.models.training.distributed import is_first, peak_memory

        self.last = progress
        if not is_first():
            return
        # A run that goes on began with some steps, which cost it nothing now.
        seconds_per_step = progress.seconds / max(progress.steps_since_start, 1)
        parts = [f"loss {progress.loss:.3f}"]
        if progress.score is not None:
            parts.append(f"held out {progress.score:.3f}")
        parts.append(f"{seconds_per_step * (progress.step_count - progress.step):.0f} s left")
        parts.append(f"at most {peak_memory() / GIB_BYTES:.2f} GiB")
        self.show(
            f"step {progress.step} of {progress.step_count}: {', '.join(parts)}",
            always=progress.score is not None or progress.step >= progress.step_count,
        )


@contextmanager
def curation_progress() -> Iterator[Callable[["PhaseProgress"], None]]:
    """Yield a callback that shows the progress of a curation run."""
    with ProgressLine() as line:

        def report(progress: "PhaseProgress") -> None:
            parts = [f"{progress.finished_earlier} of an earlier run"]
            if progress.rate:
                parts = [f"{progress.rate:,.0f} an hour"]
            if progress.seconds_left:
                parts.append(f"{progress.seconds_left / 60:.0f} min left")
            if progress.failures_by_kind["left out"]:
                parts.append(f"{progress.failures_by_kind['left out']} left out")
            if progress.failed:
                parts.append(f"{progress.failed} failed")
            text = f"{progress.finished} of {progress.total} videos: {', '.join(parts)}"
            line.show(text, always=progress.finished >= progress.total)

        yield report


@contextmanager
def download_progress() -> "Iterator[Report | None]":
    """Yield a callback that shows the downloaded bytes. None if stderr is not a terminal."""
    if not _is_terminal():
        yield None
        return
    with ProgressLine() as line:
        downloaded: dict[str, int] = {}  # package -> bytes. Several are fetched at a time

        def report(package: str, reached: int) -> None:
            downloaded[package] = max(reached, downloaded.get(package, 0))
            line.show(f"{package}: {sum(downloaded.values()) / MEGABYTE_BYTES:.0f} MB")

        yield report
