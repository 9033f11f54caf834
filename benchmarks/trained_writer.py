"""How well a writer that is trained on marked narration finds the sentences that tell a step.

    python benchmarks/trained_writer.py NARRATION.json.gz [--also FOLDER ...] [--folds 3]

Each fold of groups (dishes) is read by a tagger that was trained as `stepline train writer` trains
one, on the other folds. Prints AUC, the best F1, and the F1 at the threshold that was best on the
other folds, with an interval over videos.
"""

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from fit_step_score import best_f1
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import GroupKFold

from stepline.narration.tagger import WEIGHTS_FILE, NarrationTagger
from stepline.writing.extractive.step_score import score_features
from stepline.writing.training.marked import MarkedNarration, read_marked_narrations
from stepline.writing.training.network import write_network
from stepline.writing.training.train import TaggerTrainSettings, train_tagger

RESAMPLES = 1000
PERCENTILES = (2.5, 97.5)


def main() -> None:
    """Train a tagger per fold and print how well the folds are read."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("narration", type=Path)
    options.add_argument("--also", type=Path, nargs="*", default=[], help="train on these as well")
    options.add_argument("--folds", type=int, default=3)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--features", type=Path, help="keeps what the taggers read, as .npz")
    chosen = options.parse_args()
    logging.basicConfig(level=logging.INFO)
    narrations = read_marked_narrations(chosen.narration)
    others: list[MarkedNarration] = []
    for folder in chosen.also:
        others += read_marked_narrations(folder)
    groups = np.array([narration.group for narration in narrations])
    settings = TaggerTrainSettings(epochs=chosen.epochs)
    fold_of_video = np.zeros(len(narrations), int)
    features: dict[int, np.ndarray] = {}
    splits = GroupKFold(chosen.folds).split(groups, groups=groups)
    for fold, (training, test) in enumerate(splits):
        fold_of_video[test] = fold
        learned = others + [narrations[number] for number in training]
        read = [narrations[number] for number in test]
        for number, rows in zip(test, fold_features(learned, read, settings), strict=True):
            features[number] = rows
    videos = np.repeat(np.arange(len(narrations)), [len(features[n]) for n in range(len(features))])
    rows = np.concatenate([features[number] for number in range(len(narrations))])
    is_step = np.array([row.kind == "step" for n in narrations for row in n.sentences])
    if chosen.features is not None:
        np.savez(chosen.features, rows=rows, is_step=is_step, videos=videos, fold=fold_of_video)
    alone = Reading("the tagger's step alone", rows[:, 0], is_step, videos, fold_of_video)
    calibrated = calibrated_probabilities(rows, is_step, fold_of_video[videos])
    both = (alone, Reading("calibrated", calibrated, is_step, videos, fold_of_video))
    print(json.dumps([reading.summary() for reading in both], indent=1))


def fold_features(
    learned: Sequence[MarkedNarration],
    read: Sequence[MarkedNarration],
    settings: TaggerTrainSettings,
) -> list[np.ndarray]:
    """Return the features of each narration that is read, by a tagger trained on the others."""
    network, front_verbs = train_tagger(learned, settings)
    with TemporaryDirectory() as folder:
        path = Path(folder) / WEIGHTS_FILE
        write_network(network, {"front_verbs": list(front_verbs)}, path)
        tagger = NarrationTagger(path)
        features = []
        for narration in read:
            texts = [sentence.text for sentence in narration.sentences]
            features.append(score_features(tagger.read_sentences(texts), texts))
    return features


def calibrated_probabilities(
    rows: np.ndarray, is_step: np.ndarray, fold_of_row: np.ndarray
) -> np.ndarray:
    """Return P(step) of each row by a regression that was fitted on the other folds."""
    probabilities = np.zeros(len(rows))
    for fold in np.unique(fold_of_row):
        is_test = fold_of_row == fold
        model = LogisticRegression(C=1.0, max_iter=2000)
        model.fit(rows[~is_test], is_step[~is_test])
        probabilities[is_test] = model.predict_proba(rows[is_test])[:, 1]
    return probabilities


class Reading:
    """A score of every sentence, and how well it finds those that tell a step."""

    def __init__(
        self,
        name: str,
        scores: np.ndarray,
        is_step: np.ndarray,
        videos: np.ndarray,
        fold_of_video: np.ndarray,
    ) -> None:
        """scores, is_step, videos: of each sentence. fold_of_video: of each video."""
        self.name = name
        self.scores = scores
        self.is_step = is_step
        self.videos = videos
        self.fold_of_row = fold_of_video[videos]

    def summary(self) -> dict[str, object]:
        """Return AUC, the best F1, and F1 at the other folds' thresholds with its interval."""
        chosen = np.zeros(len(self.scores), bool)
        for fold in np.unique(self.fold_of_row):
            is_test = self.fold_of_row == fold
            _, threshold = best_f1(self.scores[~is_test], self.is_step[~is_test])
            chosen[is_test] = self.scores[is_test] >= threshold
        best, _ = best_f1(self.scores, self.is_step)
        low, high = self._interval(chosen)
        return {
            "score": self.name,
            "AUC": round(float(roc_auc_score(self.is_step, self.scores)), 3),
            "best F1": round(best, 3),
            "F1": round(float(f1_score(self.is_step, chosen)), 3),
            "interval": [round(low, 3), round(high, 3)],
        }

    def _interval(self, chosen: np.ndarray) -> tuple[float, float]:
        """Return the bounds of F1 over resampled videos."""
        count = int(self.videos.max()) + 1
        hits = np.bincount(self.videos, chosen & self.is_step, count)
        sizes = np.bincount(self.videos, chosen.astype(int) + self.is_step, count)
        rng = np.random.default_rng(0)
        scores = []
        for _ in range(RESAMPLES):
            sample = rng.integers(0, count, count)
            scores.append(2 * hits[sample].sum() / sizes[sample].sum())
        low, high = np.percentile(scores, PERCENTILES)
        return float(low), float(high)


if __name__ == "__main__":
    main()
