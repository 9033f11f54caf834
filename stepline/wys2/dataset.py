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
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax

from stepline.datasets.excluded import ExcludedVideos
from stepline.errors import DatasetError, MediaError, ShapeError
from stepline.features import FeatureStore
from stepline.records import Matrix, Record, Rejected, Span, Transcript
from stepline.text import embed
from stepline.training.batches import Mask
from stepline.training.gather import TWICE, FeatureJoin, Flaw
from stepline.wys2.clips import (
    ClipTextPair,
    FrameClip,
    NarratedClip,
    clip_id,
    clip_text_pair,
    narrated_clips,
)
from stepline.wys2.settings import ClipSettings, CosineMapping, LabelSettings

Array: TypeAlias = npt.NDArray[np.float64]
TextEncoder: TypeAlias = Callable[[Sequence[str]], Matrix]

NO_FILE, NO_PICTURE, UNREADABLE = (
    "there is no video of it",
    "its video has no picture",
    "its video cannot be read",
)
RIDGE = 1e-3  # weight of the squared weights beside the mean loss
FOLDS = 4  # of the cross-validation of task classifiers


@dataclass(frozen=True)
class VideoFrames:
    """Video files by id, whose clips are frames: so many of each, squares of `side` pixels."""

    paths: Mapping[str, Path]
    frames: int
    side: int

    def flaw(self, video: str) -> Flaw | None:
        """Return why a video cannot be trained on, None where its file holds a picture."""
        from stepline.media import probe

        if video not in self.paths:
            return NO_FILE, ""
        try:
            return None if probe(self.paths[video]).has_picture else (NO_PICTURE, "")
        except MediaError as error:
            return UNREADABLE, str(error)

    def clip(self, video: str, span: Span) -> FrameClip:
        """Return a clip of a video."""
        return FrameClip(self.paths[video], span, self.frames, self.side)


@dataclass
class ClipDataset:
    """Clips and, aligned with them, their pairs. omitted: which videos were left out, and why."""

    clips: list[NarratedClip] = field(default_factory=list)
    pairs: list[ClipTextPair] = field(default_factory=list)
    omitted: list[Rejected] = field(default_factory=list)

    def of_videos(self, videos: frozenset[str]) -> "ClipDataset":
        """Return the clips of some videos."""
        kept = [row for row, clip in enumerate(self.clips) if clip.video in videos]
        return ClipDataset([self.clips[row] for row in kept], [self.pairs[row] for row in kept])

    def pairs_of_own_text(self) -> list[ClipTextPair]:
        """Return the pairs, each with its own text alone."""
        return [ClipTextPair(pair.id, pair.video, pair.text[:1]) for pair in self.pairs]

    def positive(self, labels: Mask) -> list[ClipTextPair]:
        """Return the pairs that labels (N,) call positive."""
        return [pair for pair, kept in zip(self.pairs, labels.tolist(), strict=True) if kept]


def gather_clips(
    records: Iterable[Record],
    features: FeatureStore | VideoFrames,
    encode: TextEncoder,
    settings: ClipSettings,
    transcripts: Mapping[str, Transcript] | None = None,
    *,
    excluded: ExcludedVideos | frozenset[str] = frozenset(),
) -> ClipDataset:
    """Return the clips of records. encode: sentences to vectors; transcripts: by video, for records
    that have none.

    features: a store, or the videos themselves, whose clips are then frames. excluded: ids of
    videos that are left out (a benchmark's own). A video without features or file, without
    narration or with broken annotations is left out and its reason counted.
    """
    gathered = ClipDataset()
    for record, clips in narrated_videos(
        records, features, settings, transcripts or {}, gathered.omitted, excluded=excluded
    ):
        vectors = encode([sentence.text for sentence in record.sentences])
        gathered.clips += clips
        rows = None if isinstance(features, VideoFrames) else features.read(record.video.id)
        for clip in clips:
            id, texts = clip_id(clip.video, clip.span.start), vectors[list(clip.candidates)]
            if rows is not None:
                gathered.pairs.append(clip_text_pair(id, rows, clip.span, texts))
            elif isinstance(features, VideoFrames):
                gathered.pairs.append(ClipTextPair(id, features.clip(clip.video, clip.span), texts))
    return gathered


