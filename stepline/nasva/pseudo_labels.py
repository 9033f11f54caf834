"""New labels from a network's own alignment matrices: the second stage of NaSVA (section 3.3,
tables 3, 8 and 9).

    best_k  = argmax_t A[k, t]                 a text whose best score stays under eps2 loses its label
    label_k = [best_k, best_k + seconds)       or around it, or grown while A >= zeta A[best_k]

In order: labels from matrices, videos with the steps written for them, labels on disk (JSON),
matrices of many videos, and what one round of labelling has changed (`RoundReport`). Letters: K
texts or steps, T feature rows, C input width, V videos.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from stepline.atomic_files import write_atomic
from stepline.device import device_of
from stepline.errors import ShapeError, StoreError
from stepline.grounding.speech import grow_window
from stepline.limits import parse_json
from stepline.nasva.dataset import labelled_sample
from stepline.nasva.model import Aligner, AlignerOutput
from stepline.nasva.settings import RecordPlace, RefineSettings
from stepline.records import FeatureSequence, Matrix, Span
from stepline.training.batches import MAX_ROWS, LazySamples, Mask, Sample, collate, length_buckets

log = logging.getLogger(__name__)

RowIndices: TypeAlias = npt.NDArray[np.int64]
# where each text of one video is placed; None: it has no label
StepSpans: TypeAlias = tuple[Span | None, ...]

FEW_LABELS = 0.05  # share of kept labels below which there is a warning


@dataclass(frozen=True, slots=True)
class LabelCandidates:
    """All that is kept of a video's matrices (K, T), of which a dataset's do not fit into memory,
    to choose its labels.

    spans: (K, 2) seconds of each text's label, were it kept; best: (K,) its best cosine; agreed:
    (K,) whether the teachers, and the record where it is asked, have it in the same place.
    """

    spans: npt.NDArray[np.float64]
    best: Matrix
    agreed: Mask


def label_candidates(
    matrices: Sequence[Matrix],
    rate: float,
    settings: RefineSettings,
    places: Sequence[StepSpans] = (),
) -> LabelCandidates:
    """Return where each text of a video would be placed.

    matrices: cosines (K, T), one a teacher; they are averaged. places: each K long, that the best
    second must lie near.
    """
    mean = np.asarray(np.mean(matrices, axis=0), dtype=np.float32)
    agreed = np.ones(len(mean), np.bool_)
    if settings.agree is not None:
        agreed = teachers_agree(matrices, settings.agree * rate)
        for of_record in places:
            agreed &= lie_near((mean.argmax(axis=1) + 0.5) / rate, of_record, settings.agree)
    labels = [label_span(row, rate, settings) for row in mean]
    spans = np.array([(span.start, span.end) for span in labels], dtype=np.float64).reshape(-1, 2)
    return LabelCandidates(spans, best_scores(mean), agreed)


def choose_labels(
    candidates: Sequence[LabelCandidates], settings: RefineSettings
) -> tuple[StepSpans, ...]:
    """Return a label, or none, for each text of each video: kept where its best cosine reaches the
    settings' threshold.

    Raises ShapeError when fewer than `least_kept` of the texts keep a label.
    """
    floor, placed = score_threshold([video.best for video in candidates], settings), []
    for video in candidates:
        kept = (video.best >= floor) & video.agreed
        pairs = zip(video.spans.tolist(), kept.tolist(), strict=True)
        placed.append(tuple(Span(start, end) if keep else None for (start, end), keep in pairs))
    flags = [span is not None for places in placed for span in places]
    share = labelled_fraction(placed)
    if not any(flags) or share < settings.least_kept:
        raise ShapeError(
            f"{sum(flags)} of {len(flags)} texts keep a label, fewer than {settings.least_kept:.0%} "
            f"(eps2 {floor:.2f}); lower refine.threshold, or give refine.threshold_kind=quantile"
        )
    if share < FEW_LABELS:
        log.warning(
            "only %d of %d texts keep a label; lower refine.threshold to keep more",
            sum(flags),
            len(flags),
        )
    return tuple(placed)


def relabel(
    matrices: Sequence[Sequence[Matrix]],
    rates: Sequence[float],
    settings: RefineSettings | None = None,
) -> tuple[StepSpans, ...]:
    """Return a label, or none, for each text of each video, of matrices that are in memory.

    matrices: one or several teachers' cosines (K, T) of every video; they are averaged, and the
    teachers must agree where the settings say so. rates: feature rows a second. Raises ShapeError
    when fewer than `least_kept` of the texts keep a label, or the teachers saw other videos.
    """
    settings = settings or RefineSettings()
    if not matrices or any(len(each) != len(rates) for each in matrices):
        raise ShapeError(
            f"need the matrices of at least one teacher, each of all {len(rates)} videos"
        )
    videos = zip(zip(*matrices, strict=True), rates, strict=True)
    return choose_labels(
        [label_candidates(each, rate, settings) for each, rate in videos], settings
    )


def label_span(row: Matrix, rate: float, settings: RefineSettings) -> Span:
    """Return the label of a text with these scores (T,), in seconds; never past the video."""
    best, duration = int(row.argmax()), len(row) / rate
    if settings.seconds is None:
        start, end = grow_window(row, best, settings.grow) if row[best] > 0 else (best, best + 1)
        return Span(start / rate, end / rate)
    first = (
        best / rate if settings.position == "start" else (best + 0.5) / rate - settings.seconds / 2
    )
    return Span(max(0.0, first), min(duration, first + settings.seconds))


def score_threshold(best: Sequence[Matrix], settings: RefineSettings) -> float:
    """Return the cosine that a text's best second must reach: eps2, or the quantile of all texts'
    best (K,)."""
    scores = np.concatenate(best) if best else np.zeros(0)
    if settings.threshold_kind == "cosine":
        return settings.threshold
    return (
        float(np.quantile(scores, settings.threshold))
        if settings.threshold and scores.size
        else -math.inf
    )


def best_scores(matrix: Matrix) -> Matrix:
    """Return max_t A[k, t], (K,)."""
    return (
        np.asarray(matrix.max(axis=1)) if matrix.size else np.zeros(len(matrix), dtype=np.float32)
    )


def teachers_agree(matrices: Sequence[Matrix], rows: float) -> Mask:
    """Return for each text (K,) whether all networks' best rows lie at most `rows` apart."""
    best = np.stack([matrix.argmax(axis=1) for matrix in matrices])  # (networks, K)
    return np.asarray(np.ptp(best, axis=0) <= rows)


