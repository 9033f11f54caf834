"""Running WYS2's trials: each once, its result kept on disk under the name of its content."""

import json
import logging
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from stepline.batches import Flags
from stepline.evaluate.ranking import roc_auc
from stepline.experiments.wys2_corpus import Clips, Wys2Corpus, wys2_corpus
from stepline.experiments.wys2_trial import Wys2Size, Wys2Trial
from stepline.records import Matrix
from stepline.store import write_atomic
from stepline.training_settings import TrainSettings
from stepline.wys2.labels import Array, by_consensus, by_relevance_of, by_similarity, mapped
from stepline.wys2.model import Detector
from stepline.wys2.pairs import Pair
from stepline.wys2.pseudo_label import Validation, pseudo_label
from stepline.wys2.settings import DetectorSettings, LabelSettings
from stepline.wys2.task_classifiers import fit_softmax, standard, task_scores
from stepline.wys2.train import score_pairs, train_detector

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wys2Outcome:
    """What a trial gave.

    auc: on the test clips' truth; validation: on the validation clips' SS labels; precision: of the positives it was
    trained on, by the truth; positives: how many; cpu_seconds: of its training.
    """

    auc: float
    validation: float
    precision: float
    positives: int
    cpu_seconds: float


def run_trial(trial: Wys2Trial, folder: Path) -> Wys2Outcome:
    """Return what a trial gives, from disk where it has been run."""
    path = folder / f"{trial.key}.json"
    if not path.exists():
        corpus = wys2_corpus(trial.seed, trial.size.labelled, trial.size.unlabelled)
        outcome = _trained(trial, corpus, folder / trial.key)
        tree = {"trial": trial.model_dump(mode="json"), "outcome": asdict(outcome)}
        write_atomic(path, json.dumps(tree, indent=1) + "\n")
        log.info("%s: ROC-AUC %.3f, %.1f CPU s", trial.key, outcome.auc, outcome.cpu_seconds)
    return Wys2Outcome(**json.loads(path.read_text(encoding="utf-8"))["outcome"])


def _trained(trial: Wys2Trial, corpus: Wys2Corpus, place: Path) -> Wys2Outcome:
    began = time.process_time()
    scores: Mapping[str, Matrix | Array]
    precision, positives = math.nan, 0
    if trial.kind == "detector":
        network, precision, positives = train_on(trial, corpus, place)
        scores = {name: score_pairs(network, _plain(clips)) for name, clips in _held(corpus).items()}
    else:
        scores = {name: _baseline(trial, corpus, clips) for name, clips in _held(corpus).items()}
    seconds = time.process_time() - began
    weak = labels_of(corpus.validation, LabelSettings(quantile=0.35))
    return Wys2Outcome(
        roc_auc(corpus.test.truth.astype(np.float64), scores["test"]),
        roc_auc(weak.astype(np.float64), scores["validation"]),
        precision,
        positives,
        seconds,
    )


def _held(corpus: Wys2Corpus) -> dict[str, Clips]:
    return {"test": corpus.test, "validation": corpus.validation}


def labels_of(clips: Clips, settings: LabelSettings, *, resolved: bool = True) -> Flags:
    """Return the labels of clips, inferred from their key-steps."""
    cosine = clips.cosine(resolved=resolved)
    if settings.kind == "ss":
        return by_similarity(mapped(cosine, settings.mapping), settings)
    if settings.kind == "vr":
        return by_relevance_of(np.isfinite(cosine))
    seen, said = (task_scores(rows, clips.tasks, clips.videos) for rows in (_seen(clips), _said(clips)))
    return by_consensus(clips.tasks, seen, said, settings)


def train_on(trial: Wys2Trial, corpus: Wys2Corpus, place: Path) -> tuple[Detector, float, int]:
    """Return the network, the precision of what it was trained on, and how many clips that was."""
    chosen = corpus.train.where(_positive(trial, corpus.train))
    pairs = [item.overlapping if trial.overlapping else item.pair for item in chosen.items]
    if trial.contrast.objective == "nce":
        pairs = [_first(pair) for pair in pairs]
    truth = chosen.truth.tolist()
    if trial.everything:
        pairs += _plain(corpus.unlabelled)
        truth += corpus.unlabelled.truth.tolist()

    def train(given: Sequence[Pair], number: int) -> Detector:
        return _train(given, trial, place / str(number))

    try:
        if trial.pseudo is None:
            return train(pairs, 0), float(np.mean(truth)), len(pairs)
        weak = labels_of(corpus.validation, trial.labels, resolved=trial.resolved)
        held = Validation(_plain(corpus.validation), weak)
        made = pseudo_label(pairs, _plain(corpus.unlabelled), held, train, trial.pseudo, corpus.unlabelled.truth)
        last = made.rounds[-1]
        shown = sum(truth) + (last.precision or 0.0) * last.kept
        return made.detector, shown / last.pairs, last.pairs
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _positive(trial: Wys2Trial, clips: Clips) -> Flags:
    if trial.positives == "planted":
        return clips.truth
    if trial.positives == "all":
        return np.ones(len(clips), dtype=np.bool_)
    return labels_of(clips, trial.labels, resolved=trial.resolved)


def _train(pairs: Sequence[Pair], trial: Wys2Trial, folder: Path) -> Detector:
    width = pairs[0].text.shape[1]
    detector = DetectorSettings(video_width=pairs[0].video.shape[1], text_width=width, score=trial.score)
    settings = training(trial.size, len(pairs), trial.seed)
    return train_detector(pairs, folder, detector=detector, contrast=trial.contrast, settings=settings)


def training(size: Wys2Size, pairs: int, seed: int) -> TrainSettings:
    """Return a training of about `size.steps` steps, in whole epochs."""
    epochs = max(1, round(size.steps / math.ceil(pairs / size.batch)))
    return TrainSettings(
        epochs=epochs, batch=size.batch, learning_rate=size.learning_rate, weight_decay=1e-4, seed=seed,
        save_every=1_000_000,
    )  # fmt: skip


def _baseline(trial: Wys2Trial, corpus: Wys2Corpus, clips: Clips) -> Matrix | Array:
    """Return the scores of what needs no detector."""
    if trial.kind == "objects":
        return np.array([item.object for item in clips.items])
    texts = _said(clips)
    if trial.kind == "zero-shot":
        video = _seen(clips)
        return np.asarray(np.einsum("nc,nc->n", video, texts) / np.linalg.norm(video, axis=1))
    known = _said(corpus.train)
    both = standard(np.concatenate([known, texts]))
    labels = labels_of(corpus.train, trial.labels, resolved=trial.resolved)
    weights = fit_softmax(both[: len(known)], labels.astype(np.int64), 2)
    wide = np.column_stack([both[len(known) :], np.ones(len(texts))])
    return np.asarray(wide @ (weights[:, 1] - weights[:, 0]))


def _seen(clips: Clips) -> Matrix:
    """Return (N, C): the mean feature row of each clip."""
    return np.stack([pair.video.mean(axis=0, dtype=np.float32) for pair in clips.pairs])


def _said(clips: Clips) -> Matrix:
    """Return (N, C): the vector of what is said in each clip."""
    return np.stack([pair.text[0] for pair in clips.pairs])


def _plain(clips: Clips) -> list[Pair]:
    """Return clips of 3 s with their own text alone."""
    return [_first(pair) for pair in clips.pairs]


def _first(pair: Pair) -> Pair:
    return replace(pair, text=pair.text[:1])
