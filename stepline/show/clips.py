"""The shown steps as clips of their own."""

import re
from pathlib import Path

from stepline.records import Record, Step
from stepline.show.names import safe_stem
from stepline.show.plain import one_line
from stepline.show.shown import shown_span
from stepline.store import atomic_path

TITLE = 40   # characters of a step's text in its clip's name


def write_clips(record: Record, path: Path, folder: Path) -> list[Path]:
    """Cut the best span of every shown step out of the video at `path` and return the clips, in the steps' order.

    They are named `<folder>/<id>.clips/03-fold-the-strip.mp4`. Raises MediaError where the video cannot be cut.
    """
    from stepline.media import cut

    home = folder / f"{safe_stem(record.id)}.clips"
    clips = []
    for number, step in enumerate(record.steps, start=1):
        best = shown_span(step)
        if best is not None:
            clip = home / f"{number:02d}-{_slug(step)}.mp4"
            with atomic_path(clip) as partial:
                cut(path, best, partial)
            clips.append(clip)
    return clips


def _slug(step: Step) -> str:
    words = re.sub(r"[^\w]+", "-", one_line(step.text).lower()).strip("-")
    return words[:TITLE].rstrip("-").encode()[:150].decode(errors="ignore") or "step"
