"""Progress of long work on stderr: bars on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepline.cli.errors import is_json_log, is_quiet, print_message, time_stamp

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from stepline.curate.driver import PhaseProgress
    from stepline.models.training.loop import Progress as TrainingProgress
    from stepline.networks.weights import Report
    from stepline.progress import Progress


LINE_SECONDS = 30.0  # between two lines where stderr is not a terminal
GIB_BYTES = 2**30  # bytes


class LinePace:
    """Lets a line through every LINE_SECONDS. start: second from which the first counts."""

    def __init__(self, start: float) -> None:
        self._last = start

    def is_due(self, now: float, *, always: bool = False) -> bool:
        """Whether a line is printed at second `now`. `always` prints it in any case."""
        due = always or now >= self._last + LINE_SECONDS
        if due:
            self._last = now
        return due


@contextmanager
def _bars(columns: Callable[[Any], Sequence[Any]]) -> Iterator["Bars | None"]:
    """Yield bars with some columns. None where stderr is not a terminal.

    columns: makes them of the module rich.progress, which is imported only for a terminal.
    """
    if not sys.stderr.isatty() or is_quiet() or is_json_log():
        yield None
        return
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    # what goes to a file or a pipe during this must not be drawn above the bar
    bars = progress.Progress(
        *columns(progress), console=console, transient=True, redirect_stdout=sys.stdout.isatty()
    )
    with bars:
        yield bars


def _stage_columns(rich: Any) -> Sequence[Any]:
    second = rich.TextColumn("{task.completed:.0f} s")
    stage = rich.TextColumn("{task.description:>10}")
    return stage, rich.BarColumn(), second, rich.TimeElapsedColumn()


def _training_columns(rich: Any) -> Sequence[Any]:
    numbers = "loss {task.fields[loss]:.3f}  {task.fields[score]}  {task.fields[memory]:.2f} GiB"
    text = rich.TextColumn(numbers)
    remaining = rich.TimeRemainingColumn(compact=True)
    return rich.MofNCompleteColumn(), rich.BarColumn(), text, remaining


def _curation_columns(rich: Any) -> Sequence[Any]:
    name = rich.TextColumn("{task.description}")
    state = rich.TextColumn("{task.fields[state]}")
    return name, rich.BarColumn(), rich.MofNCompleteColumn(), state


def _download_columns(rich: Any) -> Sequence[Any]:
    name = rich.TextColumn("{task.description}")
    return name, rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn()


@contextmanager
def progress_bars() -> Iterator["Progress"]:
    """Yield a callback that shows each stage of the main job."""
    # On a terminal each stage has a bar, elsewhere a line comes now and then.
    pace = LinePace(time.monotonic())
    with _bars(_stage_columns) as bars:
        tasks: dict[str, Any] = {}  # stage -> its bar

        def report(stage: str, second: float, duration: float) -> None:
            if bars is not None:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=duration or None)
                bars.update(tasks[stage], completed=second)
            elif pace.is_due(time.monotonic()):
                seconds = f"{second:.0f}"
                if duration:
                    seconds += f" of {duration:.0f}"
                print_message(f"{stage}: {seconds} s")

        yield report


class FolderProgress:
    """How far the main job is with several videos. earlier: those that an earlier run had done."""

    def __init__(self, total: int, bars: "Bars | None") -> None:
        self.finished = 0
        self.failed = 0
        self.earlier = 0
        self._total = total
        self._began = time.monotonic()
        self._pace = LinePace(self._began)
        self._bars = bars
        self._bar = None
        if bars is not None:
            self._bar = bars.add_task("", total=total, state="")

    def add(self, *, failed: bool, earlier: bool) -> None:
        """Count a video that has come to its end."""
        self.finished += 1
        self.failed += failed
        self.earlier += earlier

    def show(self, *_: object) -> None:
        """Draw the bar, or print a line now and then. It also takes what a stage reports."""
        now = time.monotonic()
        seconds = now - self._began
        if self._bars is not None and self._bar is not None:
            state = self.text(seconds)
            self._bars.update(self._bar, completed=self.finished, state=state)
        elif self._pace.is_due(now):
            print_message(f"{time_stamp()} {self.text(seconds)}")

    def text(self, seconds: float) -> str:
        """Return the counts and the time left in words, after some seconds of work."""
        parts = [f"{self.finished:,} of {self._total:,}"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        fresh = self.finished - self.earlier
        # Videos of an earlier run took no time, so they say nothing of the time left.
        if fresh and self.finished < self._total:
            seconds_left = seconds / fresh * (self._total - self.finished)
            parts.append(f"{rough_time(seconds_left)} left")
        return ", ".join(parts)


def rough_time(seconds: float) -> str:
    """Return a time in its largest unit that gives two or more: 3 h, 90 min, 40 s."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.0f} h"
    if seconds >= 2 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s"


