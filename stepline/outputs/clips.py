"""The shown steps as clips and animated pictures of their own."""

import contextlib
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.atomic_files import FileSet, atomic_files
from stepline.errors import MediaError
from stepline.outputs.text import one_line, safe_stem, shown_span
from stepline.records import Record, Span, Step

if TYPE_CHECKING:
    from stepline.media import MediaSettings

CLIPS_SUFFIX = ".clips"  # of the folder that holds a video's clips
MAX_NAME_CHARS = 40  # characters of a step's text in its clip's name


def write_clips(
    record: Record, path: Path, folder: Path, files: FileSet | None = None
) -> list[Path]:
    """Cut the best span of every shown step out of the video at `path` and return the clips, in the
    steps' order.

    They are named `<folder>/<id>.clips/03-fold-the-strip.mp4`; those of an earlier result go.
    files: a set of other files with which they appear. Raises MediaError where the video cannot be
    cut.
    """
    from stepline.media import cut_clip

    clips = clip_spans(record, folder)
    cut = cut_clip
    if (settings := sound_track_settings(record)) is not None:
        cut = functools.partial(cut_clip, settings=settings)
    with atomic_files() if files is None else contextlib.nullcontext(files) as together:
        for clip, span in clips.items():
            cut(path, span, together.partial(clip))
        remove_clips(record, folder, together)
    return list(clips)


def sound_track_settings(record: Record) -> "MediaSettings | None":
    """Return the settings by which the sound of a video is the track that its record heard, None
    where there was one."""
    from stepline.media import MediaSettings

    number = record.models.get("audio_track")
    return MediaSettings(audio_track=number) if isinstance(number, int) else None


def clip_spans(record: Record, folder: Path) -> dict[Path, Span]:
    """Return the path of each shown step's clip, whether it is cut or not, and the seconds it
    shows."""
    home = _home(record, folder)
    best = [(number, step, shown_span(step)) for number, step in enumerate(record.steps, start=1)]
    return {
        home / step_file_name(number, step, ".mp4"): span
        for number, step, span in best
        if span is not None
    }


def remove_clips(record: Record, folder: Path, files: FileSet) -> None:
    """Have the clips that an earlier run cut removed with the change: their seconds are those of
    other spans."""
    for clip in _home(record, folder).glob("[0-9][0-9]*-*.mp4"):
        files.remove(clip)


def _home(record: Record, folder: Path) -> Path:
    return folder / f"{safe_stem(record.id)}{CLIPS_SUFFIX}"


def step_file_name(number: int, step: Step, suffix: str) -> str:
    """Return a file name from a step's number and words: 03-fold-the-strip.mp4."""
    words = re.sub(r"[^\w]+", "-", one_line(step.text).lower()).strip("-")
    slug = words[:MAX_NAME_CHARS].rstrip("-").encode()[:150].decode(errors="ignore") or "step"
    return f"{number:02d}-{slug}{suffix}"


ANIMATIONS_SUFFIX = ".animations"  # of the folder that holds a video's animated pictures
ANIMATION_RATE = 5  # pictures a second
MAX_ANIMATION_SECONDS = 6.0  # s of a step that are shown
ANIMATION_WIDTH = 320  # pixels


def animations(record: Record, video: Path, suffix: str) -> dict[str, Callable[[Path], None]]:
    """Return what writes an animated picture of every shown step, by its file name; suffix: .webp
    or .gif.

    The writers raise MediaError where the video cannot be read.
    """
    best = [(number, step, shown_span(step)) for number, step in enumerate(record.steps, start=1)]
    return {
        step_file_name(number, step, suffix): functools.partial(_animate, video, span)
        for number, step, span in best
        if span is not None
    }


def _animate(video: Path, span: Span, path: Path) -> None:
    from PIL import Image

    from stepline.media import read_frames_at

    count = max(1, round(min(span.duration, MAX_ANIMATION_SECONDS) * ANIMATION_RATE))
    times = [span.start + number / ANIMATION_RATE for number in range(count)]
    pictures = [
        Image.fromarray(still.image) for still in read_frames_at(video, times, ANIMATION_WIDTH)
    ]
    if not pictures:
        raise MediaError(
            f"{video}: no picture between {span.start:g} and {span.end:g} s; leave --format webp, gif out"
        )
    form = path.suffix.removeprefix(".").upper()
    length = 1000 // ANIMATION_RATE  # ms
    pictures[0].save(path, form, save_all=True, append_images=pictures[1:], duration=length, loop=0)
