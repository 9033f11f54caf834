"""Fits P(a sentence describes a step | its wording) and writes
stepline/sieve_swap/instruction_wording.json.

    python benchmarks/fit_instruction_wording.py

A logistic regression on MiniLM vectors. Steps: the spoken ones of the development half of the made
videos. Idle talk: the development half of idle_lines.txt, each line with several foods and slips.
The ridge is chosen by five folds in which no idle line and no recipe is on both sides. The test
half, its frames and its idle lines are never read.
"""

import json
from pathlib import Path
from random import Random

import numpy as np
from fit_visible_text import auc, fit, predict
from made_transcripts import make_videos, read_recipes
from made_transcripts.noise import punctuated, spoken
from made_transcripts.pairs import read_pairs
from made_transcripts.recipes import short_name
from made_transcripts.tables import idle_lines
from whenact_data import FOLDS, Array, folds

from stepline.text import embed

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "stepline" / "sieve_swap" / "instruction_wording.json"
RESULT = ROOT / "benchmarks" / "results" / "instruction_wording.json"
RIDGES = (3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
TELLINGS = 12  # times that each idle line is said


def samples() -> tuple[list[str], Array, list[str]]:
    """Return the sentences, whether each describes a step, and the recipe or line that each comes
    from."""
    videos = [video for video in make_videos(read_recipes()) if video.half == "development"]
    texts, groups = [], []
    for video in videos:
        sentences = video.record.transcript.sentences if video.record.transcript else ()
        told = [
            sentence.text for sentence, steps in zip(sentences, video.truth, strict=True) if steps
        ]
        texts += told
        groups += [video.recipe.id] * len(told)
    steps, rng = len(texts), Random(0)
    for line in (line for lines in idle_lines("development").values() for line in lines):
        for _ in range(TELLINGS):
            recipe = rng.choice(videos).recipe
            names = [name for name in map(short_name, recipe.ingredients) if name]
            first, second = rng.sample(names, 2)
            text = spoken(
                line.format(dish=recipe.title.lower(), ingredient=first, another=second), rng
            )
            texts.append(punctuated(text) if rng.random() < 0.4 else text.lower())
            groups.append(line)
    return texts, np.arange(len(texts)) < steps, groups


def held_out(x: Array, y: Array, fold: Array, ridge: float) -> Array:
    """Return P(step) of every sentence by a fit that saw neither its recipe nor its line."""
    p = np.zeros(len(y))
    for one in range(FOLDS):
        p[fold == one] = predict(x[fold == one], fit(x[fold != one], y[fold != one], ridge))
    return p


def rates(p: Array, y: Array) -> dict[str, float]:
    kept = p >= 0.5
    right = float((kept & (y > 0)).sum())
    scores = {"auc": auc(p, y), "precision": right / kept.sum(), "recall": right / y.sum()}
    return {name: round(float(value), 4) for name, value in scores.items()}


def main() -> None:
    texts, told, groups = samples()
    x, y = embed(texts).astype(np.float64), told.astype(float)
    fold = folds(groups)
    tried = {str(ridge): rates(held_out(x, y, fold, ridge), y) for ridge in RIDGES}
    best = max(RIDGES, key=lambda ridge: tried[str(ridge)]["auc"])
    weights = fit(x, y, best)
    pairs = read_pairs()
    own = predict(embed([pair.said for pair in pairs]).astype(np.float64), weights)
    on_pairs = rates(own, np.array([float(pair.kind != "idle") for pair in pairs]))
    OUT.write_text(
        json.dumps(
            {"weights": [round(float(w), 5) for w in weights[:-1]], "intercept": weights[-1]}
        )
        + "\n"
    )
    result = {
        "steps": int(y.sum()),
        "idle": int(len(y) - y.sum()),
        "ridge": best,
        "five folds": tried,
        "sentences of the hand-made pairs": on_pairs,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
