"""New labels from a network's alignment matrices: the second stage of NaSVA (section 3.3, tables 3,
8 and 9).

For instance, 2 texts in a video of 4 s, with the cosine eps2 = 0.5, position = "start" and seconds
= 2:

    A[0] = 0.1  0.9  0.7  0.2      best 0.9 in second 1      Span(1, 3)
    A[1] = 0.3  0.2  0.1  0.4      best 0.4 is under 0.5     None
    find_label_candidates([A], 1.0, settings) -> choose_labels -> ((Span(1, 3), None),)

In general:

    best_k  = argmax_t A[k, t]                 a text whose best score is under eps2 loses its label
    label_k = [best_k, best_k + seconds)       or around it, or grown while A >= zeta A[best_k]

In this file: labels from matrices, videos with written steps, labels on disk (JSON), matrices of
many videos, and the changes of a round of labelling (`RoundReport`). Letters: K texts or steps, T
feature rows, C width of a feature row, V videos.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from stepline.errors import ShapeError, StoreError
from stepline.files.atomic_files import write_atomic
from stepline.grounding.speech import grow_window
from stepline.limits import parse_json
from stepline.models.nasva.dataset import make_labelled_sample
from stepline.models.nasva.model import Aligner, AlignerOutput
from stepline.models.nasva.settings import RefineSettings
from stepline.models.training.batches import (
    MAX_ROWS,
    LazySamples,
    Mask,
    Sample,
    collate,
    get_lengths_and_shards,
    plan_batches,
)
from stepline.networks.device import device_of
from stepline.records import FeatureSequence, Matrix, Span

log = logging.getLogger(__name__)

# where each text of one video is placed (None: it has no label)
StepSpans = tuple[Span | None, ...]

LEAST_KEPT_SHARE = 0.02  # of the texts, below which labelling is an error
MIN_LABELLED_SHARE = 0.05  # of the texts, below which there is a warning


@dataclass(frozen=True, slots=True)
class LabelCandidates:
    """What is kept of a video's cosine matrices (K, T) to choose its labels. The matrices of a
    whole dataset do not fit into memory.

    Attributes:
        spans: (K, 2) start and end in seconds of each text's label, if it gets one.
        best_cosines: (K,) best cosine of each text.
        teachers_agree: (K,) whether the best rows of all teacher networks are close together.
    """

    spans: npt.NDArray[np.float64]
    best_cosines: Matrix
    teachers_agree: Mask


def find_label_candidates(
    matrices: Sequence[Matrix], rate: float, settings: RefineSettings
) -> LabelCandidates:
    """Return the possible label of each text of a video.

    Args:
        matrices: (K, T) cosines of each teacher. Labels come from their mean.
        rate: feature rows per second.
        settings: length and position of labels, and how far teachers may differ.
    """
    # The teachers' mean says where.
    mean = np.asarray(np.mean(matrices, axis=0), dtype=np.float32)
    # Whether the teachers agree.
    agreed = np.ones(len(mean), np.bool_)
    if settings.agree is not None:
        agreed = find_agreement(matrices, settings.agree * rate)
    # A label for every text, since which are kept depends on all videos.
    spans = [place_label(row, rate, settings) for row in mean]
    ends = np.array([(span.start, span.end) for span in spans], dtype=np.float64)
    return LabelCandidates(ends.reshape(-1, 2), find_best_scores(mean), agreed)


def choose_labels(
    candidates: Sequence[LabelCandidates], settings: RefineSettings
) -> tuple[StepSpans, ...]:
    """Return the label of each text of each video. None: its best cosine is under the threshold, or
    the teachers disagree.

    Raises ShapeError when fewer than `LEAST_KEPT_SHARE` of the texts get a label.
    """
    # Labels that are good enough, and agreed on.
    threshold = compute_threshold([video.best_cosines for video in candidates], settings)
    labels: list[StepSpans] = []
    for video in candidates:
        is_kept = (video.best_cosines >= threshold) & video.teachers_agree
        rows = zip(video.spans.tolist(), is_kept.tolist(), strict=True)
        labels.append(tuple(Span(*ends) if keep else None for ends, keep in rows))

    # whether enough are left to train on
    flags = [span is not None for spans in labels for span in spans]
    share = compute_labelled_fraction(labels)
    low = sum(int((video.best_cosines < threshold).sum()) for video in candidates)
    apart = sum(int((~video.teachers_agree).sum()) for video in candidates)
    cure = f"the teachers disagree about {apart}: raise rounds.refine.agree"
    if low >= apart:
        cure = (
            f"{low} are under eps2 {threshold:.2f}: lower rounds.refine.threshold, or give "
            "rounds.refine.threshold_kind=quantile"
        )
    if not any(flags) or share < LEAST_KEPT_SHARE:
        raise ShapeError(
            f"{sum(flags)} of {len(flags)} texts keep a label, fewer than {LEAST_KEPT_SHARE:.0%}; "
            f"{cure}"
        )
    if share < MIN_LABELLED_SHARE:
        log.warning("only %d of %d texts keep a label; %s", sum(flags), len(flags), cure)
    return tuple(labels)


def place_label(row: Matrix, rate: float, settings: RefineSettings) -> Span:
    """Return the label of a text: a span in seconds inside the video.

    Args:
        row: (T,) score of the text in each feature row.
        rate: feature rows per second.
        settings: length and position of the label.
    """
    best = int(row.argmax())
    # As far as the score stays near its peak. Where nothing fits, the best row alone.
    if settings.seconds is None:
        fits = row[best] > 0
        start, end = grow_window(row, best, settings.grow) if fits else (best, best + 1)
        return Span(start / rate, end / rate)
    # A fixed length, from the best row on or around its middle.
    first = best / rate
    if settings.position == "center":
        first = (best + 0.5) / rate - settings.seconds / 2
    return Span(max(0.0, first), min(len(row) / rate, first + settings.seconds))


def compute_threshold(best: Sequence[Matrix], settings: RefineSettings) -> float:
    """Return the best cosine that a text must reach: eps2, or a quantile of the best cosines of all
    texts.

    best: (K,) best cosines of the texts of each video.
    """
    if settings.threshold_kind == "cosine":
        return settings.threshold
    # The empty array is for no video at all.
    scores = np.concatenate([np.zeros(0), *best])
    if not settings.threshold or not scores.size:
        return -math.inf
    return float(np.quantile(scores, settings.threshold))


def find_best_scores(matrix: Matrix) -> Matrix:
    """Return the maximum of each row of a matrix (K, T), or 0 where T is 0."""
    if not matrix.size:
        return np.zeros(len(matrix), dtype=np.float32)
    return np.asarray(matrix.max(axis=1))


def find_agreement(matrices: Sequence[Matrix], rows: float) -> Mask:
    """Return for each of K texts whether the best feature rows of all teachers are at most `rows`
    apart, (K,).

    matrices: (K, T) cosines of each teacher.
    """
    best = np.stack([matrix.argmax(axis=1) for matrix in matrices])  # (networks, K)
    return np.asarray(np.ptp(best, axis=0) <= rows)


@dataclass(frozen=True, slots=True)
class StepVideo:
    """A video with the steps that were written for it.

    Attributes:
        id: of the video.
        said_spans: (K,) seconds in which each step is said. None: it is not said.
        rows: number of feature rows.
        rate: feature rows per second.
        read_inputs: reads the features and the step vectors (K, C).
        shard: number of the shard that holds the features.
    """

    id: str
    said_spans: StepSpans
    rows: int
    rate: float
    read_inputs: Callable[[], tuple[FeatureSequence, Matrix]]
    shard: int = 0


def make_step_samples(
    videos: Sequence[StepVideo], labels: Sequence[StepSpans], *, keep_all: bool = False
) -> LazySamples[Sample]:
    """Return the labelled steps of each video as training samples. Videos without a label are left
    out.

    keep_all: keep steps without a label, and all videos.
    """
    labelled = []
    for video, spans in zip(videos, labels, strict=True):
        if any(keep_all or span is not None for span in spans):
            labelled.append((video, spans))

    def make_sample(index: int) -> Sample:
        video, spans = labelled[index]
        # A text without a label is still one of the video's, shown nowhere.
        rows = [(k, span) for k, span in enumerate(spans) if keep_all or span is not None]
        texts = [k for k, _ in rows]
        spans_of_text = [[] if span is None else [span] for _, span in rows]
        features, vectors = video.read_inputs()
        return make_labelled_sample(video.id, features, vectors[texts], spans_of_text)

    lengths = [video.rows for video, _ in labelled]
    return LazySamples(make_sample, lengths, [video.shard for video, _ in labelled])


def make_unlabelled_samples(videos: Sequence[StepVideo]) -> LazySamples[Sample]:
    """Return all steps of all videos as samples without labels, for inference."""
    most_steps = max((len(video.said_spans) for video in videos), default=0)
    # No spans for 0, 1, ... steps: one tuple for all videos of that many steps.
    nowhere = [(None,) * count for count in range(most_steps + 1)]
    labels = [nowhere[len(video.said_spans)] for video in videos]
    return make_step_samples(videos, labels, keep_all=True)


def write_labels(path: Path, ids: Sequence[str], labels: Sequence[StepSpans]) -> None:
    """Write the labels of the texts of each video as JSON: {video id: [[start, end] or null, ...]}.

    Args:
        path: the JSON file.
        ids: ids of the videos.
        labels: for each video, the label span of each text in seconds, or None.
    """
    tree = {}
    for id, spans in zip(ids, labels, strict=True):
        tree[id] = [None if span is None else [span.start, span.end] for span in spans]
    write_atomic(path, json.dumps(tree) + "\n")


def read_labels(path: Path, videos: Sequence[tuple[str, int]]) -> tuple[StepSpans, ...]:
    """Return the labels of the texts of each video, from a file of `write_labels`.

    Args:
        path: the JSON file.
        videos: id and number of texts of each video.

    Raises StoreError if the file cannot be read or holds other videos or numbers of texts.
    """
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
        labels = [
            tuple(None if pair is None else Span(*pair) for pair in tree[id]) for id, _ in videos
        ]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path}: no labels of these videos ({error}); remove the folder to start again"
        ) from error
    lengths = [len(spans_of_text) for spans_of_text in labels]
    if lengths != [count for _, count in videos]:
        raise StoreError(f"{path}: labels of other texts; remove the folder to start again")
    return tuple(labels)


VIDEOS_PER_BATCH = 16  # that are seen together


def iterate_matrices(
    networks: Sequence[Aligner], samples: Sequence[Sample], *, rank: int = 0, world_size: int = 1
) -> Iterator[tuple[int, list[Matrix]]]:
    """Yield the index of each sample, and the cosines (K, T) of its texts by every network.

    One batch is in memory at a time and is read once for all networks.

    Args:
        networks: the networks.
        samples: videos with texts.
        rank: number of this process, from 0. Each process gets its share of the batches.
        world_size: number of processes. The batches do not depend on it.
    """
    for indices, videos, outputs in iterate_outputs(
        networks, samples, rank=rank, world_size=world_size
    ):
        scores = [output.scores.cpu().numpy() for output in outputs]
        for row, (index, sample) in enumerate(zip(indices, videos, strict=True)):
            texts = len(sample.text)
            rows = len(sample.video)
            yield index, [matrix[row, :texts, :rows].copy() for matrix in scores]


def iterate_outputs(
    networks: Sequence[Aligner], samples: Sequence[Sample], *, rank: int = 0, world_size: int = 1
) -> Iterator[tuple[tuple[int, ...], list[Sample], list[AlignerOutput]]]:
    """Yield for each batch the indices of its samples, the samples, and the output of each network.

    The networks are left in evaluation mode. A video of more than `MAX_ROWS` rows is not cut, unlike
    in training. Labels have no effect. Arguments are those of `iterate_matrices`.
    """
    for network in networks:
        network.eval()
    lengths, shards = get_lengths_and_shards(samples, lambda sample: len(sample.video))
    longest = max([MAX_ROWS, *lengths])
    # Batches of like length, the same for any number of processes.
    batches = plan_batches(lengths, VIDEOS_PER_BATCH, seed=0, epoch=0, shards=shards)
    for indices in islice(batches, rank, None, world_size):
        videos = [samples[index] for index in indices]
        batch = collate(videos, longest)
        with torch.inference_mode():
            outputs = [network(batch.to(device_of(network))) for network in networks]
        yield indices, videos, outputs


@dataclass(frozen=True)
class RoundReport:
    """One round of labelling.

    Attributes:
        number: of the round. Round 0 has the first labels.
        texts: number of texts.
        kept: fraction of the texts that have a label.
        moved: median seconds between the middles of a text's labels in the last round and in this
            one.
        iou: mean temporal IoU of these labels.
        cpu_seconds: that the round took.
    """

    number: int
    texts: int
    kept: float
    moved: float | None = None
    iou: float | None = None
    cpu_seconds: float = 0.0


def compute_labelled_fraction(labels: Sequence[StepSpans]) -> float:
    """Return the fraction of texts that have a label, or 0 without texts."""
    flags = [span is not None for spans_of_text in labels for span in spans_of_text]
    return sum(flags) / max(1, len(flags))


def measure_label_shift(
    before: Sequence[StepSpans], after: Sequence[StepSpans]
) -> tuple[float | None, float | None]:
    """Return the median seconds between the middles of old and new labels, and their mean temporal
    IoU. Only texts with both labels count. Both are None without such a text.

    Args:
        before: for each video, the old label span of each text, or None.
        after: the new ones, in the same order.
    """
    moves = []
    overlaps = []
    for old_spans, new_spans in zip(before, after, strict=True):
        for old, new in zip(old_spans, new_spans, strict=True):
            if old is not None and new is not None:
                moves.append(abs(old.center - new.center))
                overlaps.append(old.iou(new))
    if not moves:
        return None, None
    return float(np.median(moves)), float(np.mean(overlaps))
