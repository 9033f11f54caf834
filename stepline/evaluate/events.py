"""Dense captioning's events, (start, end, caption) in seconds, checked and compared as the field's
scorers do.

Plain numbers on purpose. Reversed, negative, zero-length and repeated segments occur in real
annotations, and the official scorers give them a value. Only what has no value is refused.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.ptb import Tokenizer, only_ascii

logger = logging.getLogger(__name__)

Event: TypeAlias = tuple[float, float, str]
EventsByVideo: TypeAlias = Mapping[str, Sequence[Event]]
Matrix: TypeAlias = npt.NDArray[np.float64]

# pairs of segments compared in one video. 5,000 events on either side, 1 GB
MAX_SEGMENT_PAIRS = 25_000_000
_UNION_EPSILON = 1e-8  # the official scorers' guard against 0 / 0


@dataclass(frozen=True)
class Coverage:
    """Video ids of a scoring.

    scored: in the reference's order.
    missing: in the reference alone.
    extra: not in it.
    """

    scored: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]


def cover_videos(
    references: Sequence[EventsByVideo], predictions: EventsByVideo, missing: str
) -> Coverage:
    """Return which videos are scored: all of the references ("zero"), or those with predictions
    ("skip").

    Raises DatasetError when the reference is empty or shares no video with the predictions.
    """
    # in the order of the references, each once
    ids: dict[str, None] = {}
    for reference in references:
        ids |= dict.fromkeys(reference)
    if not ids:
        raise DatasetError("the reference holds no video; give at least one with its events")
    if missing not in ("zero", "skip"):
        fault = f"missing={missing!r}: not a rule for missing videos"
        raise DatasetError(f"{fault}; give 'zero' or 'skip'")
    predicted = tuple(video for video in ids if video in predictions)
    absent = tuple(video for video in ids if video not in predictions)
    if not predicted:
        fault = f"no video of the reference (such as {absent[0]!r}) has predictions"
        raise DatasetError(f"{fault}; make the ids agree")
    extra = tuple(video for video in predictions if video not in ids)
    return Coverage(predicted if missing == "skip" else tuple(ids), absent, extra)


def require_events(
    video: str, events: Iterable[Event], role: Literal["reference", "predicted"]
) -> list[Event]:
    """Return the events as a list.

    Raises DatasetError for one without finite times or whose caption is not a text, and for a
    reference without any.
    """
    checked = list(events)
    for index, event in enumerate(checked):
        name = f"{video}, {role} event {index}"
        if len(event) != 3 or not isinstance(event[2], str):
            raise DatasetError(f"{name}: {event!r} is not (start, end, caption)")
        start, end, _ = event
        if not (_is_finite(start) and _is_finite(end)):
            raise DatasetError(f"{name}: time {start}-{end} is not finite; leave it out")
    if role == "reference" and not checked:
        raise DatasetError(f"{video}: the reference has no event; leave the video out")
    return checked


def _is_finite(time: object) -> bool:
    return isinstance(time, int | float | np.number) and math.isfinite(time)


def times(events: Sequence[Event]) -> Matrix:
    """Return (N, 2): start and end of each event."""
    pairs = [event[:2] for event in events]
    return np.array(pairs, dtype=np.float64).reshape(len(events), 2)


def segment_iou(first: Matrix, second: Matrix) -> Matrix:
    """Return (N, M): intersection over union of every two segments.

    The union is the hull where they overlap and the sum of the lengths where they do not. A
    reversed segment overlaps nothing. Raises DatasetError beyond MAX_SEGMENT_PAIRS.
    """
    if len(first) * len(second) > MAX_SEGMENT_PAIRS:
        fault = f"{len(first)} x {len(second)} segments in one video"
        raise DatasetError(f"{fault}; score at most {MAX_SEGMENT_PAIRS} pairs")
    first_starts = first[:, None, 0]  # (N, 1)
    first_ends = first[:, None, 1]
    second_starts = second[None, :, 0]  # (1, M)
    second_ends = second[None, :, 1]
    # (N, M) all
    starts = np.maximum(first_starts, second_starts)
    ends = np.minimum(first_ends, second_ends)
    hull_starts = np.minimum(first_starts, second_starts)
    hull_ends = np.maximum(first_ends, second_ends)
    lengths = (first_ends - first_starts) + (second_ends - second_starts)
    union = np.minimum(hull_ends - hull_starts, lengths)
    union = np.maximum(union, 0.0)
    return np.asarray(np.maximum(ends - starts, 0.0) / (union + _UNION_EPSILON))


class EventTokenizer:
    """Turns events into the tokens of their captions. It warns once of a caption that an English
    scorer cannot read."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer()
        self._warned = False

    def tokens(self, events: Iterable[Event]) -> list[str]:
        """Return the tokens of each event's caption, joined by spaces."""
        return [self.caption_tokens(caption) for _, _, caption in events]

    def caption_tokens(self, caption: str) -> str:
        """Return the tokens of a caption, joined by spaces."""
        tokens = self._tokenizer(only_ascii(caption))
        if not tokens and not self._warned and any(map(str.isalnum, caption)):
            logger.warning(
                "%.40r: no ASCII letter; the English scorers read it, and all like it, as empty",
                caption,
            )
            self._warned = True
        return tokens
