"""Fits what decides which thing a pronoun stands for, on marked narration.

    python benchmarks/fit_antecedents.py FOLDER [--write]

Prints, with narrations left out, how many pronouns get a name and how many names are right.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from stepline.writing.training.antecedents import (
    Case,
    fit_weights,
    judge,
    objectless_verbs_of,
    pronoun_cases,
)
from stepline.writing.training.marked import read_marked_narrations

TARGET = Path(__file__).parent.parent / "stepline/writing/extractive/antecedents.json"
FOLDS = 5
DIGITS = 4


def main() -> None:
    """Fit, print and perhaps write."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    cases: list[Case] = []
    for narration in read_marked_narrations(chosen.folder):
        cases += pronoun_cases(narration)
    names = sorted({case.narration for case in cases})
    fold = {name: number % FOLDS for number, name in enumerate(names)}
    judged = []
    for number in range(FOLDS):
        weights = fit_weights([case for case in cases if fold[case.narration] != number])
        judged += [judge(case, weights) for case in cases if fold[case.narration] == number]
    print(
        f"{len(cases)} pronouns; right without a threshold: {np.mean([r for _, r in judged]):.3f}"
    )
    for threshold in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        given = [is_right for chance, is_right in judged if chance >= threshold]
        share = len(given) / len(judged)
        print(f"from {threshold}: {share:.2f} get a name, {np.mean(given):.3f} of them right")
    weights = fit_weights(cases)
    narrations = read_marked_narrations(chosen.folder)
    if chosen.write:
        verbs = objectless_verbs_of(narrations)
        content = {
            "objectless": verbs,
            "weights": [round(float(weight), DIGITS) for weight in weights],
        }
        TARGET.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
