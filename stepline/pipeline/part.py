"""A part of a video: only its seconds are heard and looked at, on a clock of its own. Results have
the whole video's.

    part_info(info, part)                  what the file holds, as long as the part; part: None where it is all of it
    transcript_within(transcript, part)    captions of the whole video -> those of the part
    features_within(features, part)        ready rows of the whole video -> those of the part
    in_whole_video(record, ..., start)     times of the part -> times of the whole video

`media.MediaReader` reads the part.
"""

import math
from collections.abc import Sequence
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
        reason = f"--from {part.start:g} s: the video lasts {info.duration:.1f} s"
        raise SettingsError(f"{info.path}: {reason}; give an earlier second")
    end = min(part.end, info.duration)
    return replace(info, duration=end - part.start)


def transcript_within(transcript: Transcript, part: Span | None) -> Transcript:
    """Return the sentences that begin in a part, on its clock."""
    if part is None:
        return transcript
    inside = []
    for sentence in transcript.sentences:
        if sentence.span.start in part:
            inside.append(sentence)
    of_part = transcript.model_copy(update={"sentences": tuple(inside)})
    return moved_transcript(of_part, -part.start)


def features_within(features: FeatureSequence, part: Span | None) -> FeatureSequence:
    """Return the rows of a part of the video, from the row in which it begins."""
    if part is None:
        return features
    # Whole rows: the one in which the part begins, to the one in which it ends.
    first = math.floor(part.start * features.rate)
    end = math.ceil(part.end * features.rate)
    return replace(features, values=features.values[first:end])


def in_whole_video(
    record: Record, alignment: Alignment | None, start: float
) -> tuple[Record, Alignment | None]:
    """Return what was found in a part with the times of the whole video. start: second at which the
    part begins."""
    transcript = None
    if record.transcript is not None:
        transcript = moved_transcript(record.transcript, start)
    moved = record.model_copy(
        update={
            "transcript": transcript,
            "steps": _moved_steps(record.steps, start),
            "captions": _moved_steps(record.captions, start),
            "materials": _moved_statements(record.materials, start),
            "tools": _moved_statements(record.tools, start),
            "yields": _moved_statements(record.yields, start),
            "times": _moved_statements(record.times, start),
        }
    )
    if alignment is not None:
        # nothing is known of the rows before
        before = round(start * alignment.rate)
        scores = np.pad(alignment.scores, ((0, 0), (before, 0)))  # (K, before + T)
        alignment = replace(alignment, scores=scores)
    return moved, alignment


def moved_transcript(transcript: Transcript, seconds: float) -> Transcript:
    """Return the transcript that many seconds later."""
    sentences = [_moved_sentence(sentence, seconds) for sentence in transcript.sentences]
    return transcript.model_copy(update={"sentences": tuple(sentences)})


def _moved_sentence(sentence: Sentence, seconds: float) -> Sentence:
    words = []
    for word in sentence.words:
        word_span = moved_span(word.span, seconds) if word.span is not None else None
        words.append(word.model_copy(update={"span": word_span}))
    span = moved_span(sentence.span, seconds)
    return sentence.model_copy(update={"span": span, "words": tuple(words)})


def moved_span(span: Span, seconds: float) -> Span:
    """Return the span that many seconds later, rounded to the microsecond. What would be before 0
    is cut off."""
    # Rounding hides the error of adding floats. A span never becomes empty.
    start = max(0.0, round(span.start + seconds, 6))
    end = round(span.end + seconds, 6)
    return Span(start, max(end, start + 1e-3))


def moved_target(target: ScreenTarget, seconds: float) -> ScreenTarget:
    """Return what is clicked that many seconds later."""
    return target.model_copy(update={"at": round(target.at + seconds, 6)})


def _moved_statements(statements: tuple[Statement, ...], seconds: float) -> tuple[Statement, ...]:
    moved = []
    for statement in statements:
        at = round(statement.at + seconds, 6)
        moved.append(statement.model_copy(update={"at": at}))
    return tuple(moved)


def _moved_steps(steps: Sequence[Step], seconds: float) -> tuple[Step, ...]:
    moved = []
    for step in steps:
        spans = [moved_span(span, seconds) for span in step.spans]
        update: dict[str, object] = {"spans": tuple(spans)}
        if step.at is not None:
            update["at"] = round(step.at + seconds, 6)
        if step.said is not None:
            update["said"] = moved_span(step.said, seconds)
        if step.target is not None:
            update["target"] = moved_target(step.target, seconds)
        moved.append(step.model_copy(update=update))
    return tuple(moved)