def lie_near(times: npt.NDArray[np.float64], spans: StepSpans, seconds: float) -> Mask:
    """Return for each text (K,) whether its time lies within its span, or at most `seconds` off;
    never without one."""
    return np.array(
        [
            span is not None and span.start - seconds <= time <= span.end + seconds
            for time, span in zip(times.tolist(), spans, strict=True)
        ],
        np.bool_,
    )


def cosine_similarity(video: Matrix, text: Matrix) -> Matrix:
    """Return cosines (K, T) of a backbone's own vectors (K, C) and (T, C): what Step-Video labels
    rest on."""
    lengths = np.linalg.norm(text, axis=1)[:, None] * np.linalg.norm(video, axis=1)  # (K, T)
    return np.asarray(text @ video.T / np.maximum(lengths, 1e-12), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class StepVideo:
    """A video and the steps written for it; said: where each of the K is said, None where nobody
    says it.

    shown: where the record has each shown, None where it does not; or (), where that is not asked.
    rows: of its features, rate a second. read: returns the features and the step vectors (K, C),
    from disk where they lie there, and then in that shard. truth: (K, T) where each step is really
    shown, of simulated videos; reports use it, nothing else does.
    """

    id: str
    said: StepSpans
    rows: int
    rate: float
    read: Callable[[], tuple[FeatureSequence, Matrix]]
    truth: Mask | None = None
    shard: int = 0
    shown: StepSpans = ()

    def places(self, kinds: Sequence[RecordPlace]) -> list[StepSpans]:
        """Return the record's places of each kind, each K long."""
        return [{"said": self.said, "shown": self.shown}[kind] for kind in kinds]


def step_video(
    id: str, features: FeatureSequence, vectors: Matrix, said: StepSpans, truth: Mask | None = None
) -> StepVideo:
    """Return a video whose features and vectors are in memory. Raises ShapeError when they do not
    fit together."""
    if len(said) != len(vectors):
        raise ShapeError(f"{id}: {len(vectors)} step vectors need as many places, not {len(said)}")
    return StepVideo(
        id, said, len(features.values), features.rate, lambda: (features, vectors), truth
    )


def step_samples(
    videos: Sequence[StepVideo], labels: Sequence[StepSpans], *, keep_all: bool = False
) -> LazySamples[Sample]:
    """Return the steps as training samples: those with a label, or all; a video without any is left
    out."""
    pairs = zip(videos, labels, strict=True)
    chosen = [
        (video, places)
        for video, places in pairs
        if (keep_all and places) or any(span is not None for span in places)
    ]

    def make(index: int) -> Sample:
        video, places = chosen[index]
        texts = [text for text, span in enumerate(places) if keep_all or span is not None]
        spans = [[span] if (span := places[text]) is not None else [] for text in texts]
        features, vectors = video.read()
        return labelled_sample(video.id, features, vectors[texts], spans, ordered=True)

    return LazySamples(
        make, [video.rows for video, _ in chosen], [video.shard for video, _ in chosen]
    )


def unlabelled_samples(videos: Sequence[StepVideo]) -> LazySamples[Sample]:
    """Return all steps of all videos as samples without a label, for a network to place."""
    longest = (None,) * max((len(video.said) for video in videos), default=0)
    # one for all videos of as many steps
    nowhere = [longest[:count] for count in range(len(longest) + 1)]
    return step_samples(videos, [nowhere[len(video.said)] for video in videos], keep_all=True)


def concatenate_samples(
    first: LazySamples[Sample], others: Sequence[Sample]
) -> LazySamples[Sample]:
    """Return the samples of both."""
    lengths = (
        others.lengths
        if isinstance(others, LazySamples)
        else [len(sample.video) for sample in others]
    )
    shards = others.shards if isinstance(others, LazySamples) else [0] * len(others)
    count = len(first)
    return LazySamples(
        lambda at: first[at] if at < count else others[at - count],
        [*first.lengths, *lengths],
        [*first.shards, *shards],
    )


def with_foreign_texts(videos: Sequence[StepVideo]) -> list[StepVideo]:
    """Return each video with the texts of the one half the way round, which it does not show."""
    half = max(1, len(videos) // 2)
    return [
        _with_texts_of(video, videos[(index + half) % len(videos)])
        for index, video in enumerate(videos)
    ]


def _with_texts_of(video: StepVideo, other: StepVideo) -> StepVideo:
    return replace(
        video,
        said=other.said,
        shown=other.shown,
        read=lambda: (video.read()[0], other.read()[1]),
        truth=None,
    )


def write_labels(path: Path, ids: Sequence[str], labels: Sequence[StepSpans]) -> None:
    """Write where the texts of each video are placed."""
    pairs = [
        [None if span is None else [span.start, span.end] for span in places] for places in labels
    ]
    write_atomic(path, json.dumps(dict(zip(ids, pairs, strict=True))) + "\n")


def read_labels(path: Path, videos: Sequence[tuple[str, int]]) -> tuple[StepSpans, ...]:
    """Return the labels of videos, each an id and its number of texts. Raises StoreError where they
    do not fit."""
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
        labels = tuple(
            tuple(None if pair is None else Span(*pair) for pair in tree[id]) for id, _ in videos
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path}: no labels of these videos ({error}); remove the folder to start again"
        ) from error
    if [len(places) for places in labels] != [count for _, count in videos]:
        raise StoreError(f"{path}: labels of other texts; remove the folder to start again")
    return labels


VIDEOS_A_BATCH = 16  # videos


def alignment_matrices(network: Aligner, samples: Sequence[Sample]) -> list[Matrix]:
    """Return the cosines (K, T) of every video's texts, in the order given; the network ends at
    rest.

    A video of more than `MAX_ROWS` rows is seen whole, as no training saw it; labels are of no
    effect.
    """
    found: list[Matrix] = [np.zeros((0, 0), dtype=np.float32)] * len(samples)
    for index, (scores,) in iterate_matrices([network], samples):
        found[index] = scores
    return found


def iterate_matrices(
    networks: Sequence[Aligner], samples: Sequence[Sample], *, rank: int = 0, of: int = 1
) -> Iterator[tuple[int, list[Matrix]]]:
    """Yield each video's place among the samples, and every network's cosines (K, T) of its texts.

    One batch is in memory at a time, and read once for all networks. The places come in the order
    of the batches; of `of` processes, each takes its share of the batches, which are the same for
    any number of them.
    """
    for chosen, read, aligned in _aligned(networks, samples, rank, of):
        scores = [each.scores.cpu().numpy() for each in aligned]
        for row, (index, sample) in enumerate(zip(chosen, read, strict=True)):
            yield (
                index,
                [each[row, : len(sample.text), : len(sample.video)].copy() for each in scores],
            )


def alignable_logits(network: Aligner, samples: Sequence[Sample]) -> list[Matrix]:
    """Return the alignability head's logits (K,) of every video's texts; of a network without a
    head, none."""
    found: list[Matrix] = [np.zeros(0, dtype=np.float32)] * len(samples)
    for chosen, read, (aligned,) in _aligned([network], samples):
        if aligned.alignable is not None:
            for index, sample, logits in zip(
                chosen, read, aligned.alignable.cpu().numpy(), strict=True
            ):
                found[index] = logits[: len(sample.text)].copy()
    return found


def _aligned(
    networks: Sequence[Aligner], samples: Sequence[Sample], rank: int = 0, of: int = 1
) -> Iterator[tuple[tuple[int, ...], list[Sample], list[AlignerOutput]]]:
    """Yield of each batch which samples it holds, the samples, and what each network says of
    them."""
    for network in networks:
        network.eval()
    lengths = (
        samples.lengths
        if hasattr(samples, "lengths")
        else [len(sample.video) for sample in samples]
    )
    shards = samples.shards if hasattr(samples, "shards") else ()
    for chosen in islice(
        length_buckets(lengths, VIDEOS_A_BATCH, seed=0, epoch=0, shards=shards), rank, None, of
    ):
        read = [samples[index] for index in chosen]
        batch = collate(read, max(MAX_ROWS, *lengths))
        with torch.inference_mode():
            aligned = [network(batch.to(device_of(network))) for network in networks]
        yield chosen, read, aligned


# share of a label that must lie in the planted window; NaSVA's table 5 judges by eye
INSIDE_FRACTION = 0.5


@dataclass(frozen=True)
class RoundReport:
    """One round: shares in [0, 1], seconds; None where it cannot be known.

    kept: of the texts, those with a label. alignable: of the texts, an estimate
    (`alignable_fraction`), by the networks that this round's labels trained. moved: median of how
    far a label's middle is from the last round's. iou: mean overlap with the last round's.
    agreement: of held-out texts whose best second is the same as the last round's networks have it.
    inside, shown: of the kept labels, those that lie in the planted window, and whose text has one.
    """

    number: int
    texts: int
    kept: float
    alignable: float | None = None
    moved: float | None = None
    iou: float | None = None
    agreement: float | None = None
    inside: float | None = None
    shown: float | None = None
    cpu_seconds: float = 0.0


def labelled_fraction(labels: Sequence[StepSpans]) -> float:
    """Return the share of texts that have a label; 0 of none."""
    flags = [span is not None for places in labels for span in places]
    return sum(flags) / max(1, len(flags))


def label_shift(
    before: Sequence[StepSpans], after: Sequence[StepSpans]
) -> tuple[float | None, float | None]:
    """Return the median seconds between the middles of two rounds' labels, and their mean IoU, of
    texts with both."""
    texts = chain.from_iterable(
        zip(old, new, strict=True) for old, new in zip(before, after, strict=True)
    )
    pairs = [(old, new) for old, new in texts if old is not None and new is not None]
    if not pairs:
        return None, None
    apart = [abs(a.center - b.center) for a, b in pairs]
    return float(np.median(apart)), float(np.mean([a.iou(b) for a, b in pairs]))


def teacher_agreement(
    before: Sequence[RowIndices], after: Sequence[RowIndices], rows: Sequence[float]
) -> float | None:
    """Return the share of texts whose best rows (K,) by two sets of networks lie at most `rows` (a
    video) apart."""
    near = [abs(a - b) <= limit for a, b, limit in zip(before, after, rows, strict=True) if len(a)]
    return float(np.concatenate(near).mean()) if near else None


def alignable_fraction(own: Sequence[Matrix], foreign: Sequence[Matrix]) -> float | None:
    """Return an estimate of the share of texts that are shown at all: 1 - 2 P(best score < median
    of foreign texts').

    own: best scores (K,) of each video's texts; foreign: of texts of other videos, which show
    nothing of them. Source: Storey's estimate of the share of true null hypotheses (2002) with
    lambda 0.5. None without texts.
    """
    scores, null = (np.concatenate([np.zeros(0), *each]) for each in (own, foreign))
    if not len(scores) or not len(null):
        return None
    return float(np.clip(1 - 2 * np.mean(scores < np.median(null)), 0.0, 1.0))


def fraction_inside(
    labels: Sequence[StepSpans], truth: Sequence[Mask], rates: Sequence[float]
) -> tuple[float, float]:
    """Return, of the kept labels, the share that lies by half or more in the planted window, and
    that has one at all.

    truth: (K, T) of each video, True where the text is shown. NaN without labels.
    """
    inside, shown = [], []
    for places, rows, rate in zip(labels, truth, rates, strict=True):
        for span, row in zip(places, rows, strict=True):
            if span is not None:
                shown.append(bool(row.any()))
                start = int(span.start * rate)
                rows_of_label = row[start : max(start + 1, int(np.ceil(span.end * rate)))]
                inside.append(bool(rows_of_label.size) and rows_of_label.mean() >= INSIDE_FRACTION)
    return (
        (float(np.mean(inside)), float(np.mean(shown))) if inside else (float("nan"), float("nan"))
    )
