"""What a network must beat: steps placed without a look at the video, with captions that are common or near.

    places     uniform   as many equal parts as training videos have steps on average
               prior     as many; each where training videos of so many steps have theirs on average
    captions   common    the commonest sentence of the training data, for every step
               nearest   those of the training video whose mean feature row is the likest, in order
    nearest video        the likest training video's steps with their sentences, stretched to the length

Letters: K steps.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.evaluate.events import Event
from stepline.experiments.procx_corpus import events_of
from stepline.experiments.procx_trial import Guess
from stepline.procx.batch import Sample
from stepline.records import Matrix

Places: TypeAlias = Literal["uniform", "prior"]
Texts: TypeAlias = Literal["common", "nearest"]
Shares: TypeAlias = npt.NDArray[np.float64]  # (K, 2) start and end as fractions of a video


def guessed(train: Sequence[Sample], test: Sequence[Sample], guess: Guess) -> dict[str, list[Event]]:
    """Return what a baseline says of each test video, by its id."""
    if guess == "nearest video":
        return nearest_videos(train, test)
    places: Places = "uniform" if guess.startswith("uniform") else "prior"
    return placed(train, test, places, "common" if guess.endswith("common") else "nearest")


def placed(train: Sequence[Sample], test: Sequence[Sample], places: Places, texts: Texts) -> dict[str, list[Event]]:
    """Return the steps of each test video, by its id. Raises ShapeError without a training video that has a step."""
    count = typical_count(train)
    shares = even(count) if places == "uniform" else usual(train, count)
    common = Counter(text for one in train for text in one.sentences).most_common(1)[0][0]
    found = {}
    for one in test:
        sentences = [common] * count if texts == "common" else spread(nearest(train, one), count)
        found[one.id] = [(*span, text) for span, text in zip((shares * one.duration).tolist(), sentences, strict=True)]
    return found


def nearest_videos(train: Sequence[Sample], test: Sequence[Sample]) -> dict[str, list[Event]]:
    """Return for each test video the steps of the likest training video, stretched to its own length."""
    found = {}
    for one in test:
        like = nearest(train, one)
        scale = one.duration / like.duration
        found[one.id] = [(start * scale, end * scale, text) for start, end, text in events_of(like)]
    return found


def typical_count(train: Sequence[Sample]) -> int:
    """Return how many steps a training video has on average, rounded. Raises ShapeError where none has any."""
    counts = [len(one.spans) for one in train]
    if not sum(counts):
        raise ShapeError("no training video has a step; a baseline needs one at least")
    return max(1, round(float(np.mean(counts))))


def even(count: int) -> Shares:
    """Return a video cut into equal parts."""
    cuts = np.linspace(0.0, 1.0, count + 1)
    return np.stack((cuts[:-1], cuts[1:]), axis=1)


def usual(train: Sequence[Sample], count: int) -> Shares:
    """Return where the first, second, ... of K steps is on average in training videos with K steps, or nearest to K."""
    apart = [abs(len(one.spans) - count) if one.spans else np.inf for one in train]
    like = [_at_rank(one, count) for one, far in zip(train, apart, strict=True) if far == min(apart)]
    shares: Shares = np.mean(like, axis=0)
    return shares


def _at_rank(sample: Sample, count: int) -> Shares:
    """Return a sample's steps as fractions in the order of time, read at K evenly spaced ranks."""
    own = np.array(sorted(sample.spans)) / sample.duration
    ranks = np.linspace(0, len(own) - 1, count)
    return np.stack([np.interp(ranks, np.arange(len(own)), column) for column in own.T], axis=1)


def nearest(train: Sequence[Sample], sample: Sample) -> Sample:
    """Return the training video with steps whose mean feature row has the greatest cosine with the sample's."""
    able = [one for one in train if one.spans]
    own = _mean(sample)
    return max(able, key=lambda one: float(_mean(one) @ own))


def spread(sample: Sample, count: int) -> list[str]:
    """Return K of a video's sentences in the order of time, evenly chosen; some twice where it has fewer."""
    texts = [text for _, _, text in events_of(sample)]
    return [texts[int((place + 0.5) * len(texts) / count)] for place in range(count)]


def _mean(sample: Sample) -> Matrix:
    row = sample.values.mean(axis=0)
    unit: Matrix = row / max(float(np.linalg.norm(row)), 1e-12)
    return unit
