"""Videos with the steps written for them, and labels that say where each step is placed; on disk as JSON.

Letters: K steps, T feature rows, C input width.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepline.batches import Flags, LazySamples, Sample
from stepline.errors import ShapeError, StoreError
from stepline.nasva.labels import Places
from stepline.nasva.targets import labelled_sample
from stepline.records import FeatureSequence, Matrix, Span
from stepline.store import write_atomic


@dataclass(frozen=True)
class Written:
    """A video and the steps written for it; said: where each of the K is said, None where nobody says it.

    rows: of its features, rate a second. read: returns the features and the step vectors (K, C), from disk where they
    lie there. truth: (K, T) where each step is really shown, of simulated videos; reports use it, nothing else does.
    """

    id: str
    said: Places
    rows: int
    rate: float
    read: Callable[[], tuple[FeatureSequence, Matrix]]
    truth: Flags | None = None


def written(id: str, features: FeatureSequence, vectors: Matrix, said: Places, truth: Flags | None = None) -> Written:
    """Return a video whose features and vectors are in memory. Raises ShapeError when they do not fit together."""
    if len(said) != len(vectors):
        raise ShapeError(f"{id}: {len(vectors)} step vectors need as many places, not {len(said)}")
    return Written(id, said, len(features.values), features.rate, lambda: (features, vectors), truth)


def step_samples(videos: Sequence[Written], labels: Sequence[Places], *, keep_all: bool = False) -> LazySamples:
    """Return the steps as training samples: those with a label, or all; a video without any is left out."""
    chosen = []
    for video, places in zip(videos, labels, strict=True):
        texts = [text for text, span in enumerate(places) if keep_all or span is not None]
        if texts:
            chosen.append((video, texts, [[span] if (span := places[text]) is not None else [] for text in texts]))

    def make(index: int) -> Sample:
        video, texts, spans = chosen[index]
        features, vectors = video.read()
        return labelled_sample(video.id, features, vectors[texts], spans, ordered=True)

    return LazySamples(make, [video.rows for video, _, _ in chosen])


def unplaced(videos: Sequence[Written]) -> LazySamples:
    """Return all steps of all videos as samples without a label, for a network to place."""
    return step_samples([*videos], [(None,) * len(video.said) for video in videos], keep_all=True)


def together(first: LazySamples, others: Sequence[Sample]) -> LazySamples:
    """Return the samples of both."""
    lengths = others.lengths if isinstance(others, LazySamples) else [len(sample.video) for sample in others]
    count = len(first)
    return LazySamples(lambda at: first[at] if at < count else others[at - count], [*first.lengths, *lengths])


def with_foreign_texts(videos: Sequence[Written]) -> list[Written]:
    """Return each video with the texts of the one half the way round, which it does not show."""
    half = max(1, len(videos) // 2)
    return [_mixed(video, videos[(place + half) % len(videos)]) for place, video in enumerate(videos)]


def _mixed(video: Written, other: Written) -> Written:
    return replace(video, said=other.said, read=lambda: (video.read()[0], other.read()[1]), truth=None)


def write_labels(path: Path, ids: Sequence[str], labels: Sequence[Places]) -> None:
    """Write where the texts of each video are placed."""
    pairs = [[None if span is None else [span.start, span.end] for span in places] for places in labels]
    write_atomic(path, json.dumps(dict(zip(ids, pairs, strict=True))) + "\n")


def read_labels(path: Path, videos: Sequence[tuple[str, int]]) -> tuple[Places, ...]:
    """Return the labels of videos, each an id and its number of texts. Raises StoreError where they do not fit."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        labels = tuple(tuple(None if pair is None else Span(*pair) for pair in tree[id]) for id, _ in videos)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{path}: no labels of these videos ({error}); remove the folder to start again") from error
    if [len(places) for places in labels] != [count for _, count in videos]:
        raise StoreError(f"{path}: labels of other texts; remove the folder to start again")
    return labels
