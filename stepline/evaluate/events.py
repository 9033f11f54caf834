"""Events of dense captioning, (start, end, caption) in seconds, as the field's scorers compare them.

Reversed, negative, empty and repeated segments occur in real annotations, and the official scorers
give them a value. So events are plain tuples, and only an event without finite times is refused.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats
from stepline.evaluate.ptb import Tokenizer, replace_non_ascii

logger = logging.getLogger(__name__)

Event = tuple[float, float, str]
EventsByVideo = Mapping[str, Sequence[Event]]

# pairs of segments compared in one video. 5,000 events on either side, 1 GB
MAX_SEGMENT_PAIRS = 25_000_000
_UNION_EPSILON = 1e-8  # the official scorers' guard against 0 / 0


def check_events(video: str, reference: Sequence[Event], predictions: Sequence[Event]) -> None:
    """Raise DatasetError if a video has no reference event, or an event whose times are not finite.

    Args:
        video: id of the video, for the message.
        reference: annotated events (start, end, caption).
        predictions: predicted events (start, end, caption).
    """
    if not reference:
        raise DatasetError(f"{video}: the reference has no event; leave the video out")
    for role, events in (("reference", reference), ("predicted", predictions)):
        for index, (start, end, _) in enumerate(events):
            if not (math.isfinite(start) and math.isfinite(end)):
                raise DatasetError(
                    f"{video}, {role} event {index}: time {start}-{end} is not finite; leave it out"
                )


def event_times(events: Sequence[Event]) -> Floats:
    """Return (N, 2) the start and end of each of N events, in seconds."""
    return np.array([event[:2] for event in events], dtype=np.float64).reshape(len(events), 2)


def segment_iou(first: Floats, second: Floats) -> Floats:
    """Return the temporal IoU (N, M) of each of N segments with each of M segments.

    The union of two overlapping segments is the time from the first start to the last end. For
    other segments it is the sum of the lengths. A reversed segment overlaps nothing.

    Args:
        first: (N, 2) start and end in seconds.
        second: (M, 2) start and end in seconds.

    Raises DatasetError for more than MAX_SEGMENT_PAIRS pairs.
    """
    if len(first) * len(second) > MAX_SEGMENT_PAIRS:
        raise DatasetError(
            f"{len(first)} x {len(second)} segments in one video"
            f"; score at most {MAX_SEGMENT_PAIRS} pairs"
        )
    first_starts, first_ends = first.T[:, :, None]  # (N, 1)
    second_starts, second_ends = second.T  # (M,)
    shared = np.minimum(first_ends, second_ends) - np.maximum(first_starts, second_starts)
    hull = np.maximum(first_ends, second_ends) - np.minimum(first_starts, second_starts)
    lengths = (first_ends - first_starts) + (second_ends - second_starts)
    union = np.maximum(np.minimum(hull, lengths), 0.0)
    return np.asarray(np.maximum(shared, 0.0) / (union + _UNION_EPSILON))  # (N, M)


class EventTokenizer:
    """Tokenizes the captions of events. It warns once if a caption has no ASCII letter."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer()
        self._has_warned = False

    def tokens(self, events: Iterable[Event]) -> list[str]:
        """Return each event's caption as tokens joined by spaces."""
        return [self.caption_tokens(caption) for _, _, caption in events]

    def caption_tokens(self, caption: str) -> str:
        """Return a caption as tokens joined by spaces."""
        tokens = self._tokenizer(replace_non_ascii(caption))
        if not tokens and not self._has_warned and any(map(str.isalnum, caption)):
            logger.warning(
                "%.40r: no ASCII letter; the English scorers read it, and all like it, as empty",
                caption,
            )
            self._has_warned = True
        return tokens
