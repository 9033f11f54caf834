"""Progress of long work on stderr: one line that a terminal redraws, else a line now and then."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stepline.cli.errors import draw_status, is_quiet, print_message
from stepline.networks.weights import Report

if TYPE_CHECKING:
    from stepline.curate.driver import PhaseProgress
    from stepline.models.training.loop import Progress as TrainingProgress
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
    """Shows how much of the videos of a folder is done, in minutes of film, and the time left.

    The time left is by the film of the videos that have ended. It never rises: a new estimate
    counts only where it is lower.

    Args:
        labels: names of the videos, in the order in which they begin.
        durations: their durations in seconds. The mean counts for a None.
        at_once: number of videos that are processed at the same time.

    Attributes:
        finished: number of all videos that have ended.
        failed: number of videos that ended with an error.
        earlier: number of videos whose result an earlier run had made.
    """

    def __init__(
        self, labels: Sequence[str], durations: Sequence[float | None], at_once: int = 1
    ) -> None:
        super().__init__()
        self.finished = 0
        self.failed = 0
        self.earlier = 0
        known = [duration for duration in durations if duration]
        self._has_durations = bool(known)
        mean = sum(known) / len(known) if known else 1.0
        self._total = len(labels)
        self._left = [
            (label, duration or mean) for label, duration in zip(labels, durations, strict=True)
        ]
        self._film = sum(duration for _, duration in self._left)
        self._worked = 0.0  # s of film of ended videos, without those of an earlier run
        self._at_once = at_once
        self._stages: dict[str, float] = {}  # of the current video: the fraction that is done
        self._seconds_per_film = math.inf  # s of work for a second of film, when a video last ended
        self._seconds_left = math.inf

    def add(self, label: str, *, failed: bool, earlier: bool) -> None:
        """Count a video that has ended."""
        self.finished += 1
        self.failed += failed
        self.earlier += earlier
        self._stages.clear()
        number = [name for name, _ in self._left].index(label)
        _, duration = self._left.pop(number)
        # Videos of an earlier run took no time, so they say nothing of the time left.
        if not earlier:
            self._worked += duration
            self._seconds_per_film = (time.monotonic() - self.began) / self._worked

    def show_counts(self, *stage: Any) -> None:
        """Show the counts, the time left and the videos in work.

        stage: progress of the current video, where one is read at a time: the stage's name, the
            second reached and the duration in seconds.
        """
        doing = ""
        if stage:
            name, second, duration = stage
            self._stages[name] = min(1.0, second / duration) if duration else 0.0
            doing = f": {name} {second:.0f} of {duration:.0f} s"
        text = self.text()
        # Videos begin in their order, so the first of those that are left are in work.
        names = [Path(label).name for label, _ in self._left[: self._at_once]]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            text += f"; {names[0]}{more}{doing}"
        self.show(text)

    def text(self) -> str:
        """Return the counts and the time left in words."""
        # Sound and picture are two halves of a video.
        reached = self._left[0][1] * min(1.0, sum(self._stages.values()) / 2) if self._left else 0.0
        film_left = sum(duration for _, duration in self._left) - reached
        parts = [f"{self.finished:,} of {self._total:,} videos"]
        if self._has_durations:
            parts.append(
                f"{(self._film - film_left) / 60:.1f} of {self._film / 60:.1f} min of film"
            )
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self._left and self._worked:
            self._seconds_left = min(self._seconds_left, self._seconds_per_film * film_left)
            parts.append(f"{rough_time(self._seconds_left)} left")
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
