"""The process of one job, a video or a playlist: `python -m stepline.studio.worker`.

It reads its task from the first line of its standard input. It writes its progress and its records
as lines of JSON to its standard output. It ends when its input ends, since the process that started
it is gone then.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from stepline.errors import SteplineError, error_line
from stepline.library.corrected_library import check_links, check_place
from stepline.outputs import USUAL, output_path
from stepline.pipeline.batch import run_video
from stepline.pipeline.networks import load_networks
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.sources import find_sources
from stepline.records import FrozenModel

WORKER_NICENESS = 10  # added to the process's own: people who watch and correct come first
# Linux ends the process with the highest score where memory ends: the job, not the studio.
MEMORY_SCORE = 500  # of 1000. An ordinary process has 0
PROGRESS_SECONDS = 1.0  # between two lines about one stage
FAULT_EXIT_CODE = 70


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
    """The input of a worker.

    source: a path or an address.
    out: the library's folder.
    allowed: the folders that may be read.
    settings: of the main job.
    """

    source: str
    out: str
    allowed: tuple[str, ...]
    options: JobOptions
    settings: StepsSettings


class ProgressLines:
    """Writes lines of JSON to what was standard output."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._lock = threading.Lock()
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
        # Libraries that print must not write into these lines.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def write(self, **line: Any) -> None:
        """Write a line."""
        with self._lock:
            self._out.write(json.dumps(line) + "\n")

    def progress(self, stage: str, second: float, duration: float) -> None:
        """Write the progress of a stage, at most once in `PROGRESS_SECONDS`, and its end."""
        now = time.monotonic()
        if now >= self._times.get(stage, 0.0) + PROGRESS_SECONDS or second >= duration:
            self._times[stage] = now
            self.write(stage=stage, second=second, duration=duration)


def run_task(task: JobTask, lines: ProgressLines) -> None:
    """Write the files of each video of a task, and a line for each. Raises SteplineError."""
    # what is asked: the job's options go over the studio's settings
    settings = task.settings
    options = task.options
    out = Path(task.out)
    if options.language is not None:
        asr = settings.asr.model_copy(update={"language": options.language})
        settings = settings.model_copy(update={"asr": asr})
    captions = Path(options.captions) if options.captions is not None else None
    allowed = [Path(folder) for folder in task.allowed]
    check_links(out, allowed)

    # the videos, none of them outside the folders that are allowed
    sources = find_sources([task.source], out, settings, force=options.force)
    for source in sources:
        if isinstance(source.place, Path):
            check_place(source.place, allowed)

    # one after the other
    networks = load_networks(settings, several=len(sources) > 1)
    for source in sources:
        opened = source.open(
            out, settings, captions=captions, texts=options.texts, force=options.force
        )
        with opened as request:
            result = run_video(
                request,
                settings,
                OutputOptions(out, USUAL, force=options.force),
                networks=networks,
                progress=lines.progress,
            )
        lines.write(record=output_path(result.record, out, "json").name)


def _yield_to_others() -> None:
    """Let other processes have the processor first, and memory where it ends."""
    if hasattr(os, "nice"):
        os.nice(WORKER_NICENESS)
    score = Path("/proc/self/oom_score_adj")
    if os.access(score, os.W_OK):
        score.write_text(str(MEMORY_SCORE))


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Do the task. The last line is an error that a user can cure (exit code 1), or a fault
    (70)."""
    _yield_to_others()
    lines = ProgressLines()
    task = JobTask.model_validate_json(sys.stdin.readline())
    # It ends this process when the studio is gone.
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        run_task(task, lines)
    except SteplineError as error:
        lines.write(error=str(error))
        os._exit(1)
    except Exception as error:  # noqa: BLE001   reported in a line, as the command line does
        fault = f"a fault of Stepline itself ({type(error).__name__}: {error})"
        lines.write(error=error_line(fault))
        os._exit(FAULT_EXIT_CODE)
    os._exit(0)  # the thread that waits for the input would hold the end up


if __name__ == "__main__":
    main()
