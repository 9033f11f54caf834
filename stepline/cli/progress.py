"""Progress of long work on stderr: bars in a terminal, now and then a line elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stepline.cli.errors import say

if TYPE_CHECKING:
    from stepline.curate.driver import PhaseProgress
    from stepline.progress import Progress
    from stepline.training.loop import Progress as Training


OFTEN = 30.0  # seconds between the lines that stand for a bar where stderr is no terminal


@contextmanager
def progress_bars() -> Iterator["Progress"]:
    """Yield a callback that draws a bar a stage on a terminal, else prints a line now and then,
    both on stderr."""
    if not sys.stderr.isatty():
        yield _stage_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    shown = TextColumn("{task.completed:.0f} s")
    columns = (TextColumn("{task.description:>10}"), BarColumn(), shown, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, second: float, duration: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=duration or None)
            bars.update(tasks[stage], completed=second)

        yield report


def _stage_lines() -> "Progress":
    last = time.monotonic()

    def report(stage: str, second: float, duration: float) -> None:
        nonlocal last
        if time.monotonic() >= last + OFTEN:
            last = time.monotonic()
            say(
                f"{stage}: {second:.0f} of {duration:.0f} s"
                if duration
                else f"{stage}: {second:.0f} s"
            )

    return report


@contextmanager
def training_bar() -> Iterator[Callable[["Training"], None]]:
    """Yield what shows each step of a training: a bar on a terminal, else a line now and then, both
    on stderr."""
    if not sys.stderr.isatty():
        yield _training_lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    shown = TextColumn(
        "loss {task.fields[loss]:.3f}  {task.fields[score]}  {task.fields[memory]:.2f} GiB"
    )
    columns = (MofNCompleteColumn(), BarColumn(), shown, TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None, loss=float("nan"), score="", memory=0.0)

        def report(progress: "Training") -> None:
            from stepline.training.distributed import peak_memory

            score = {} if progress.score is None else {"score": f"held out {progress.score:.3f}"}
            known = {"loss": progress.loss, "memory": peak_memory() / 2**30} | score
            bars.update(bar, total=progress.steps, completed=progress.step, **known)

        yield report


def _training_lines() -> Callable[["Training"], None]:
    last = -OFTEN

    def report(progress: "Training") -> None:
        nonlocal last
        from stepline.training.distributed import peak_memory

        if (
            progress.score is None
            and progress.step < progress.steps
            and progress.seconds < last + OFTEN
        ):
            return
        last = progress.seconds
        left = progress.seconds / max(progress.taken, 1) * (progress.steps - progress.step)
        score = "" if progress.score is None else f", held out {progress.score:.3f}"
        numbers = f"loss {progress.loss:.3f}{score}, {left:.0f} s left, at most {peak_memory() / 2**30:.2f} GiB"
        say(f"step {progress.step} of {progress.steps}: {numbers}")

    return report


@contextmanager
def curation_bar() -> Iterator[Callable[["PhaseProgress"], None]]:
    """Yield what shows a run over many videos: a bar on a terminal, else a line now and then, both
    on stderr."""
    if not sys.stderr.isatty():
        yield _curation_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("videos", total=None, state="")

        def report(progress: "PhaseProgress") -> None:
            bars.update(
                bar, total=progress.total, completed=progress.done, state=_curation_state(progress)
            )

        yield report


def _curation_lines() -> Callable[["PhaseProgress"], None]:
    last = 0.0

    def report(progress: "PhaseProgress") -> None:
        nonlocal last
        if progress.done < progress.total and progress.seconds < last + OFTEN:
            return
        last = progress.seconds
        say(f"{progress.done} of {progress.total} videos: {_curation_state(progress)}")

    return report


def _curation_state(progress: "PhaseProgress") -> str:
    """Return rate, time left and failures in words."""
    rate = (
        f"{progress.rate:,.0f} an hour"
        if progress.rate
        else f"{progress.earlier} of an earlier run"
    )
    left = f", {progress.left / 60:.0f} min left" if progress.left else ""
    lost = f", {progress.kinds['left out']} left out" if progress.kinds["left out"] else ""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{rate}{left}{lost}{failed}"
