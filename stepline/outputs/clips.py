"""Each seen or placed step as a clip: an mp4 of its best span."""

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.files.atomic_files import FileSet, atomic_files
from stepline.outputs.text import one_line, safe_stem, shown_span
from stepline.records import Record, Span, Step

if TYPE_CHECKING:
    from stepline.media import MediaSettings

CLIPS_SUFFIX = ".clips"  # of the folder that holds a video's clips
MAX_NAME_CHARS = 40  # characters of a step's text in its clip's name
MAX_NAME_BYTES = 150


def write_clips(
    record: Record, path: Path, folder: Path, files: FileSet | None = None
) -> list[Path]:
    """Cut a clip of every seen or placed step, such as `<folder>/<id>.clips/03-fold-the-strip.mp4`.

    Args:
        record: the record of the video.
        path: the video file.
        folder: the folder of the outputs. Clips of an earlier record in the folder are removed.
        files: other files that are written together with the clips, all or none. None: only the
            clips.

    Returns the paths of the clips, in the order of the steps. Raises MediaError if the video cannot
    be cut.
    """
    from stepline.media import cut_clip

    clips = clip_spans(record, folder)
    # The sound is the track that the record was made from.
    settings = sound_track_settings(record)
    with atomic_files() if files is None else contextlib.nullcontext(files) as together:
        for clip, span in clips.items():
            cut_clip(path, span, together.partial(clip), settings)
        remove_clips(record, folder, together)
    return list(clips)


def sound_track_settings(record: Record) -> "MediaSettings":
    """Return settings that select the sound track from which the record was made, if the record
    names one."""
    from stepline.media import MediaSettings

    number = record.models.get("audio_track")
    return MediaSettings(audio_track=number) if isinstance(number, int) else MediaSettings()


def clip_spans(record: Record, folder: Path) -> dict[Path, Span]:
    """Return a mapping from the path of each seen or placed step's clip to its span in the video.

    A path is returned whether or not the clip exists.
    """
    clips_folder = _clips_folder(record, folder)
    spans = {}
    for number, step in enumerate(record.steps, start=1):
        span = shown_span(step)
        if span is not None:
            spans[clips_folder / step_file_name(number, step, ".mp4")] = span
    return spans


def remove_clips(record: Record, folder: Path, files: FileSet) -> None:
    """Remove the clips of an earlier record, as part of the change `files`."""
    # Only names that `step_file_name` gives.
    for clip in _clips_folder(record, folder).glob("[0-9][0-9]*-*.mp4"):
        files.remove(clip)


def _clips_folder(record: Record, folder: Path) -> Path:
    return folder / f"{safe_stem(record.id)}{CLIPS_SUFFIX}"


def step_file_name(number: int, step: Step, suffix: str) -> str:
    """Return a file name from a step's number and words: 03-fold-the-strip.mp4."""
    head = re.sub(r"[^\w]+", "-", one_line(step.text).lower()).strip("-")
    if len(head) > MAX_NAME_CHARS:
        # whole words, where the first is not longer itself
        head = head[: MAX_NAME_CHARS + 1].rpartition("-")[0] or head[:MAX_NAME_CHARS]
    # a letter that is cut in two is left out
    slug = head.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return f"{number:02d}-{slug or 'step'}{suffix}"