def _folder_columns(rich: Any) -> Sequence[Any]:
    return rich.BarColumn(), rich.TextColumn("{task.fields[state]}")


@contextmanager
def folder_bar(total: int) -> Iterator[FolderProgress]:
    """Yield what shows how far the main job is with that many videos."""
    with _bars(_folder_columns) as bars:
        yield FolderProgress(total, bars)


@contextmanager
def training_bar() -> Iterator[Callable[["TrainingProgress"], None]]:
    """Yield a callback that shows each step of a training."""
    pace = LinePace(-LINE_SECONDS)
    with _bars(_training_columns) as bars:
        # on a terminal a bar, elsewhere a line now and then
        fields: dict[str, Any] = {"loss": float("nan"), "score": "", "memory": 0.0}
        bar = None
        if bars is not None:
            bar = bars.add_task("", total=None, **fields)

        def report(progress: "TrainingProgress") -> None:
            from stepline.models.training.distributed import peak_memory

            memory = peak_memory() / GIB_BYTES
            score = ""
            if progress.score is not None:
                score = f"held out {progress.score:.3f}"
            if bars is not None and bar is not None:
                fields.update(loss=progress.loss, memory=memory)
                if score:  # the last one stays until the next
                    fields["score"] = score
                bars.update(bar, total=progress.steps, completed=progress.step, **fields)
                return
            is_last = progress.step >= progress.steps
            if not pace.is_due(progress.seconds, always=bool(score) or is_last):
                return
            # A run that goes on began with some steps, which cost it nothing now.
            seconds_per_step = progress.seconds / max(progress.steps_taken, 1)
            seconds_left = seconds_per_step * (progress.steps - progress.step)
            parts = [f"loss {progress.loss:.3f}"]
            if score:
                parts.append(score)
            parts.append(f"{seconds_left:.0f} s left")
            parts.append(f"at most {memory:.2f} GiB")
            step = f"step {progress.step} of {progress.steps}"
            print_message(f"{step}: {', '.join(parts)}")

        yield report


@contextmanager
def progress_report() -> Iterator[Callable[["TrainingProgress"], None]]:
    """Yield a callback that shows each training step. Of several processes the first one does."""
    from stepline.models.training.distributed import is_first

    with training_bar() as bar:
        yield lambda progress: bar(progress) if is_first() else None


@contextmanager
def curation_bar() -> Iterator[Callable[["PhaseProgress"], None]]:
    """Yield a callback that shows a run over many videos."""
    pace = LinePace(0.0)
    with _bars(_curation_columns) as bars:
        # on a terminal a bar, elsewhere a line now and then
        bar = None
        if bars is not None:
            bar = bars.add_task("videos", total=None, state="")

        def report(progress: "PhaseProgress") -> None:
            state = _curation_state(progress)
            if bars is not None and bar is not None:
                bars.update(bar, total=progress.total, completed=progress.finished, state=state)
            elif pace.is_due(progress.seconds, always=progress.finished >= progress.total):
                print_message(f"{progress.finished} of {progress.total} videos: {state}")

        yield report


def _curation_state(progress: "PhaseProgress") -> str:
    """Return rate, time left and failures in words."""
    # What is worth knowing of a long run: how fast, how long still, and what went wrong.
    left_out = progress.kinds["left out"]
    parts = [f"{progress.earlier} of an earlier run"]
    if progress.rate:
        parts = [f"{progress.rate:,.0f} an hour"]
    if progress.seconds_left:
        parts.append(f"{progress.seconds_left / 60:.0f} min left")
    if left_out:
        parts.append(f"{left_out} left out")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    return ", ".join(parts)


@contextmanager
def download_bar(total: int | None) -> "Iterator[Report | None]":
    """Yield a callback that shows how far downloads of `total` bytes are, None: not known. None
    where stderr is not a terminal."""
    with _bars(_download_columns) as bars:
        if bars is None:
            yield None
            return
        bar = bars.add_task("", total=total)
        # Packages come several at a time, and the bar is of all of them.
        fetched_bytes: dict[str, int] = {}  # of each package

        def report(package: str, reached: int) -> None:
            fetched_bytes[package] = max(reached, fetched_bytes.get(package, 0))
            bars.update(bar, description=package, completed=sum(fetched_bytes.values()))

        yield report
