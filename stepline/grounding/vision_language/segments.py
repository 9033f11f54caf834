"""Segments of a video, and the beliefs of a grounding about them: from seconds to segments and back.

A segment is a shot, or a part of about 7 s of a long shot. It is shown to the model as a picture.
Letters: K steps, T seconds, M segments.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepline.grounding.fusion import (
    UNCONFIRMED,
    occupancy,
    picture_status,
    separate_overlapping_spans,
    with_status,
)
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.grounding.vision_language.reliability import MIN_SEGMENTS_PROBABILITY
from stepline.llm.pictures import PictureReader, jpeg
from stepline.media import MediaSettings, read_frames_at
from stepline.numeric import MIN_NORM
from stepline.records import Alignment, Step

# seconds of a long shot that hold about one step (WhenAct's shown spans: median 8)
PART_SECONDS = 7.0
MAX_WHOLE_PARTS = 1.5  # a shot longer than this number of parts is split
# fraction of the greatest probability, below which a segment is left out of the row of a moved step
MIN_PROBABILITY_FRACTION = 0.01
MIN_SHOWN_CHANGE = 0.02  # of P(shown), below which a step does not change
# before the end of a video, where its last picture is certainly visible
LAST_PICTURE_SECONDS = 0.1


def last_picture_second(duration: float) -> float:
    """Return the last second at which a picture of a video can be read. duration: in seconds."""
    return max(0.0, duration - LAST_PICTURE_SECONDS)


def video_segments(shots: Sequence[slice]) -> list[slice]:
    """Return the segments of a video: its shots, with long shots in parts of about 7 s.

    Args:
        shots: slices of whole seconds that cover the video.
    """
    return [part for shot in shots for part in split_shot(shot)]


def split_shot(shot: slice) -> list[slice]:
    """Return the parts of a shot: itself up to 10.5 s, else equal parts of about 7 s.

    shot: slice of whole seconds.
    """
    length = shot.stop - shot.start
    count = round(length / PART_SECONDS) if length > MAX_WHOLE_PARTS * PART_SECONDS else 1
    edges = [shot.start + round(length * n / count) for n in range(count + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]


def segment_probabilities(
    steps: Sequence[Step], alignment: Alignment, segments: Sequence[slice]
) -> Array:
    """Return P(step k is shown in segment m), (K, M + 1). The last column is P(not shown).

    Args:
        steps: K grounded steps with scores.
        alignment: (K, T) P(step k is being shown in second t), one column per second.
        segments: M slices of whole seconds.
    """
    rows = alignment.scores.astype(np.float64)
    # The mass of each segment. No segment has probability 0.
    mass = np.stack([rows[:, segment].sum(axis=1) for segment in segments], axis=1)  # (K, M)
    total = mass.sum(axis=1, keepdims=True)
    mass = mass / np.maximum(total, MIN_NORM)
    mass = mass + MIN_SEGMENTS_PROBABILITY / len(segments)
    # P(shown) is never 0 or 1, so that answers can change it.
    scores = [step.score or 0.0 for step in steps]
    p_shown = np.clip(scores, 0.01, 0.99)[:, None]  # (K, 1)
    in_segments = p_shown * mass / mass.sum(axis=1, keepdims=True)
    return np.concatenate([in_segments, 1 - p_shown], axis=1)


def picture_seconds(alignment: Alignment, segments: Sequence[slice], duration: float) -> Array:
    """Return the second of the picture that shows segment m in a question about step k, (K, M).

    It is the step's most likely second in the segment if that is a local maximum, else the middle.

    Args:
        alignment: (K, T) P(step k is being shown in second t), one column per second.
        segments: M slices of whole seconds.
        duration: duration of the video in seconds.
    """
    middles = [(segment.start + segment.stop) // 2 + 0.5 for segment in segments]
    steps = len(alignment.scores)
    seconds = np.tile(middles, (steps, 1))
    # padded, so that the first and last second have neighbours
    padded = np.pad(alignment.scores, ((0, 0), (1, 1)))
    for k, row in enumerate(padded):
        for m, segment in enumerate(segments):
            scores = row[segment.start + 1 : segment.stop + 1]
            best = segment.start + int(scores.argmax())
            # in the padded row, the second itself is at `best + 1`
            before = row[best]
            after = row[best + 2]
            if row[best + 1] > max(before, after):
                seconds[k, m] = best + 0.5
    return np.asarray(np.minimum(seconds, last_picture_second(duration)))


def update_placements(
    steps: Sequence[Step],
    alignment: Alignment,
    shots: Sequence[slice],
    seconds: Array,
    old_probabilities: Array,
    new_probabilities: Array,
    *,
    duration: float,
    settings: GroundSettings,
) -> tuple[tuple[Step, ...], Alignment]:
    """Return the steps and their alignment after new probabilities of where each step is shown.

    A step whose most likely segment is the same keeps its second. It does not change at all if its P(shown)
    is also about the same.

    Args:
        steps: K grounded steps.
        alignment: (K, T) P(step k is being shown in second t), one column per second.
        shots: slices of whole seconds that cover the video.
        seconds: (K, M) second around which step k is shown, if it is shown in segment m.
        old_probabilities: (K, M + 1), from `segment_probabilities`.
        new_probabilities: (K, M + 1), with the same columns.
        duration: duration of the video in seconds.
        settings: settings of grounding, for spans and statuses.
    """
    rows = alignment.scores.astype(np.float64)
    moved = list(steps)
    # steps with another segment, or another P(shown)
    old_segments = old_probabilities[:, :-1].argmax(axis=1)  # (K,)
    stays = old_segments == new_probabilities[:, :-1].argmax(axis=1)  # (K,)
    changes = np.abs(new_probabilities - old_probabilities)[:, -1]
    is_moved = ~stays | (changes > MIN_SHOWN_CHANGE)
    for k in np.flatnonzero(is_moved).tolist():
        score = float(1 - new_probabilities[k, -1])
        if stays[k]:
            # The same segment: the row keeps its shape.
            row = rows[k] / max(rows[k].max(), MIN_NORM)
        else:
            # Another segment: the row follows from the new probabilities.
            beliefs = new_probabilities[k, :-1]
            row = _shown_by_second(beliefs, seconds[k], score, rows.shape[1], settings)
        step = steps[k]
        if step.said is not None and score < settings.shown_threshold:  # it stays where it was
            status = picture_status(None, step.doubt or UNCONFIRMED) if step.spans else {}
            moved[k] = step.model_copy(update={"score": score, **status})
        else:
            moved[k] = with_status(step, row, score, shots, duration, settings, basis="vlm")
        rows[k] = row * score
    scores = rows.astype(np.float32)
    return separate_overlapping_spans(moved), replace(alignment, scores=scores)


def _shown_by_second(
    beliefs: Array, seconds: Array, score: float, second_count: int, settings: GroundSettings
) -> Array:
    """Return P(the step is being shown in second t | it is shown), (T,), from its likely segments.

    Args:
        beliefs: (M,) P(the step is shown in each segment).
        seconds: (M,) second around which the step is shown in each segment.
        score: P(the step is shown).
        second_count: T, number of seconds.
        settings: settings of grounding, with the typical duration of a step.
    """
    likely = np.flatnonzero(beliefs > MIN_PROBABILITY_FRACTION * beliefs.max())
    columns = np.minimum(seconds[likely].astype(int), second_count - 1)
    centers = np.zeros((len(likely), second_count))
    centers[np.arange(len(likely)), columns] = 1.0
    shapes = occupancy(centers, settings.typical)
    by_segment = shapes * beliefs[likely, None] / score
    # the maximum, since a sum could peak between two segments
    row: Array = by_segment.max(axis=0)
    return row


def picture_reader(path: Path, size: int, *, start: float, media: MediaSettings) -> PictureReader:
    """Return a function that reads pictures of a video: seconds -> {second: JPEG}.

    Args:
        path: path of the video.
        size: pixels of a picture's shorter side.
        start: second of the video from which the seconds count.
        media: settings of decoding.
    """

    def read(seconds: Sequence[float]) -> dict[float, bytes]:
        second_by_time = {start + second: second for second in seconds}
        frames = read_frames_at(path, list(second_by_time), settings=media, shorter=size)
        return {second_by_time[frame.time]: jpeg(frame.image) for frame in frames}

    return read
