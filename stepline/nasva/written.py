"""Videos with the steps written for them, and labels that say where each step is placed; on disk as JSON.

Letters: K steps, T feature rows, C input width.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.batches import Flags, Sample
from stepline.errors import ShapeError, StoreError
from stepline.nasva.labels import Places
from stepline.nasva.targets import labelled_sample
from stepline.records import FeatureSequence, Matrix, Span
from stepline.store import write_atomic


@dataclass(frozen=True)
class Written:
    """A video and the steps written for it: vectors (K, C); said: where each is said, None where nobody says it.

    truth: (K, T) where each is really shown, of simulated videos; reports use it, nothing else does.
    Raises ShapeError when they do not fit together.
    """

    id: str
    features: FeatureSequence
    vectors: Matrix
    said: Places
    truth: Flags | None = None

    def __post_init__(self) -> None:
        if len(self.said) != len(self.vectors):
            raise ShapeError(f"{self.id}: {len(self.vectors)} step vectors need as many places, not {len(self.said)}")


def step_samples(
    videos: Iterable[Written], labels: Iterable[Places], *, keep_all: bool = False
) -> list[Sample]:
    """Return the steps as training samples: those with a label, or all; a video without any is left out."""
    samples = []
    for video, places in zip(videos, labels, strict=True):
        rows = [row for row, span in enumerate(places) if keep_all or span is not None]
        if rows:
            spans = [[span] if (span := places[row]) is not None else [] for row in rows]
            samples.append(labelled_sample(video.id, video.features, video.vectors[rows], spans, ordered=True))
    return samples


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


def unplaced(videos: Sequence[Written]) -> list[Sample]:
    """Return all steps of all videos as samples without a label, for a network to place; labels are of no effect."""
    return [labelled_sample(v.id, v.features, v.vectors, [()] * len(v.vectors), ordered=True) for v in videos]


def shifted(videos: Sequence[Written]) -> list[tuple[Written, Written]]:
    """Return each video with the one half the way round, whose texts it does not show."""
    half = max(1, len(videos) // 2)
    return [(video, videos[(place + half) % len(videos)]) for place, video in enumerate(videos)]
