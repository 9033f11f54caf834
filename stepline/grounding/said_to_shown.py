"""P(shown at t | said at s): how far from its words an action is seen, measured on WhenAct.

d is the signed distance of a second from the words: 0 while they are spoken, < 0 before, > 0 after.
The density of the shown second falls as a power of the distance, differently before and after:

    f(d) = (1 + |d| / scale) ** -power

normalised over the seconds of the video. A passage longer than `words` seconds may say its phrase
anywhere in it, so the curve is averaged over the possible positions. `lab/fit_shown_prior.py` fits
the numbers in `shown_prior.json`, and `lab/whenact.py` measures them. WhenAct's clips are one minute
long. Beyond that the tail is an extrapolation.
"""

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from stepline.numeric import sum_to_one
from stepline.records import Span

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ShownPrior:
    """The fitted distribution of when an action is shown, relative to when it is said.

    Attributes:
        before_scale: scale of the density before the words, in seconds.
        before_power: exponent of the density before the words.
        after_scale: scale of the density after the words, in seconds.
        after_power: exponent of the density after the words.
        words: longest passage that counts as one phrase, in seconds.
        shown_median: median duration of an action, in seconds.
        shown_rate: P(an action that is said is shown in its clip).
    """

    before_scale: float
    before_power: float
    after_scale: float
    after_power: float
    words: float
    shown_median: float
    shown_rate: float

    def density(self, distance: Array) -> Array:
        """Return the unnormalised density of being shown at a distance from the words, 1 at distance 0.

        distance: seconds from the words, of any shape, negative before them.
        """
        is_before = distance < 0
        scale = np.where(is_before, self.before_scale, self.after_scale)
        power = np.where(is_before, self.before_power, self.after_power)
        stretched = 1 + np.abs(distance) / scale
        return np.asarray(stretched**-power)

    def distribution(
        self,
        passages: Sequence[Span],
        seconds: int,
        *,
        weights: Array | None = None,
        lag: float = 0.0,
    ) -> Array:
        """Return P(the action is shown in second t | it is said in these passages), (T,).

        It is uniform without a passage.

        Args:
            passages: P spans that may say the action.
            seconds: T.
            weights: (P,) P(the passage says the action). If their sum is below 1, the rest is spread
                over all seconds. None: all passages count equally.
            lag: seconds by which the pictures of this video follow its words.
        """
        if not passages or seconds == 0:
            return np.full(seconds, 1 / max(1, seconds))
        densities = [self._densities(span, seconds, lag).mean(axis=0) for span in passages]
        if weights is None:
            return np.asarray(np.mean(densities, axis=0))
        unsaid = max(0.0, 1 - float(weights.sum()))
        by_passage = weights @ np.array(densities)
        return np.asarray(by_passage + unsaid / seconds)

    def _densities(self, span: Span, seconds: int, lag: float) -> Array:
        """Return, for each of N possible positions of a short phrase in a long spoken passage,
        P(the action is shown in second t), (N, T).

        A passage that is longer than `words` seconds says the action in one phrase of that length,
        at an unknown position.

        Args:
            span: the passage in seconds.
            seconds: T, number of seconds.
            lag: seconds by which the video shows actions later than the speech says them.
        """
        length = min(self.words, span.duration)
        count = max(1, math.ceil(span.duration / self.words))
        numbers = np.arange(count)[:, None]
        fraction = (numbers + 0.5) / count  # (P, 1)
        starts = span.start + lag + fraction * (span.duration - length)
        middles = np.arange(0.5, seconds)
        return sum_to_one(self.density(signed_distance(middles, starts, starts + length)))


def signed_distance(t: Array, start: Array, end: Array) -> Array:
    """Return the seconds from spans to times: 0 inside a span, negative before it, positive after
    it. The arguments broadcast to the shape of the result.

    Args:
        t: times in seconds.
        start: starts of the spans in seconds.
        end: ends of the spans in seconds.
    """
    return np.minimum(t - start, 0) + np.maximum(t - end, 0)


@functools.cache
def load_prior() -> ShownPrior:
    """Return the fitted distribution of the seconds between words and action, from a file of the package."""
    file = resources.files("stepline.grounding") / "shown_prior.json"
    tree = json.loads(file.read_text(encoding="utf-8"))
    return ShownPrior(**tree["curve"])
