"""Running WYS2's trials: labels, detectors and baselines in the simulated world, scored by
ROC-AUC."""

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from research.study import Outcome, TrialStore
from research.wys2.corpus import Clips, Wys2Corpus, wys2_corpus
from research.wys2.listed_clips import ListedClips
from research.wys2.rows import AUC, Wys2Size, Wys2Trial
from stepline.evaluate.ranking import roc_auc
from stepline.records import Matrix
from stepline.training.batches import Mask
from stepline.training.settings import TrainSettings
from stepline.wys2.clips import ClipTextPair
from stepline.wys2.dataset import (
    Array,
    fit_softmax_regression,
    map_cosine,
    modality_consensus_labels,
    require_key_steps,
    sentence_similarity_labels,
    standardise_columns,
    task_log_probabilities,
)
from stepline.wys2.detector import Detector, score_pairs
from stepline.wys2.pseudo_labels import ValidationClips, train_with_pseudo_labels
from stepline.wys2.settings import DetectorSettings, LabelSettings
from stepline.wys2.train import train_detector


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
        held_out = {AUC: corpus.test, "validation": corpus.validation}
        began = time.process_time()
        scores: Mapping[str, Matrix | Array]
        positives: dict[str, float] = {}
        if trial.kind == "detector":
            network, precision, count = train_on(trial, corpus, folder / "training")
            positives = {"precision": precision, "positives": count}
            scores = {name: score_pairs(network, _plain(clips)) for name, clips in held_out.items()}
        else:
            scores = {
                name: _baseline_scores(trial, corpus, clips) for name, clips in held_out.items()
            }
        seconds = time.process_time() - began
        labels = {
            AUC: corpus.test.truth,
            "validation": labels_of(corpus.validation, LabelSettings(quantile=0.35)),
        }
        areas = {name: roc_auc(labels[name].astype(np.float64), scores[name]) for name in held_out}
        return Outcome({**areas, **positives}, seconds)


def labels_of(clips: Clips, settings: LabelSettings, *, resolved: bool = True) -> Mask:
    """Return the labels of clips, inferred from their key-steps."""
    cosine = clips.cosine(resolved=resolved)
    if settings.kind == "ss":
        return sentence_similarity_labels(map_cosine(cosine, settings.mapping), settings)
    if settings.kind == "vr":
        return require_key_steps(np.isfinite(cosine))
    seen, said = (
        task_log_probabilities(rows, clips.tasks, clips.videos)
        for rows in (_seen(clips), _said(clips))
    )
    return modality_consensus_labels(clips.tasks, seen, said, settings)


def train_on(trial: Wys2Trial, corpus: Wys2Corpus, folder: Path) -> tuple[Detector, float, int]:
    """Return the network, the precision of what it was trained on, and how many clips that was."""
    positive = _positive(trial, corpus.train)
    if trial.most is not None:
        drawn = np.random.default_rng(trial.seed).permutation(np.flatnonzero(positive))[
            : trial.most
        ]
        positive = np.isin(np.arange(len(positive)), drawn)
    chosen = corpus.train.where(positive)
    pairs = [item.overlapping if trial.overlapping else item.pair for item in chosen.items]
    if trial.contrast.objective == "nce":
        pairs = [_first(pair) for pair in pairs]
    truth = chosen.truth.tolist()
    if trial.everything:
        pairs += _plain(corpus.unlabelled)
        truth += corpus.unlabelled.truth.tolist()

    def train(given: Sequence[ClipTextPair], number: int) -> Detector:
        return _train(given, trial, folder / str(number))

    try:
        if trial.pseudo is None:
            return train(pairs, 0), float(np.mean(truth)), len(pairs)
        weak = labels_of(corpus.validation, trial.labels, resolved=trial.resolved)
        held = ValidationClips(_plain(corpus.validation), weak)
        made = train_with_pseudo_labels(
            pairs,
            ListedClips(_plain(corpus.unlabelled)),
            held,
            train,
            trial.pseudo,
            corpus.unlabelled.truth,
        )
        last = made.rounds[-1]
        shown = sum(truth) + (last.precision or 0.0) * last.pseudo_labelled
        return made.detector, shown / last.pairs, last.pairs
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _positive(trial: Wys2Trial, clips: Clips) -> Mask:
    if trial.positives == "planted":
        return clips.truth
    if trial.positives == "all":
        return np.ones(len(clips), dtype=np.bool_)
    return labels_of(clips, trial.labels, resolved=trial.resolved)


def _train(pairs: Sequence[ClipTextPair], trial: Wys2Trial, folder: Path) -> Detector:
    width = pairs[0].text.shape[1]
    detector = DetectorSettings(
        video_width=pairs[0].array().shape[1], text_width=width, score=trial.score
    )
    settings = training(trial.size, len(pairs), trial.seed)
    return train_detector(
        pairs, folder, detector=detector, contrast=trial.contrast, settings=settings
    )


def training(size: Wys2Size, pairs: int, seed: int) -> TrainSettings:
    """Return a training of about `size.steps` steps, in whole epochs."""
    epochs = max(1, round(size.steps / math.ceil(pairs / size.batch)))
    return TrainSettings(
        epochs=epochs,
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
    texts = _said(clips)
    if trial.kind == "zero-shot":
        video = _seen(clips)
        return np.asarray(np.einsum("nc,nc->n", video, texts) / np.linalg.norm(video, axis=1))
    known = _said(corpus.train)
    both = standardise_columns(np.concatenate([known, texts]))
    labels = labels_of(corpus.train, trial.labels, resolved=trial.resolved)
    weights = fit_softmax_regression(both[: len(known)], labels.astype(np.int64), 2)
    wide = np.column_stack([both[len(known) :], np.ones(len(texts))])
    return np.asarray(wide @ (weights[:, 1] - weights[:, 0]))


def _seen(clips: Clips) -> Matrix:
    """Return (N, C): the mean feature row of each clip."""
    return np.stack([pair.array().mean(axis=0, dtype=np.float32) for pair in clips.pairs])


def _said(clips: Clips) -> Matrix:
    """Return (N, C): the vector of what is said in each clip."""
    return np.stack([pair.text[0] for pair in clips.pairs])


def _plain(clips: Clips) -> list[ClipTextPair]:
    """Return clips of 3 s with their own text alone."""
    return [_first(pair) for pair in clips.pairs]


def _first(pair: ClipTextPair) -> ClipTextPair:
    return replace(pair, text=pair.text[:1])
