"""Clips of records with labels: which of them are visual narrations, inferred from key-steps (WYS2,
section 3.1).

    SS   sentence similarity: the narration says what its key-step says
    VR   visual relevance: the clip shows any key-step
    MC   modality consensus: picture and words rank high for the clip's own task, by two task classifiers

Labels are (N,) bool. True means that the picture shows what is said, as far as key-steps can tell.
False means "not known to", because the paper draws its negatives by pairing clips with the words of
others. Videos that cannot be used are left out and counted. Source: WYS2, section 3.1. Differs: the
task classifiers are softmax regressions on ready features, where the paper trains SlowFast on
frames. Each clip is classified by a regression that never saw its video. Letters: N clips, O tasks,
C width of features.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax

from stepline.errors import DatasetError, ShapeError
from stepline.features import FeatureStore
from stepline.models.training.batches import Mask
from stepline.models.training.sources import SEEN_TWICE, ExcludedIds, TextEncoder
from stepline.models.wys2.clips import (
    ClipSource,
    ClipTextPair,
    NarratedClip,
    VideoFrames,
    cut_into_clips,
    make_clip_source,
    make_omission_check,
)
from stepline.models.wys2.settings import ClipSettings, LabelSettings
from stepline.records import Matrix, Record, Rejected
from stepline.text import embed

Array = npt.NDArray[np.float64]
Tasks = npt.NDArray[np.int64]  # numbers of tasks, 0..O-1

RIDGE_WEIGHT = 1e-3  # weight of the squared weights next to the mean loss
CROSS_VALIDATION_FOLDS = 4  # of the cross-validation of task classifiers
MAX_FIT_ROUNDS = 100  # of L-BFGS
MIN_STANDARD_DEVIATION = 1e-6  # against a division by zero, for a constant column


@dataclass
class ClipDataset:
    """N clips with their texts, as training data.

    Attributes:
        clips: times, sentence and key-step of each clip.
        pairs: video input and text vectors of each clip, in the order of `clips`.
        omitted: videos that were left out, with the reasons.
    """

    clips: list[NarratedClip] = field(default_factory=list)
    pairs: list[ClipTextPair] = field(default_factory=list)
    omitted: list[Rejected] = field(default_factory=list)

    def select_videos(self, videos: frozenset[str]) -> "ClipDataset":
        """Return the clips of the videos with the given ids."""
        part = ClipDataset()
        for clip, pair in zip(self.clips, self.pairs, strict=True):
            if clip.video in videos:
                part.clips.append(clip)
                part.pairs.append(pair)
        return part

    def get_pairs_with_own_text(self) -> list[ClipTextPair]:
        """Return the pairs with one text each: the sentence spoken in the clip."""
        return [replace(pair, text=pair.text[:1]) for pair in self.pairs]


def gather_clips(
    records: Iterable[Record],
    features: FeatureStore | VideoFrames,
    encode: TextEncoder,
    settings: ClipSettings,
    *,
    excluded: ExcludedIds = frozenset(),
) -> ClipDataset:
    """Return the clips of narrated videos. Videos that cannot be used are left out.

    Args:
        records: videos with transcripts.
        features: feature store, or video files for clips of frames.
        encode: turns sentences into vectors.
        settings: length and spacing of the clips.
        excluded: ids of videos to leave out, such as those of a benchmark.
    """
    source = make_clip_source(features)
    dataset = ClipDataset()
    videos = iterate_narrated_videos(records, source, settings, dataset.omitted, excluded=excluded)
    for record, clips in videos:
        vectors = encode([sentence.text for sentence in record.sentences])
        dataset.clips += clips
        for clip in clips:
            # The clip's own sentence, then those next to it.
            texts = vectors[list(clip.candidate_sentences)]
            dataset.pairs.append(source.make_pair(record.video.id, clip.span, texts))
    return dataset


def iterate_narrated_videos(
    records: Iterable[Record],
    source: ClipSource,
    settings: ClipSettings,
    omitted: list[Rejected],
    *,
    excluded: ExcludedIds,
    once: bool = False,
) -> Iterator[tuple[Record, list[NarratedClip]]]:
    """Yield each record that has narration and features, with its clips.

    Args:
        records: videos with transcripts.
        source: reader of the clips.
        settings: length and spacing of the clips.
        omitted: list to which videos that cannot be used are appended.
        excluded: ids of videos to leave out.
        once: True: a second record of the same video is omitted.
    """
    reason_to_omit = make_omission_check(source, excluded)
    seen_ids: set[str] = set()
    for record in records:
        video = record.video.id
        omit_reason = reason_to_omit(video)
        if once and video in seen_ids:
            omit_reason = (SEEN_TWICE, "")
        seen_ids.add(video)
        if omit_reason is None:
            try:
                clips = cut_into_clips(record, settings)
            except DatasetError as error:
                # Without id and cure, so that equal flaws count together.
                message = str(error).removeprefix(f"{record.id}: ")
                omit_reason = (message.partition(";")[0], "")
        if omit_reason is None:
            yield record, clips
        else:
            omitted.append(Rejected("video", omit_reason[0], id=video, value=omit_reason[1]))


def infer_labels(dataset: ClipDataset, settings: LabelSettings) -> Mask:
    """Return whether each of N clips counts as a visual narration, (N,), by the rule
    `settings.kind`.

    Raises DatasetError when no clip counts, or when modality consensus ("mc") lacks the tasks of
    the videos.
    """
    clips = dataset.clips
    if settings.kind == "ss":
        return label_by_sentence_similarity(compute_key_step_similarity(clips), settings)
    if settings.kind == "vr":
        return label_by_visual_relevance(clips)
    # MC: the task of each clip, and what the classifiers take it for
    tasks = _number_tasks(clips)
    pictures = []
    words = []
    for pair in dataset.pairs:
        if not isinstance(pair.video, np.ndarray):
            raise DatasetError(
                "MC labels classify the tasks of ready features; give --features, or labels.kind=ss"
            )
        pictures.append(pair.video.mean(axis=0, dtype=np.float32))
        words.append(pair.text[0])
    videos = [clip.video for clip in clips]
    by_picture = predict_task_log_probabilities(np.stack(pictures), tasks, videos)
    by_words = predict_task_log_probabilities(np.stack(words), tasks, videos)
    return label_by_modality_consensus(tasks, by_picture, by_words, settings)


def _number_tasks(clips: Sequence[NarratedClip]) -> Tasks:
    """Return the task of each clip as a number, (N,)."""
    missing = sum(clip.task is None for clip in clips)
    if missing:
        raise DatasetError(
            f"{missing} of {len(clips)} clips have no task; MC labels need the task of every video"
        )
    names = np.array([str(clip.task) for clip in clips], dtype=object)
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def compute_key_step_similarity(clips: Sequence[NarratedClip]) -> Array:
    """Return the similarity of narration and key-step of each of N clips by MiniLM, (N,) in [0, 1].
    It is NaN for a clip without a key-step.
    """
    # every text once
    pairs = [(clip.text, clip.key_step) for clip in clips if clip.key_step is not None]
    texts = sorted({text for pair in pairs for text in pair})
    vector_of = dict(zip(texts, embed(texts).astype(np.float64), strict=True))
    # Rows of length 1, so that the products below are cosines.
    cosine = np.full(len(clips), np.nan)
    for index, clip in enumerate(clips):
        if clip.key_step is not None:
            cosine[index] = vector_of[clip.text] @ vector_of[clip.key_step]
    # The paper leaves open how a cosine becomes a similarity. NaN stays NaN.
    similarity: Array = np.clip(cosine, 0.0, 1.0)
    return similarity


def label_by_sentence_similarity(similarity: Array, settings: LabelSettings) -> Mask:
    """Return sentence-similarity (SS) labels, (N,): True for clips whose narration is similar to
    their key-step.

    Args:
        similarity: (N,) similarity of narration and key-step, NaN for a clip without a key-step.
        settings: least similarity, or share of the clips to keep.

    Raises DatasetError when no clip has a key-step or none is similar enough.
    """
    has_step = np.isfinite(similarity)
    if not has_step.any():
        raise DatasetError(
            f"none of {len(similarity)} clips has a key-step; SS labels need key-steps with times"
        )
    similarities = similarity[has_step]
    min_similarity = settings.similarity
    if settings.quantile is not None:
        min_similarity = float(np.quantile(similarities, 1 - settings.quantile))
    labels: Mask = has_step & (np.where(has_step, similarity, -1.0) >= min_similarity)
    if not labels.any():
        best = similarities.max()
        raise DatasetError(
            f"no narration reaches similarity {min_similarity:g}, the most similar has {best:.2f}; lower it"
        )
    return labels


def label_by_visual_relevance(clips: Sequence[NarratedClip]) -> Mask:
    """Return visual-relevance (VR) labels, (N,): True for clips with any key-step. Raises
    DatasetError when no clip has one."""
    return require_key_steps(np.array([clip.key_step is not None for clip in clips], np.bool_))


def require_key_steps(has_step: Mask) -> Mask:
    """Return the given mask (N,) unchanged. Raises DatasetError when no clip has a key-step.

    has_step: (N,), True for clips with a key-step.
    """
    if not has_step.any():
        raise DatasetError(
            f"none of {len(has_step)} clips has a key-step; VR labels need key-steps with times"
        )
    return has_step


def label_by_modality_consensus(
    tasks: Tasks, video: Array, text: Array, settings: LabelSettings
) -> Mask:
    """Return modality-consensus (MC) labels, (N,): True for clips that rank among the best of their
    task by picture and also by words.

    Args:
        tasks: (N,) task number of each clip.
        video: (N, O) log probabilities of O tasks, classified from the picture.
        text: (N, O) log probabilities of O tasks, classified from the words.
        settings: `rank` is the fraction of a task's clips that counts as best.

    Raises DatasetError when no clip ranks among the best by both.
    """
    if video.shape != text.shape or video.ndim != 2 or tasks.shape != video.shape[:1]:
        raise ShapeError(
            f"need (N,) tasks and two (N, O) scores, not {tasks.shape}, {video.shape} and "
            f"{text.shape}"
        )
    by_video, by_text = (_is_among_best(tasks, scores, settings.rank) for scores in (video, text))
    labels = by_video & by_text
    if not labels.any():
        raise DatasetError(
            f"no clip ranks within {settings.rank:g} by picture and words; raise labels.rank"
        )
    return labels


def _is_among_best(tasks: Tasks, scores: Array, fraction: float) -> Mask:
    """Return whether each clip is in the best fraction of its task's clips, (N,).

    Args:
        tasks: (N,) task number of each clip.
        scores: (N, O) score of each clip for each of O tasks.
        fraction: fraction of a task's clips that is the best.
    """
    own = scores[np.arange(len(tasks)), tasks]  # (N,)
    high = np.zeros(len(tasks), dtype=np.bool_)
    for task in np.unique(tasks):
        rows = np.flatnonzero(tasks == task)
        order = np.argsort(-own[rows], kind="stable")
        high[rows[order[: round(fraction * len(rows))]]] = True
    return high


def predict_task_log_probabilities(features: Matrix, tasks: Tasks, videos: Sequence[str]) -> Array:
    """Return the log probability of each task for each row of features, (N, O), by cross-validation
    over videos.

    Args:
        features: (N, C) feature rows.
        tasks: (N,) true task numbers, 0 to O - 1.
        videos: id of the video of each row. A row is classified by a fit to other videos.

    Raises DatasetError for fewer than two tasks or videos.
    """
    names = sorted(set(videos))
    task_count = len(np.unique(tasks))
    if len(names) < 2 or task_count < 2:
        raise DatasetError(
            f"{len(names)} videos of {task_count} tasks; a task classifier needs two of each"
        )
    # the fold of every row is that of its video
    folds = {name: number % CROSS_VALIDATION_FOLDS for number, name in enumerate(names)}
    fold_of_row = np.array([folds[video] for video in videos])
    rows = standardise_columns(features)
    class_count = int(tasks.max()) + 1
    scores = np.zeros((len(rows), class_count))
    for fold in np.unique(fold_of_row):
        held_out = fold_of_row == fold
        weights = fit_softmax_regression(rows[~held_out], tasks[~held_out], class_count)
        logits = _append_ones(rows[held_out]) @ weights
        scores[held_out] = log_softmax(logits, axis=1)
    return scores


def fit_softmax_regression(rows: Array, classes: Tasks, count: int) -> Array:
    """Return the weights (C + 1, O) of a softmax regression fitted by L-BFGS. The last row is the
    bias.

    Args:
        rows: (N, C) feature rows.
        classes: (N,) class numbers, 0 to O - 1.
        count: O, number of classes.
    """
    inputs = _append_ones(rows)  # (N, C + 1)
    row_count, width = inputs.shape
    truth = np.eye(count)[classes]  # (N, O)
    no_decay = np.zeros((1, count))  # of the bias

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(width, count)
        logs = log_softmax(inputs @ weights, axis=1)
        # The bias is not drawn to 0.
        decayed = np.concatenate([weights[:-1], no_decay])
        mean_loss = -(truth * logs).sum() / row_count
        penalty = RIDGE_WEIGHT * (decayed**2).sum() / 2
        # The gradient of the mean loss and of the penalty.
        gradient = inputs.T @ (np.exp(logs) - truth) / row_count + RIDGE_WEIGHT * decayed
        return float(mean_loss + penalty), gradient.ravel()

    start = np.zeros(width * count)
    options = {"maxiter": MAX_FIT_ROUNDS}
    result = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(result.x.reshape(width, count))


def standardise_columns(rows: Matrix) -> Array:
    """Return rows (N, C) with mean 0 and standard deviation 1 in every column. Constant columns
    become 0."""
    values = rows.astype(np.float64)
    deviation = np.maximum(values.std(axis=0), MIN_STANDARD_DEVIATION)
    return np.asarray((values - values.mean(axis=0)) / deviation)


def _append_ones(rows: Array) -> Array:
    return np.column_stack([rows, np.ones(len(rows))])
