"""Clips of records with their labels: which of them are visual narrations, inferred from key-steps
(WYS2, section 3.1).

    SS   sentence similarity: the narration says what its key-step says
    VR   visual relevance: the clip shows any key-step
    MC   modality consensus: picture and words rank high for the clip's own task, by two task classifiers

Labels are (N,) bool: True means that the picture shows what is said, as far as key-steps can tell;
False is "not known to", for the paper draws its negatives by pairing clips with other clips' words.
What cannot serve is left out and counted.
Source: WYS2, section 3.1. Differs: the task classifiers are a softmax regression on ready features,
where the paper trains SlowFast on frames; each clip is scored by a classifier that never saw its
video, so that none is known by heart. Letters: N clips, O tasks, C width of features.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax

from stepline.errors import DatasetError, ShapeError
from stepline.features import FeatureStore
from stepline.records import Matrix, Record, Rejected, Transcript
from stepline.text import embed
from stepline.training.batches import Mask
from stepline.training.gather import SEEN_TWICE, ExcludedIds
from stepline.wys2.clip_sources import ClipSource, VideoFrames, clip_source, flaw_finder
from stepline.wys2.clips import ClipTextPair, NarratedClip, narrated_clips
from stepline.wys2.settings import ClipSettings, CosineMapping, LabelSettings

Array: TypeAlias = npt.NDArray[np.float64]
TextEncoder: TypeAlias = Callable[[Sequence[str]], Matrix]

RIDGE_WEIGHT = 1e-3  # weight of the squared weights next to the mean loss
CROSS_VALIDATION_FOLDS = 4  # of the cross-validation of task classifiers


@dataclass
class ClipDataset:
    """Clips and, aligned with them, their pairs. omitted: which videos were left out, and why."""

    clips: list[NarratedClip] = field(default_factory=list)
    pairs: list[ClipTextPair] = field(default_factory=list)
    omitted: list[Rejected] = field(default_factory=list)

    def of_videos(self, videos: frozenset[str]) -> "ClipDataset":
        """Return the clips of some videos."""
        part = ClipDataset()
        for clip, pair in zip(self.clips, self.pairs, strict=True):
            if clip.video in videos:
                part.clips.append(clip)
                part.pairs.append(pair)
        return part

    def pairs_of_own_text(self) -> list[ClipTextPair]:
        """Return the pairs, each with its own text alone."""
        return [ClipTextPair(pair.id, pair.video, pair.text[:1]) for pair in self.pairs]

    def positive(self, labels: Mask) -> list[ClipTextPair]:
        """Return the pairs that labels (N,) call positive."""
        return list(compress(self.pairs, labels.tolist()))


def gather_clips(
    records: Iterable[Record],
    features: FeatureStore | VideoFrames,
    encode: TextEncoder,
    settings: ClipSettings,
    transcripts: Mapping[str, Transcript] | None = None,
    *,
    excluded: ExcludedIds = frozenset(),
) -> ClipDataset:
    """Return the clips of records. encode: sentences to vectors; transcripts: by video, for records
    that have none.

    features: a store, or the videos themselves, whose clips are then frames. excluded: ids of
    videos that are left out (a benchmark's own). A video without features or file, without
    narration or with broken annotations is left out and its reason counted.
    """
    source = clip_source(features)
    gathered = ClipDataset()
    for record, clips in narrated_videos(
        records, source, settings, transcripts or {}, gathered.omitted, excluded=excluded
    ):
        vectors = encode([sentence.text for sentence in record.sentences])
        gathered.clips += clips
        texts = [(clip.span, vectors[list(clip.candidates)]) for clip in clips]
        gathered.pairs += source.pairs(record.video.id, texts)
    return gathered


def narrated_videos(
    records: Iterable[Record],
    source: ClipSource,
    settings: ClipSettings,
    transcripts: Mapping[str, Transcript],
    omitted: list[Rejected],
    *,
    excluded: ExcludedIds = frozenset(),
    once: bool = False,
) -> Iterator[tuple[Record, list[NarratedClip]]]:
    """Yield each record that has narration and features, with its clips; the others are noted in
    `omitted`.

    As `gather_clips` takes them; once: a video that came before is omitted.
    """
    find_flaw = flaw_finder(source, excluded)
    seen_ids: set[str] = set()
    for record in records:
        video = record.video.id
        if record.transcript is None and video in transcripts:
            record = record.model_copy(update={"transcript": transcripts[video]})
        flaw = find_flaw(video)
        if once and video in seen_ids:
            flaw = SEEN_TWICE, ""
        seen_ids.add(video)
        if flaw is None:
            try:
                clips = narrated_clips(record, settings)
            except DatasetError as error:
                flaw = str(error).removeprefix(f"{record.id}: ").partition(";")[0], ""
        if flaw is None:
            yield record, clips
        else:
            omitted.append(Rejected("video", flaw[0], id=video, value=flaw[1]))


def infer_labels(gathered: ClipDataset, settings: LabelSettings) -> Mask:
    """Return which clips count as visual narrations, (N,), by the kind of label that the settings
    name.

    Raises DatasetError when no clip does, or MC lacks the tasks of the videos.
    """
    clips = gathered.clips
    if settings.kind == "ss":
        return sentence_similarity_labels(key_step_similarity(clips, settings), settings)
    if settings.kind == "vr":
        return visual_relevance_labels(clips)
    missing = sum(clip.task is None for clip in clips)
    if missing:
        raise DatasetError(
            f"{missing} of {len(clips)} clips have no task; MC labels need the task of every video"
        )
    names = sorted({str(clip.task) for clip in clips})
    tasks = np.array([names.index(str(clip.task)) for clip in clips], dtype=np.int64)
    pictures = []
    for pair in gathered.pairs:
        if not isinstance(pair.video, np.ndarray):
            raise DatasetError(
                "MC labels classify the tasks of ready features; give --features, or labels.kind=ss"
            )
        pictures.append(pair.video.mean(axis=0, dtype=np.float32))
    words = [pair.text[0] for pair in gathered.pairs]
    videos = [clip.video for clip in clips]
    by_picture = task_log_probabilities(np.stack(pictures), tasks, videos)
    by_words = task_log_probabilities(np.stack(words), tasks, videos)
    return modality_consensus_labels(tasks, by_picture, by_words, settings)


def key_step_similarity(
    clips: Sequence[NarratedClip], settings: LabelSettings, encode: TextEncoder | None = None
) -> Array:
    """Return S(narration, key-step) in [0, 1] of each clip, (N,); NaN without a key-step.

    encode: texts to unit rows, that of `settings.text_model` where none is given.
    """
    labelled = [clip for clip in clips if clip.key_step is not None]
    texts = sorted({clip.text for clip in labelled} | {str(clip.key_step) for clip in labelled})
    rows = {text: row for row, text in enumerate(texts)}
    vectors = encode(texts) if encode else embed(texts, model=settings.text_model)
    vectors = vectors.astype(np.float64)
    cosine = np.full(len(clips), np.nan)
    for row, clip in enumerate(clips):
        if clip.key_step is not None:
            cosine[row] = vectors[rows[clip.text]] @ vectors[rows[clip.key_step]]
    return map_cosine(cosine, settings.mapping)


def map_cosine(cosine: Array, mapping: CosineMapping) -> Array:
    """Return cosines as similarities in [0, 1]; the paper does not say how. NaN stays NaN."""
    within = np.clip(cosine, -1.0, 1.0)
    if mapping == "halved":
        return np.asarray((1 + within) / 2)
    if mapping == "angle":
        return np.asarray(1 - np.arccos(within) / np.pi)
    return np.maximum(within, 0.0)


def sentence_similarity_labels(similarity: Array, settings: LabelSettings) -> Mask:
    """Return SS: clips whose narration says what their key-step says. similarity: (N,), NaN without
    a key-step.

    Raises DatasetError when no clip has a key-step, or none is similar enough.
    """
    has_step = np.isfinite(similarity)
    if not has_step.any():
        raise DatasetError(
            f"none of {len(similarity)} clips has a key-step; SS labels need key-steps with times"
        )
    least = settings.similarity
    if settings.quantile is not None:
        least = float(np.quantile(similarity[has_step], 1 - settings.quantile))
    labels: Mask = has_step & (np.where(has_step, similarity, -1.0) >= least)
    if not labels.any():
        best = float(similarity[has_step].max())
        raise DatasetError(
            f"no narration reaches similarity {least:g}, the likest has {best:.2f}; lower it"
        )
    return labels


def visual_relevance_labels(clips: Sequence[NarratedClip]) -> Mask:
    """Return VR: clips with any key-step. Raises DatasetError when there is none."""
    return require_key_steps(
        np.array([clip.key_step is not None for clip in clips], dtype=np.bool_)
    )


def require_key_steps(has_step: Mask) -> Mask:
    """Return VR of clips of which is known whether they show a key-step, (N,). Raises DatasetError
    when none does."""
    if not has_step.any():
        raise DatasetError(
            f"none of {len(has_step)} clips has a key-step; VR labels need key-steps with times"
        )
    return has_step


def modality_consensus_labels(
    tasks: npt.NDArray[np.int64], video: Array, text: Array, settings: LabelSettings
) -> Mask:
    """Return MC: clips that rank high for their own task by the picture and by the words.

    tasks: (N,) each clip's own; video, text: (N, O) the classifiers' log probabilities. `ranking`
    "clips": among the best `rank` fraction of the clips of their task; "tasks": their own task is
    among the `rank` likeliest.
    Raises DatasetError when no clip does.
    """
    if video.shape != text.shape or video.ndim != 2 or tasks.shape != video.shape[:1]:
        shapes = f"{tasks.shape}, {video.shape} and {text.shape}"
        raise ShapeError(f"need (N,) tasks and two (N, O) scores, not {shapes}")
    labels = _ranks_high(tasks, video, settings) & _ranks_high(tasks, text, settings)
    if not labels.any():
        raise DatasetError(
            f"no clip ranks within {settings.rank:g} by picture and words; raise labels.rank"
        )
    return labels


def _ranks_high(tasks: npt.NDArray[np.int64], scores: Array, settings: LabelSettings) -> Mask:
    """Return which clips rank high for their own task by scores (N, O), as
    `modality_consensus_labels` says."""
    own = scores[np.arange(len(tasks)), tasks]
    if settings.ranking == "tasks":
        return np.asarray((scores > own[:, None]).sum(axis=1) + 1 <= settings.rank)
    high = np.zeros(len(tasks), dtype=np.bool_)
    for task in np.unique(tasks):
        rows = np.flatnonzero(tasks == task)
        best = rows[np.argsort(-own[rows], kind="stable")]
        high[best[: round(settings.rank * len(rows))]] = True
    return high


def task_log_probabilities(
    features: Matrix, tasks: npt.NDArray[np.int64], videos: Sequence[str]
) -> Array:
    """Return log P(task) of every row of features (N, C), as (N, O), by cross-validation over
    videos.

    tasks: (N,) 0..O-1. Raises DatasetError for fewer than two tasks or videos.
    """
    names = sorted(set(videos))
    task_count = len(np.unique(tasks))
    if len(names) < 2 or task_count < 2:
        raise DatasetError(
            f"{len(names)} videos of {task_count} tasks; a task classifier needs two of each"
        )
    folds = {name: number % CROSS_VALIDATION_FOLDS for number, name in enumerate(names)}
    fold_of_row = np.array([folds[video] for video in videos])
    rows = standardise_columns(features)
    scores = np.zeros((len(rows), int(tasks.max()) + 1))
    for fold in np.unique(fold_of_row):
        held_out = fold_of_row == fold
        weights = fit_softmax_regression(rows[~held_out], tasks[~held_out], scores.shape[1])
        scores[held_out] = log_softmax(_with_bias_column(rows[held_out]) @ weights, axis=1)
    return scores


def fit_softmax_regression(
    rows: Array, classes: npt.NDArray[np.int64], count: int, ridge: float = RIDGE_WEIGHT
) -> Array:
    """Return the weights (C + 1, O) of a softmax regression by L-BFGS; the last row is the bias."""
    wide = _with_bias_column(rows)
    truth = np.eye(count)[classes]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(wide.shape[1], count)
        logs = log_softmax(wide @ weights, axis=1)
        decayed = np.concatenate([weights[:-1], np.zeros((1, count))])
        value = float(-(truth * logs).sum() / len(wide) + ridge * (decayed**2).sum() / 2)
        slope = wide.T @ (np.exp(logs) - truth) / len(wide) + ridge * decayed
        return value, slope.ravel()

    start = np.zeros(wide.shape[1] * count)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 100}).x
    return np.asarray(best.reshape(wide.shape[1], count))


def standardise_columns(rows: Matrix) -> Array:
    """Return the rows with mean 0 and spread 1 in every column; constant columns become 0."""
    values = rows.astype(np.float64)
    centered = values - values.mean(axis=0)
    return np.asarray(centered / np.maximum(values.std(axis=0), 1e-6))


def _with_bias_column(rows: Array) -> Array:
    return np.column_stack([rows, np.ones(len(rows))])
