"""The clips that people are asked about: a few seconds of a video, and what is said in them."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from stepline.errors import DatasetError
from stepline.files.atomic_files import write_atomic
from stepline.limits import MAX_RECORD_BYTES, parse_json_text, read_limited
from stepline.records import FrozenModel, Record, Span
from stepline.storage import read_parquet, read_record

MIN_CLIP_SECONDS = 3.0  # a shorter sentence is widened around its middle: WYS2's clips are 3 s


class AnnotationClip(FrozenModel):
    """Seconds of a video and the words that are spoken in them.

    Attributes:
        id: unique id of the clip.
        video: path of the video file.
        span: the seconds.
        text: the words.
        video_id: id of the video, under which its features are stored. None: the stem of `video`.
        shown: right answer of a qualification question: whether the words are shown. None if
            unknown.
    """

    id: Annotated[str, Field(min_length=1)]
    video: str
    span: Span
    text: Annotated[str, Field(min_length=1)]
    video_id: str | None = None
    shown: bool | None = None


def read_clips(path: Path, *others: Path) -> list[AnnotationClip]:
    """Return the clips of JSON lists, or one clip per sentence of records.

    path: a list of clips (.json), a record (.json) or records (.parquet).
    others: more such files, as the shards of a dataset.

    Raises DatasetError for any other file, for files without clips, and for repeated ids.
    """
    clips: list[AnnotationClip] = []
    for file in (path, *others):
        # A list of clips, else records with sentences.
        clips_of_file = _clip_list(file) if file.suffix == ".json" else None
        if clips_of_file is None:
            records = read_parquet(file) if file.suffix == ".parquet" else [read_record(file)]
            clips_of_file = [clip for record in records for clip in record_clips(record)]
        clips += clips_of_file
    if not clips:
        raise DatasetError(
            f"{path}: no sentence with a video to watch; "
            "give records of transcribed videos, or clips"
        )
    # Answers are kept by the id, so two clips of one id would share theirs.
    repeated = [id for id, count in Counter(clip.id for clip in clips).items() if count > 1]
    if repeated:
        raise DatasetError(
            f"{path}: {len(repeated)} ids occur twice, first {repeated[0]!r}; "
            "every clip needs its own"
        )
    return clips


def record_clips(record: Record) -> Iterator[AnnotationClip]:
    """Yield a clip per sentence of a record, at least `MIN_CLIP_SECONDS` long.

    A record without a video file gives none.
    """
    if record.video.path is None:
        return
    for number, sentence in enumerate(record.sentences):
        if sentence.text.strip():
            span = widen_clip(sentence.span, record.video.duration)
            yield AnnotationClip(
                id=f"{record.id}:{number}",
                video=record.video.path,
                video_id=record.id,
                span=span,
                text=sentence.text,
            )


def write_clips(clips: Iterable[AnnotationClip], path: Path) -> None:
    """Write clips as the JSON list that `read_clips` reads."""
    rows = [clip.model_dump(mode="json") for clip in clips]
    write_atomic(path, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")


def check_qualifying(clips: Sequence[AnnotationClip], source: Path) -> list[AnnotationClip]:
    """Return the clips of a qualification test.

    source: file of the clips, for messages.

    Raises DatasetError if the right answer to a clip is not known.
    """
    for clip in clips:
        if clip.shown is None:
            raise DatasetError(
                f'{source}: {clip.id!r} has no known answer; give "shown": true or false'
            )
    return list(clips)


def _clip_list(path: Path) -> list[AnnotationClip] | None:
    """Return the clips of a JSON list. None if the JSON is not a list."""
    try:
        tree = parse_json_text(read_limited(path, MAX_RECORD_BYTES))
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"{path}: not JSON that can be read ({error}); give records or a list of clips"
        ) from error
    if not isinstance(tree, list):
        return None
    try:
        return [AnnotationClip.model_validate_json(json.dumps(row)) for row in tree]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DatasetError(
            f"{path}: not a list of clips ({where}: {first['msg']}); see docs/wys2.md"
        ) from error


def widen_clip(span: Span, duration: float | None) -> Span:
    """Return a span widened to at least `MIN_CLIP_SECONDS`, inside the video.

    duration: seconds of the video, None if unknown.
    """
    # Widened to both sides, and moved inside where the video begins or ends.
    start = max(0.0, span.start - max(0.0, MIN_CLIP_SECONDS - span.duration) / 2)
    end = max(span.end, start + MIN_CLIP_SECONDS)
    if duration is not None and end > duration:
        start = max(0.0, min(start, duration - MIN_CLIP_SECONDS))
        end = max(duration, span.end)
    return Span(round(start, 3), round(end, 3))
