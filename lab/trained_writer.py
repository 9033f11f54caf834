"""How well a writer that is trained on marked narration finds the sentences that describe a step.

    python lab/trained_writer.py NARRATION.json.gz [--also FOLDER ...] [--folds 3]

Each fold of groups (dishes) is read by a tagger that was trained as lab/writer_training trains
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

from lab.writer_training.marked import MarkedNarration, read_marked_narrations
from lab.writer_training.network import write_network
from lab.writer_training.train import TaggerTrainSettings, train_tagger
from stepline.text.narration.tagger import WEIGHTS_FILE, NarrationTagger
from stepline.writing.extractive.step_score import score_features

RESAMPLE_COUNT = 1000
INTERVAL_PERCENTILES = (2.5, 97.5)


def main() -> None:
    """Train a tagger per fold and print how well the folds are read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("narration", type=Path)
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="train on these as well")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--features", type=Path, help="keeps what the taggers read, as .npz")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)

    # the narrations
    narrations = read_marked_narrations(options.narration)
    others: list[MarkedNarration] = []
    for folder in options.also:
        others += read_marked_narrations(folder)
    groups = np.array([narration.group for narration in narrations])
    settings = TaggerTrainSettings(epochs=options.epochs)

    # each fold by a tagger of the other folds
    fold_of_video = np.zeros(len(narrations), int)
    features: dict[int, np.ndarray] = {}
    splits = GroupKFold(options.folds).split(groups, groups=groups)
    for fold, (training, test) in enumerate(splits):
        fold_of_video[test] = fold
        training_narrations = others + [narrations[number] for number in training]
        test_narrations = [narrations[number] for number in test]
        fold_rows = fold_features(training_narrations, test_narrations, settings)
        features.update(zip(test.tolist(), fold_rows, strict=True))

    # all folds together
    rows = np.concatenate([features[number] for number in range(len(narrations))])
    lengths = [len(features[number]) for number in range(len(narrations))]
    videos = np.repeat(np.arange(len(narrations)), lengths)
    sentences = [row for narration in narrations for row in narration.sentences]
    is_step = np.array([sentence.kind == "step" for sentence in sentences])
    if options.features is not None:
        np.savez(options.features, rows=rows, is_step=is_step, videos=videos, fold=fold_of_video)
    calibrated = calibrated_probabilities(rows, is_step, fold_of_video[videos])
    summaries = []
    for name, scores in (("the tagger's step alone", rows[:, 0]), ("calibrated", calibrated)):
        reading = Reading(name, scores, is_step, videos, fold_of_video)
        summaries.append(reading.summary())
    print(json.dumps(summaries, indent=1))


def fold_features(
    training_narrations: Sequence[MarkedNarration],
    test_narrations: Sequence[MarkedNarration],
    settings: TaggerTrainSettings,
) -> list[np.ndarray]:
    """Return the features of each test narration, by a tagger trained on the others."""
    network, front_verbs = train_tagger(training_narrations, settings)
    with TemporaryDirectory() as folder:
        path = Path(folder) / WEIGHTS_FILE
        write_network(network, {"front_verbs": list(front_verbs)}, path)
        tagger = NarrationTagger(path)
    features = []
    for narration in test_narrations:
        texts = [sentence.text for sentence in narration.sentences]
        sentence_tags = tagger.tag_sentences(texts)
        features.append(score_features(sentence_tags, texts))
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
    """A score of every sentence, and how well it finds those that describe a step."""

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
        is_chosen = np.zeros(len(self.scores), bool)
        for fold in np.unique(self.fold_of_row):
            is_test = self.fold_of_row == fold
            _, threshold = best_f1(self.scores[~is_test], self.is_step[~is_test])
            is_chosen[is_test] = self.scores[is_test] >= threshold
        best, _ = best_f1(self.scores, self.is_step)
        low, high = self._interval(is_chosen)
        return {
            "score": self.name,
            "AUC": round(float(roc_auc_score(self.is_step, self.scores)), 3),
            "best F1": round(best, 3),
            "F1": round(float(f1_score(self.is_step, is_chosen)), 3),
            "interval": [round(low, 3), round(high, 3)],
        }

    def _interval(self, is_chosen: np.ndarray) -> tuple[float, float]:
        """Return the bounds of F1 over resampled videos."""
        count = int(self.videos.max()) + 1
        hits = np.bincount(self.videos, is_chosen & self.is_step, count)
        sizes = np.bincount(self.videos, is_chosen.astype(int) + self.is_step, count)
        rng = np.random.default_rng(0)
        scores = []
        for _ in range(RESAMPLE_COUNT):
            sample = rng.integers(0, count, count)
            scores.append(2 * hits[sample].sum() / sizes[sample].sum())
        low, high = np.percentile(scores, INTERVAL_PERCENTILES)
        return float(low), float(high)


if __name__ == "__main__":
    main()
