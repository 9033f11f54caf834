"""Running WYS2's trials: labels, detectors and baselines in the simulated world, scored by
ROC-AUC."""

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lab.study import Outcome, TrialStore
from lab.wys2.corpus import Clips, Wys2Corpus, wys2_corpus
from lab.wys2.listed_clips import ListedClips
from lab.wys2.rows import AUC_MEASURE, Wys2Size, Wys2Trial
from stepline.evaluate.ranking import roc_auc
from stepline.models.training.batches import Mask
from stepline.models.training.settings import TrainSettings
from stepline.models.wys2.clips import ClipTextPair
from stepline.models.wys2.dataset import (
    Array,
    fit_softmax_regression,
    label_by_modality_consensus,
    label_by_sentence_similarity,
    predict_task_log_probabilities,
    require_key_steps,
    standardise_columns,
)
from stepline.models.wys2.detector import Detector, score_pairs
from stepline.models.wys2.settings import DetectorSettings, LabelSettings
from stepline.models.wys2.train import ValidationClips, train_detector, train_with_pseudo_labels
from stepline.records import Matrix


@dataclass(frozen=True)
class Wys2Trials(TrialStore[Wys2Trial]):
    """Trials kept without their networks.

    ROC-AUC: on the test clips' truth.
    validation: on the validation clips' SS labels.
    precision: of the positives that were trained on, by the truth, and `positives` how many, both
    only of detectors.
    """

    def run(self, trial: Wys2Trial, folder: Path) -> Outcome:
        """Train and score a trial."""
        corpus = wys2_corpus(trial.seed, trial.size.labelled, trial.size.unlabelled)
        held_out = {AUC_MEASURE: corpus.test, "validation": corpus.validation}
        began = time.process_time()
        scores: dict[str, Matrix | Array] = {}
        positives: dict[str, float] = {}
        if trial.kind == "detector":
            network, precision, count = train_on(trial, corpus, folder / "training")
            positives = {"precision": precision, "positives": count}
            for name, clips in held_out.items():
                scores[name] = score_pairs(network, _plain(clips))
        else:
            for name, clips in held_out.items():
                scores[name] = _baseline_scores(trial, corpus, clips)
        seconds = time.process_time() - began
        labels = {
            AUC_MEASURE: corpus.test.truth,
            "validation": labels_of(corpus.validation, LabelSettings(quantile=0.35)),
        }
        areas = {name: roc_auc(labels[name].astype(np.float64), scores[name]) for name in held_out}
        return Outcome({**areas, **positives}, seconds)


def labels_of(clips: Clips, settings: LabelSettings, *, resolved: bool = True) -> Mask:
    """Return the labels of clips, inferred from their key-steps."""
    cosine = clips.cosine(resolved=resolved)
    if settings.kind == "ss":
        return label_by_sentence_similarity(np.clip(cosine, 0.0, 1.0), settings)
    if settings.kind == "vr":
        return require_key_steps(np.isfinite(cosine))
    picture_log_p = predict_task_log_probabilities(_mean_features(clips), clips.tasks, clips.videos)
    speech_log_p = predict_task_log_probabilities(_said_vectors(clips), clips.tasks, clips.videos)
    return label_by_modality_consensus(clips.tasks, picture_log_p, speech_log_p, settings)


def train_on(trial: Wys2Trial, corpus: Wys2Corpus, folder: Path) -> tuple[Detector, float, int]:
    """Return the network, the precision of what it was trained on, and how many clips that was."""
    # the positives
    is_positive = _positive(trial, corpus.train)
    positives = corpus.train.where(is_positive)
    pairs = [item.overlapping if trial.overlapping else item.pair for item in positives.items]
    if trial.contrast.objective == "nce":
        pairs = [_first(pair) for pair in pairs]
    truth = positives.truth.tolist()
    if trial.everything:
        pairs += _plain(corpus.unlabelled)
        truth += corpus.unlabelled.truth.tolist()

    def train(round_pairs: Sequence[ClipTextPair], number: int) -> Detector:
        return _train(round_pairs, trial, folder / str(number))

    try:
        if trial.pseudo is None:
            return train(pairs, 0), float(np.mean(truth)), len(pairs)
        weak_labels = labels_of(corpus.validation, trial.labels, resolved=trial.resolved)
        training = train_with_pseudo_labels(
            pairs,
            ListedClips(_plain(corpus.unlabelled)),
            ValidationClips(_plain(corpus.validation), weak_labels),
            train,
            trial.pseudo,
            corpus.unlabelled.truth,
        )
        last = training.rounds[-1]
        true_pseudo_labels = (last.precision or 0.0) * last.pseudo_labelled
        precision = (sum(truth) + true_pseudo_labels) / last.pairs
        return training.detector, precision, last.pairs
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _positive(trial: Wys2Trial, clips: Clips) -> Mask:
    if trial.positives == "planted":
        return clips.truth
    if trial.positives == "all":
        return np.ones(len(clips), dtype=np.bool_)
    return labels_of(clips, trial.labels, resolved=trial.resolved)


def _train(pairs: Sequence[ClipTextPair], trial: Wys2Trial, folder: Path) -> Detector:
    video_width = pairs[0].read_array().shape[1]
    text_width = pairs[0].text.shape[1]
    return train_detector(
        pairs,
        folder,
        detector=DetectorSettings(
            video_width=video_width, text_width=text_width, score=trial.score
        ),
        contrast=trial.contrast,
        settings=training(trial.size, len(pairs), trial.seed),
    )


def training(size: Wys2Size, pairs: int, seed: int) -> TrainSettings:
    """Return a training of about `size.steps` steps, in whole epochs."""
    batches = math.ceil(pairs / size.batch)
    return TrainSettings(
        epochs=max(1, round(size.steps / batches)),
        batch=size.batch,
        learning_rate=size.learning_rate,
        weight_decay=1e-4,
        seed=seed,
        save_every=1_000_000,
    )


def _baseline_scores(trial: Wys2Trial, corpus: Wys2Corpus, clips: Clips) -> Matrix | Array:
    """Return the scores of what needs no detector."""
    if trial.kind == "objects":
        return np.array([item.object for item in clips.items])
    texts = _said_vectors(clips)
    if trial.kind == "zero-shot":
        video = _mean_features(clips)
        products = np.einsum("nc,nc->n", video, texts)
        return np.asarray(products / np.linalg.norm(video, axis=1))

    # words alone: a logistic regression on the labels of the training clips
    train_texts = _said_vectors(corpus.train)
    train_count = len(train_texts)
    columns = standardise_columns(np.concatenate([train_texts, texts]))
    labels = labels_of(corpus.train, trial.labels, resolved=trial.resolved)
    weights = fit_softmax_regression(columns[:train_count], labels.astype(np.int64), 2)
    with_bias = np.column_stack([columns[train_count:], np.ones(len(texts))])
    return np.asarray(with_bias @ (weights[:, 1] - weights[:, 0]))


def _mean_features(clips: Clips) -> Matrix:
    """Return (N, C): the mean feature row of each clip."""
    return np.stack([pair.read_array().mean(axis=0, dtype=np.float32) for pair in clips.pairs])


def _said_vectors(clips: Clips) -> Matrix:
    """Return (N, C): the vector of what is said in each clip."""
    return np.stack([pair.text[0] for pair in clips.pairs])


def _plain(clips: Clips) -> list[ClipTextPair]:
    """Return clips of 3 s with their own text alone."""
    return [_first(pair) for pair in clips.pairs]


def _first(pair: ClipTextPair) -> ClipTextPair:
    return replace(pair, text=pair.text[:1])
