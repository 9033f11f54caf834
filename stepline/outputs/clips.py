"""The shown steps as clips of their own."""

import re
from pathlib import Path

from stepline.outputs.text import one_line, safe_stem, shown_span
from stepline.records import Record, Span, Step
from stepline.storage import atomic_path, remove_file

SUFFIX = ".clips"  # of the folder that holds a video's clips
TITLE = 40  # characters of a step's text in its clip's name


def write_clips(record: Record, path: Path, folder: Path) -> list[Path]:
    """Cut the best span of every shown step out of the video at `path` and return the clips, in the steps' order.

    They are named `<folder>/<id>.clips/03-fold-the-strip.mp4`. Raises MediaError where the video cannot be cut.
    """
    from stepline.media import cut_clip

    remove_clips(record, folder)
    clips = clip_spans(record, folder)
    for clip, span in clips.items():
        with atomic_path(clip) as partial:
            cut_clip(path, span, partial)
    return list(clips)


def clip_spans(record: Record, folder: Path) -> dict[Path, Span]:
    """Return the path of each shown step's clip, whether it is cut or not, and the seconds it shows."""
    home = _home(record, folder)
    best = [(number, step, shown_span(step)) for number, step in enumerate(record.steps, start=1)]
    return {home / f"{number:02d}-{_slug(step)}.mp4": span for number, step, span in best if span is not None}


def remove_clips(record: Record, folder: Path) -> None:
    """Remove the clips that an earlier run cut: their seconds are those of other spans."""
    for clip in _home(record, folder).glob("[0-9][0-9]*-*.mp4"):
        remove_file(clip)


def _home(record: Record, folder: Path) -> Path:
    return folder / f"{safe_stem(record.id)}{SUFFIX}"


def _slug(step: Step) -> str:
    words = re.sub(r"[^\w]+", "-", one_line(step.text).lower()).strip("-")
    return words[:TITLE].rstrip("-").encode()[:150].decode(errors="ignore") or "step"
