"""A part of a video: only its seconds are heard and seen. Inside the main job, times count from its start.

    media_info_of_part(info, part)               the duration becomes the part's
    crop_transcript(transcript, part)            captions of the whole video -> those of the part
    crop_features(features, part)                features of the whole video -> those of the part
    to_whole_video_times(record, ..., start)     times of the part -> times of the whole video

A part of None is the whole video. `media.MediaReader` reads a part of a file.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stepline.errors import SettingsError
from stepline.records import Alignment, FeatureSequence, FrozenModel, Record, Span, Transcript

if TYPE_CHECKING:
    from stepline.media import MediaInfo

# The fields of a record, and of what is in them, that hold seconds of the video.
TIME_FIELDS = {"transcript", "steps", "captions", "materials", "tools", "yields", "times"}
TIME_FIELDS |= {"sentences", "words", "span", "spans", "said", "at", "target"}


def media_info_of_part(info: "MediaInfo", part: Span | None) -> "MediaInfo":
    """Return the media information with the duration of the part.

    Raises SettingsError if the part begins after the end of the video.
    """
    if part is None:
        return info
    if part.start >= info.duration:
        raise SettingsError(
            f"{info.path}: --from {part.start:g} s: the video lasts {info.duration:.1f} s; give an "
            "earlier second"
        )
    return replace(info, duration=min(part.end, info.duration) - part.start)


def crop_transcript(transcript: Transcript, part: Span | None) -> Transcript:
    """Return the sentences that begin in a part of the video. Times count from the part's start.

    part: start and end in seconds. None: the whole video.
    """
    if part is None:
        return transcript
    inside = tuple(item for item in transcript.sentences if item.span.start in part)
    moved: Transcript = _shift_times(
        transcript.model_copy(update={"sentences": inside}), -part.start
    )
    return moved


def crop_features(features: FeatureSequence, part: Span | None) -> FeatureSequence:
    """Return the feature rows that overlap a part of the video.

    part: start and end in seconds. None: the whole video.
    """
    if part is None:
        return features
    # Whole rows: the one in which the part begins, to the one in which it ends.
    first = math.floor(part.start * features.rate)
    return replace(features, values=features.values[first : math.ceil(part.end * features.rate)])


def to_whole_video_times(
    record: Record, alignment: Alignment | None, start: float
) -> tuple[Record, Alignment | None]:
    """Return the record and alignment of a part in times of the whole video.

    start: second of the video at which the part begins.
    """
    if alignment is not None:
        # nothing is known of the rows before
        before = round(start * alignment.rate)
        scores = np.pad(alignment.scores, ((0, 0), (before, 0)))  # (K, before + T)
        alignment = replace(alignment, scores=scores)
    return _shift_times(record, start), alignment


def _shift_times(value: Any, seconds: float) -> Any:
    """Return a record, or a value in it, with all its times moved by some seconds."""
    if isinstance(value, Span):
        return shift_span(value, seconds)
    if isinstance(value, int | float):
        return round(value + seconds, 6)
    if isinstance(value, tuple):
        return tuple(_shift_times(item, seconds) for item in value)
    if not isinstance(value, FrozenModel):
        return value
    names = TIME_FIELDS & type(value).model_fields.keys()
    update = {name: _shift_times(getattr(value, name), seconds) for name in names}
    return value.model_copy(update=update)


def shift_span(span: Span, seconds: float) -> Span:
    """Return the span moved later by some seconds, rounded to a microsecond.

    Times before 0 become 0.
    """
    # Rounding hides the error of adding floats. A span never becomes empty.
    start = max(0.0, round(span.start + seconds, 6))
    return Span(start, max(round(span.end + seconds, 6), start + 1e-3))
