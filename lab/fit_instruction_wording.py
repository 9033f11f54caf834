"""Fits P(a sentence describes a step | its wording) and writes
stepline/sieve_swap/instruction_wording.json.

    python lab/fit_instruction_wording.py

A logistic regression on MiniLM vectors. Steps: the spoken ones of the development half of the made
videos. Idle talk: the development half of idle_lines.txt, each line with several foods and slips.
The ridge is chosen by five folds in which no idle line and no recipe is on both sides. The test
half, its frames and its idle lines are never read.
"""

import json
from pathlib import Path
from random import Random

import numpy as np
from made_transcripts import make_videos, read_recipes
from made_transcripts.noise import punctuated, spoken
from made_transcripts.pairs import read_pairs
from made_transcripts.recipes import Recipe, short_name
from made_transcripts.tables import idle_lines
from scipy.optimize import minimize
from scipy.stats import rankdata
from whenact_data import FOLDS, Array, folds

from stepline.text import embed

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
MODEL_PATH = PROJECT_FOLDER / "stepline" / "sieve_swap" / "instruction_wording.json"
RESULT_PATH = PROJECT_FOLDER / "lab" / "results" / "instruction_wording.json"
RIDGE_WEIGHTS = (3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
IDLE_REPEATS = 12  # times that each idle line is said


def samples() -> tuple[list[str], Array, list[str]]:
    """Return the sentences, whether each describes a step, and the recipe or line that each comes
    from."""
    videos = [video for video in make_videos(read_recipes()) if video.half == "development"]
    texts = []
    groups = []
    for video in videos:
        sentences = video.record.transcript.sentences if video.record.transcript else ()
        for sentence, steps in zip(sentences, video.truth, strict=True):
            if steps:
                texts.append(sentence.text)
                groups.append(video.recipe.id)
    step_count = len(texts)
    rng = Random(0)
    idle = [line for lines in idle_lines("development").values() for line in lines]
    for line in idle:
        for _ in range(IDLE_REPEATS):
            texts.append(idle_text(line, rng.choice(videos).recipe, rng))
            groups.append(line)
    return texts, np.arange(len(texts)) < step_count, groups


def idle_text(line: str, recipe: Recipe, rng: Random) -> str:
    """Return an idle line as it is said in a video of a recipe."""
    names = [short_name(ingredient) for ingredient in recipe.ingredients]
    first, second = rng.sample([name for name in names if name], 2)
    filled = line.format(dish=recipe.title.lower(), ingredient=first, another=second)
    text = spoken(filled, rng)
    if rng.random() < 0.4:
        return punctuated(text)
    return text.lower()


def fit(x: Array, y: Array, ridge: float) -> Array:
    """Return the weights (D + 1,), the last one the intercept."""
    wide = np.column_stack([x, np.ones(len(x))])

    def loss(w: Array) -> tuple[float, Array]:
        z = wide @ w
        losses = np.logaddexp(0, z) - y * z
        penalty = ridge * (w[:-1] ** 2).sum()
        residuals = 1 / (1 + np.exp(-z)) - y
        slope = wide.T @ residuals / len(y)
        penalty_slope = np.append(2 * ridge * w[:-1], 0)
        return float(losses.mean() + penalty), slope + penalty_slope

    start = np.zeros(wide.shape[1])
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B").x)


def predict(x: Array, w: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-(x @ w[:-1] + w[-1]))))


def auc(score: Array, y: Array) -> float:
    """Return the area under the ROC curve. y: 1.0 for a positive."""
    ranks = rankdata(score)
    positive = y.sum()
    negative = len(y) - positive
    # Of the ranks of the positives
    rank_sum = ranks[y > 0].sum()
    least_sum = positive * (positive + 1) / 2
    return float((rank_sum - least_sum) / (positive * negative))


def held_out(x: Array, y: Array, fold: Array, ridge: float) -> Array:
    """Return P(step) of every sentence by a fit that saw neither its recipe nor its line."""
    p = np.zeros(len(y))
    for number in range(FOLDS):
        test = fold == number
        p[test] = predict(x[test], fit(x[~test], y[~test], ridge))
    return p


def rates(p: Array, y: Array) -> dict[str, float]:
    """Return the AUC, and precision and recall at P = .5."""
    is_predicted = p >= 0.5
    right = float((is_predicted & (y > 0)).sum())
    scores = {"auc": auc(p, y), "precision": right / is_predicted.sum(), "recall": right / y.sum()}
    return {name: round(float(value), 4) for name, value in scores.items()}


def main() -> None:
    texts, is_step, groups = samples()
    x = embed(texts).astype(np.float64)
    y = is_step.astype(float)
    # The ridge
    fold = folds(groups)
    rates_of_ridges = {}
    for ridge in RIDGE_WEIGHTS:
        rates_of_ridges[str(ridge)] = rates(held_out(x, y, fold, ridge), y)
    best = max(RIDGE_WEIGHTS, key=lambda ridge: rates_of_ridges[str(ridge)]["auc"])
    weights = fit(x, y, best)
    # Other sentences: those of the hand-made pairs
    pairs = read_pairs()
    pair_vectors = embed([pair.sentence for pair in pairs]).astype(np.float64)
    is_step_of_pair = np.array([float(pair.kind != "idle") for pair in pairs])
    on_pairs = rates(predict(pair_vectors, weights), is_step_of_pair)
    rounded = [round(float(weight), 5) for weight in weights[:-1]]
    model = {"weights": rounded, "intercept": weights[-1]}
    MODEL_PATH.write_text(json.dumps(model) + "\n")
    result = {
        "steps": int(y.sum()),
        "idle": int(len(y) - y.sum()),
        "ridge": best,
        "five folds": rates_of_ridges,
        "sentences of the hand-made pairs": on_pairs,
    }
    text = json.dumps(result, indent=1)
    RESULT_PATH.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
