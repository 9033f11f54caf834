"""Fits the few numbers that calibrate P(a sentence describes a step) on marked narration.

    python lab/fit_step_score.py NARRATION.json.gz [--write]

Prints AUC and F1 with dishes left out. --write stores the regression that is fitted on all.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict

from lab.writer_training.marked import read_marked_narrations
from stepline.text.narration import load_tagger
from stepline.writing.extractive.step_score import score_features

WEIGHTS_PATH = Path(__file__).parent.parent / "stepline/writing/extractive/step_score.json"
FOLD_COUNT = 5
WEIGHT_DECIMALS = 4


def main() -> None:
    """Fit, print and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("narration", type=Path)
    parser.add_argument("--tagger", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    tagger = load_tagger(options.tagger)
    rows = []
    labels = []
    groups = []
    for narration in read_marked_narrations(options.narration):
        texts = [sentence.text for sentence in narration.sentences]
        rows.append(score_features(tagger.tag_sentences(texts), texts))
        labels += [sentence.kind == "step" for sentence in narration.sentences]
        groups += [narration.group] * len(texts)
    features = np.concatenate(rows)
    is_step = np.array(labels)
    model = LogisticRegression(C=1.0, max_iter=2000)
    folds = GroupKFold(FOLD_COUNT)
    probabilities = cross_val_predict(
        model, features, is_step, groups=groups, cv=folds, method="predict_proba"
    )
    columns = {"the tagger's step alone": features[:, 0], "calibrated": probabilities[:, 1]}
    for name, values in columns.items():
        score, threshold = best_f1(values, is_step)
        area = roc_auc_score(is_step, values)
        print(f"{name}: AUC {area:.3f}, F1 {score:.3f} at {threshold:.3f}")
    if options.write:
        model.fit(features, is_step)
        weights = [round(float(weight), WEIGHT_DECIMALS) for weight in model.coef_[0]]
        intercept = round(float(model.intercept_[0]), WEIGHT_DECIMALS)
        content = {"weights": weights, "intercept": intercept}
        WEIGHTS_PATH.write_text(json.dumps(content) + "\n", encoding="utf-8")


def best_f1(values: np.ndarray, is_step: np.ndarray) -> tuple[float, float]:
    """Return the best F1 over all thresholds, and the threshold."""
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(is_step[order])
    predicted = np.arange(1, len(order) + 1)
    scores = 2 * hits / (predicted + is_step.sum())
    best = int(scores.argmax())
    return float(scores[best]), float(values[order][best])


if __name__ == "__main__":
    main()
