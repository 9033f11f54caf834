"""A part of a video: only its seconds are heard and looked at, on a clock of its own; results have
the whole video's.

    part_info(info, part)                  what the file holds, as long as the part; part: None where it is all of it
    transcript_within(transcript, part)    captions of the whole video -> those of the part
    features_within(features, part)        ready rows of the whole video -> those of the part
    in_whole_video(record, ..., start)     times of the part -> times of the whole video

`media.MediaReader` reads the part.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from stepline.errors import SettingsError
from stepline.records import (
    Alignment,
    FeatureSequence,
    Material,
    Record,
    ScreenTarget,
    Sentence,
    Span,
    Step,
    Transcript,
    WorkTime,
)

if TYPE_CHECKING:
    from stepline.media import MediaInfo

Statement = TypeVar("Statement", Material, WorkTime)


def part_info(info: "MediaInfo", part: Span | None) -> "MediaInfo":
    """Return what a file holds, as long as the part of it. Raises SettingsError where that begins
    behind its end."""
    if part is None:
        return info
    if part.start >= info.duration:
        lasts = f"the video lasts {info.duration:.1f} s"
        raise SettingsError(
            f"{info.path}: --from {part.start:g} s: {lasts}; give an earlier second"
        )
    return replace(info, duration=min(part.end, info.duration) - part.start)


def transcript_within(transcript: Transcript, part: Span | None) -> Transcript:
    """Return the sentences that begin in a part, on its clock."""
    if part is None:
        return transcript
    inside = [sentence for sentence in transcript.sentences if sentence.span.start in part]
    return moved_transcript(transcript.model_copy(update={"sentences": tuple(inside)}), -part.start)


def features_within(features: FeatureSequence, part: Span | None) -> FeatureSequence:
    """Return the rows of a part of the video, from the row in which it begins."""
    if part is None:
        return features
    first, end = math.floor(part.start * features.rate), math.ceil(part.end * features.rate)
    return replace(features, values=features.values[first:end])


def in_whole_video(
    record: Record, alignment: Alignment | None, start: float
) -> tuple[Record, Alignment | None]:
    """Return what was found in a part with the times of the whole video. start: second at which the
    part begins."""
    moved = record.model_copy(
        update={
            "transcript": moved_transcript(record.transcript, start)
            if record.transcript is not None
            else None,
            "steps": tuple(_moved_step(step, start) for step in record.steps),
            "captions": tuple(_moved_step(step, start) for step in record.captions),
            "materials": tuple(_moved_thing(thing, start) for thing in record.materials),
            "tools": tuple(_moved_thing(thing, start) for thing in record.tools),
            "yields": tuple(_moved_thing(thing, start) for thing in record.yields),
            "times": tuple(_moved_thing(time, start) for time in record.times),
        }
    )
    if alignment is not None:  # nothing is known of the rows before
        before = round(start * alignment.rate)
        alignment = replace(alignment, scores=np.pad(alignment.scores, ((0, 0), (before, 0))))
    return moved, alignment


def moved_transcript(transcript: Transcript, seconds: float) -> Transcript:
    """Return the transcript so many seconds later."""

    def moved(sentence: Sentence) -> Sentence:
        words = tuple(
            word.model_copy(
                update={"span": moved_span(word.span, seconds) if word.span is not None else None}
            )
            for word in sentence.words
        )
        return sentence.model_copy(
            update={"span": moved_span(sentence.span, seconds), "words": words}
        )

    return transcript.model_copy(update={"sentences": tuple(map(moved, transcript.sentences))})


def moved_span(span: Span, seconds: float) -> Span:
    """Return the span so many seconds later, rounded to the microsecond; what would lie before 0 is
    cut off."""
    start = max(0.0, round(span.start + seconds, 6))
    return Span(start, max(round(span.end + seconds, 6), start + 1e-3))


def moved_target(target: ScreenTarget, seconds: float) -> ScreenTarget:
    """Return what is clicked so many seconds later."""
    return target.model_copy(update={"at": round(target.at + seconds, 6)})


def _moved_thing(thing: Statement, start: float) -> Statement:
    return thing.model_copy(update={"at": round(thing.at + start, 6)})


def _moved_step(step: Step, seconds: float) -> Step:
    return step.model_copy(
        update={
            "spans": tuple(moved_span(span, seconds) for span in step.spans),
            "at": round(step.at + seconds, 6) if step.at is not None else None,
            "said": moved_span(step.said, seconds) if step.said is not None else None,
            "target": moved_target(step.target, seconds) if step.target is not None else None,
        }
    )
