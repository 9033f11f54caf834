"""The shown steps as clips of their own."""

import contextlib
import re
from pathlib import Path

from stepline.outputs.text import one_line, safe_stem, shown_span
from stepline.records import Record, Span, Step
from stepline.storage import FileSet, atomic_files

SUFFIX = ".clips"  # of the folder that holds a video's clips
TITLE = 40  # characters of a step's text in its clip's name


def write_clips(record: Record, path: Path, folder: Path, files: FileSet | None = None) -> list[Path]:
    """Cut the best span of every shown step out of the video at `path` and return the clips, in the steps' order.

    They are named `<folder>/<id>.clips/03-fold-the-strip.mp4`; those of an earlier result go. files: a set of other
    files with which they appear. Raises MediaError where the video cannot be cut.
    """
    from stepline.media import cut_clip

    clips = clip_spans(record, folder)
    with atomic_files() if files is None else contextlib.nullcontext(files) as together:
        for clip, span in clips.items():
            cut_clip(path, span, together.partial(clip))
        remove_clips(record, folder, together)
    return list(clips)


def clip_spans(record: Record, folder: Path) -> dict[Path, Span]:
    """Return the path of each shown step's clip, whether it is cut or not, and the seconds it shows."""
    home = _home(record, folder)
    best = [(number, step, shown_span(step)) for number, step in enumerate(record.steps, start=1)]
    return {home / f"{number:02d}-{_slug(step)}.mp4": span for number, step, span in best if span is not None}


def remove_clips(record: Record, folder: Path, files: FileSet) -> None:
    """Have the clips that an earlier run cut removed with the change: their seconds are those of other spans."""
    for clip in _home(record, folder).glob("[0-9][0-9]*-*.mp4"):
        files.remove(clip)


def _home(record: Record, folder: Path) -> Path:
    return folder / f"{safe_stem(record.id)}{SUFFIX}"


def _slug(step: Step) -> str:
    words = re.sub(r"[^\w]+", "-", one_line(step.text).lower()).strip("-")
    return words[:TITLE].rstrip("-").encode()[:150].decode(errors="ignore") or "step"
