"""Places of a video that a question can offer, and a grounding's beliefs over them: from seconds to
places and back.

A place is a shot, or a piece of about 7 s of a long one. It is shown to the model as a picture.
Letters: K steps, T seconds, P places.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepline.grounding.fusion import occupancy, separate_overlapping_spans, with_verdict
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.grounding.shots import split_shot
from stepline.grounding.vision_language.reliability import MIN_PLACES_PROBABILITY
from stepline.llm.pictures import PictureReader, jpeg
from stepline.media import MediaSettings, read_frames_at
from stepline.numeric import MIN_NORM
from stepline.records import Alignment, Step

# share of the most likely place's belief, below which a place is left out of a moved step's row
MIN_PROBABILITY_FRACTION = 0.01
MIN_SHOWN_CHANGE = 0.02  # of P(shown), below which a step stays as it was
# s before the end of a video at which its last picture is surely shown
LAST_PICTURE_SECONDS = 0.1


def last_picture_second(duration: float) -> float:
    """Return the last second of a video at which a picture is surely shown."""
    return max(0.0, duration - LAST_PICTURE_SECONDS)


def video_places(shots: Sequence[slice]) -> list[slice]:
    """Return the places of a video as slices of whole seconds that cover it. shots: (C,)
    likewise."""
    places = []
    for shot in shots:
        places += split_shot(shot)
    return places


def place_probabilities(
    steps: Sequence[Step], alignment: Alignment, places: Sequence[slice]
) -> Array:
    """Return (K, P + 1): P(step k is shown in place p), the last column P(it is not shown).

    steps: as grounded, with their scores. alignment: P(step k is being shown at t), one column per
    second.
    """
    rows = alignment.scores.astype(np.float64)
    # The share of a step's seconds in each place. No place is ruled out.
    columns = [rows[:, place].sum(axis=1) for place in places]
    mass = np.stack(columns, axis=1)  # (K, P)
    total = mass.sum(axis=1, keepdims=True)
    mass = mass / np.maximum(total, MIN_NORM)
    mass = mass + MIN_PLACES_PROBABILITY / len(places)
    # P(shown) is never certain, so that answers can move it.
    scores = [step.score or 0.0 for step in steps]
    is_shown = np.clip(scores, 0.01, 0.99)
    is_shown = is_shown[:, None]  # (K, 1)
    in_places = is_shown * mass / mass.sum(axis=1, keepdims=True)
    return np.concatenate([in_places, 1 - is_shown], axis=1)


def picture_seconds(alignment: Alignment, places: Sequence[slice], duration: float) -> Array:
    """Return (K, P): the second whose picture stands for a place when a step is asked about.

    The step's most likely second there where it is more likely than those around it, else the
    middle.
    """
    middles = [(place.start + place.stop) // 2 + 0.5 for place in places]
    steps = len(alignment.scores)
    seconds = np.tile(middles, (steps, 1))
    # A column more on both sides, so that the ends have neighbours.
    padded = np.pad(alignment.scores, ((0, 0), (1, 1)))
    for k, row in enumerate(padded):
        for p, place in enumerate(places):
            scores = row[place.start + 1 : place.stop + 1]
            best = place.start + int(scores.argmax())
            # In the padded row the second itself is at `best + 1`.
            before = row[best]
            after = row[best + 2]
            if row[best + 1] > max(before, after):
                seconds[k, p] = best + 0.5
    return np.asarray(np.minimum(seconds, last_picture_second(duration)))


def move_steps(
    steps: Sequence[Step],
    alignment: Alignment,
    shots: Sequence[slice],
    seconds: Array,
    before: Array,
    after: Array,
    *,
    duration: float,
    settings: GroundSettings,
) -> tuple[tuple[Step, ...], Alignment]:
    """Return the steps and alignment moved to the place probabilities `after`.

    seconds: (K, P), around which a step is shown if in that place. before, after: (K, P + 1). Where
    the most likely place stays, so does the second. Where P(shown) stays too, so does the whole
    step.
    """
    rows = alignment.scores.astype(np.float64)
    moved = list(steps)
    # Which steps have another place, or another P(shown).
    old_places = before[:, :-1].argmax(axis=1)  # (K,)
    new_places = after[:, :-1].argmax(axis=1)
    stays = old_places == new_places
    changes = np.abs(after - before)[:, -1]
    is_moved = ~stays | (changes > MIN_SHOWN_CHANGE)
    for k in np.flatnonzero(is_moved).tolist():
        score = float(1 - after[k, -1])
        if stays[k]:
            # The same place: the row keeps its shape.
            greatest = max(rows[k].max(), MIN_NORM)
            row = rows[k] / greatest
        else:
            # Another place: the row is made of the beliefs.
            beliefs = after[k, :-1]
            row = _shown_by_second(beliefs, seconds[k], shots, score, rows.shape[1], settings)
        moved[k] = with_verdict(steps[k], row, score, shots, duration, settings)
        rows[k] = row * score
    scores = rows.astype(np.float32)
    return separate_overlapping_spans(moved), replace(alignment, scores=scores)


def _shown_by_second(
    beliefs: Array,
    seconds: Array,
    shots: Sequence[slice],
    score: float,
    count: int,
    settings: GroundSettings,
) -> Array:
    """Return P(shown in the second), (T,), of a step that its most likely places show. beliefs,
    seconds: (P,). score: P(shown). count: T."""
    likely = np.flatnonzero(beliefs > MIN_PROBABILITY_FRACTION * beliefs.max())
    columns = seconds[likely].astype(int)
    columns = np.minimum(columns, count - 1)
    numbers = np.arange(len(likely))
    centers = np.zeros((len(likely), count))
    centers[numbers, columns] = 1.0
    shapes = occupancy(centers, shots, settings.typical)
    by_place = shapes * beliefs[likely, None] / score
    # not their sum, whose peak is between two places
    row: Array = by_place.max(axis=0)
    return row


def picture_reader(
    path: Path, size: int, *, start: float = 0.0, media: MediaSettings | None = None
) -> PictureReader:
    """Return a function that reads JPEGs of a video by their seconds.

    Args:
        path: of the video.
        size: pixels of a picture's shorter side.
        start: second of the video from which the seconds count.
        media: limits and options of decoding.
    """

    def read(seconds: Sequence[float]) -> dict[float, bytes]:
        second_by_time = {start + second: second for second in seconds}
        frames = read_frames_at(path, list(second_by_time), settings=media, shorter=size)
        return {second_by_time[frame.time]: jpeg(frame.image) for frame in frames}

    return read
