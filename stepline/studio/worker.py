"""The process of one job: a video, or those of a playlist, to their files; `python -m
stepline.studio.worker`.

It reads what to do from a line of its standard input, tells by lines of JSON on its standard output
how far it is and what it made, and ends when its input does: whoever started it is gone then,
however that ended.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from stepline.errors import SteplineError, error_line
from stepline.outputs import USUAL, output_path
from stepline.pipeline.batch import OutputOptions, run_video
from stepline.pipeline.networks import load_networks
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.sources import find_sources
from stepline.records import FrozenModel

POLITE = 10  # added to the process's niceness: who watches and corrects comes first
OFTEN = 1.0  # s between two lines about one stage


class JobOptions(FrozenModel):
    """What may be said of a video. language: of its speech. texts: lines to find, instead of steps
    from the speech.

    captions: a file that stands for recognition. force: do again what is done.
    """

    language: str | None = None
    texts: tuple[str, ...] = ()
    captions: str | None = None
    force: bool = False


class JobTask(FrozenModel):
    """What a worker reads: a path or an address, the folder of the library, and the settings of the
    main job."""

    source: str
    out: str
    options: JobOptions
    settings: StepsSettings


class ProgressLines:
    """Tells how far a stage is, now and then."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
        # what a library prints is no line of ours
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(self, **line: Any) -> None:
        """Write a line."""
        with self._lock:
            self._out.write(json.dumps(line) + "\n")

    def progress(self, stage: str, second: float, duration: float) -> None:
        """Write how far a stage is, unless that was told just now."""
        now = time.monotonic()
        if now >= self._told.get(stage, 0.0) + OFTEN or second >= duration:
            self._told[stage] = now
            self.tell(stage=stage, second=second, duration=duration)


def run_task(task: JobTask, lines: ProgressLines) -> None:
    """Make the files of each video of a task, and tell which. Raises a SteplineError."""
    settings, out = task.settings, Path(task.out)
    if task.options.language is not None:
        settings = settings.model_copy(
            update={"asr": settings.asr.model_copy(update={"language": task.options.language})}
        )
    options = OutputOptions(out, USUAL, force=task.options.force)
    captions = Path(task.options.captions) if task.options.captions is not None else None
    sources = find_sources([task.source], out, settings)
    networks = load_networks(settings, several=len(sources) > 1)
    for source in sources:
        with source.open(out, settings, captions=captions, texts=task.options.texts) as request:
            result = run_video(
                request, settings, options, networks=networks, progress=lines.progress
            )
        lines.tell(record=output_path(result.record, out, "json").name)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Do the task of the first line of the input; an error that a user can cure is the last line
    told, exit code 1."""
    if hasattr(os, "nice"):
        os.nice(POLITE)
    lines = ProgressLines()
    task = JobTask.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        run_task(task, lines)
    except SteplineError as error:
        lines.tell(error=str(error))
        os._exit(1)
    except Exception as error:  # noqa: BLE001   told in a line, as the command line does
        lines.tell(
            error=error_line(f"a fault of Stepline itself ({type(error).__name__}: {error})")
        )
        os._exit(70)
    os._exit(0)  # the thread that waits for the input would hold the end up


if __name__ == "__main__":
    main()
