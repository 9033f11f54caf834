"""What a terminal shows while work goes on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepline.watching import Progress


@contextmanager
def progress_bars() -> Iterator["Progress | None"]:
    """Yield a callback that draws a bar a stage on stderr; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, second: float, duration: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=duration or None)
            bars.update(tasks[stage], completed=second)

        yield report