def narrated_videos(
    records: Iterable[Record],
    features: FeatureStore | VideoFrames,
    settings: ClipSettings,
    transcripts: Mapping[str, Transcript],
    omitted: list[Rejected],
    *,
    excluded: ExcludedVideos | frozenset[str] = frozenset(),
    once: bool = False,
) -> Iterator[tuple[Record, list[NarratedClip]]]:
    """Yield each record that has narration and features, with its clips; the others are noted in
    `omitted`.

    As `gather_clips` takes them; once: whether a video counts that came before.
    """
    frames = features if isinstance(features, VideoFrames) else None
    join = FeatureJoin({} if isinstance(features, VideoFrames) else features, excluded=excluded)
    seen: set[str] = set()
    for record in records:
        video = record.video.id
        if record.transcript is None and video in transcripts:
            record = record.model_copy(update={"transcript": transcripts[video]})
        flaw = join.flaw(video) if frames is None or video in excluded else frames.flaw(video)
        if once and video in seen:
            flaw = TWICE, ""
        seen.add(video)
        if flaw is None:
            try:
                clips = narrated_clips(record, settings)
            except DatasetError as error:
                flaw = str(error).removeprefix(f"{record.id}: ").partition(";")[0], ""
        if flaw is not None:
            omitted.append(Rejected("video", flaw[0], id=video, value=flaw[1]))
        else:
            yield record, clips


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
    names = sorted({clip.task for clip in clips if clip.task is not None})
    if missing := sum(clip.task is None for clip in clips):
        raise DatasetError(
            f"{missing} of {len(clips)} clips have no task; MC labels need the task of every video"
        )
    tasks = np.array([names.index(clip.task or "") for clip in clips], dtype=np.int64)
    videos = [clip.video for clip in clips]
    means = [
        pair.video.mean(axis=0, dtype=np.float32)
        for pair in gathered.pairs
        if isinstance(pair.video, np.ndarray)
    ]
    if len(means) < len(clips):
        raise DatasetError(
            "MC labels classify the tasks of ready features; give --features, or labels.kind=ss"
        )
    seen = task_log_probabilities(np.stack(means), tasks, videos)
    said = task_log_probabilities(
        np.stack([pair.text[0] for pair in gathered.pairs]), tasks, videos
    )
    return modality_consensus_labels(tasks, seen, said, settings)


def key_step_similarity(
    clips: Sequence[NarratedClip], settings: LabelSettings, encode: TextEncoder | None = None
) -> Array:
    """Return S(narration, key-step) in [0, 1] of each clip, (N,); NaN without a key-step.

    encode: texts to unit rows, that of `settings.text_model` where none is given.
    """
    encode = encode or (lambda texts: embed(texts, model=settings.text_model))
    steps = [clip.key_step for clip in clips]
    texts = sorted(
        {clip.text for clip in clips if clip.key_step is not None}
        | {text for text in steps if text}
    )
    rows = {text: row for row, text in enumerate(texts)}
    vectors = encode(texts).astype(np.float64)
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
    known = np.isfinite(similarity)
    if not known.any():
        raise DatasetError(
            f"none of {len(similarity)} clips has a key-step; SS labels need key-steps with times"
        )
    least = settings.similarity
    if settings.quantile is not None:
        least = float(np.quantile(similarity[known], 1 - settings.quantile))
    labels: Mask = known & (np.where(known, similarity, -1.0) >= least)
    if not labels.any():
        best = float(similarity[known].max())
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
        raise ShapeError(
            f"need (N,) tasks and two (N, O) scores, not {tasks.shape}, {video.shape} and {text.shape}"
        )
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
    for task in set(tasks.tolist()):
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
    if len(names) < 2 or len(set(tasks.tolist())) < 2:
        raise DatasetError(
            f"{len(names)} videos of {len(set(tasks.tolist()))} tasks; a task classifier needs two of each"
        )
    fold = {name: number % FOLDS for number, name in enumerate(names)}
    parts = np.array([fold[video] for video in videos])
    rows = standardise_columns(features)
    scores = np.zeros((len(rows), int(tasks.max()) + 1))
    for part in sorted(set(parts.tolist())):
        held_out = parts == part
        weights = fit_softmax_regression(rows[~held_out], tasks[~held_out], scores.shape[1])
        scores[held_out] = log_softmax(_with_bias_column(rows[held_out]) @ weights, axis=1)
    return scores


def fit_softmax_regression(
    rows: Array, classes: npt.NDArray[np.int64], count: int, ridge: float = RIDGE
) -> Array:
    """Return the weights (C + 1, O) of a softmax regression by L-BFGS; the last row is the bias."""
    wide, truth = _with_bias_column(rows), np.eye(count)[classes]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(wide.shape[1], count)
        logs = log_softmax(wide @ weights, axis=1)
        decayed = np.concatenate([weights[:-1], np.zeros((1, count))])
        value = float(-(truth * logs).sum() / len(wide) + ridge * (decayed**2).sum() / 2)
        return value, (wide.T @ (np.exp(logs) - truth) / len(wide) + ridge * decayed).ravel()

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
