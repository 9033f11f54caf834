"""Fits what decides which thing a pronoun stands for, on marked narration.

    python lab/fit_antecedents.py FOLDER [--write]

Prints, with narrations left out, how many pronouns get a name and how many names are right.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from lab.writer_training.antecedents import Case, fit_weights, judge, pronoun_cases
from lab.writer_training.marked import read_marked_narrations

WEIGHTS_PATH = Path(__file__).parent.parent / "stepline/writing/extractive/antecedents.json"
FOLD_COUNT = 5
WEIGHT_DECIMALS = 4


def main() -> None:
    """Fit, print and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cases: list[Case] = []
    for narration in read_marked_narrations(options.folder):
        cases += pronoun_cases(narration)
    names = sorted({case.narration for case in cases})
    fold = {name: number % FOLD_COUNT for number, name in enumerate(names)}
    judgements = []
    for number in range(FOLD_COUNT):
        train = [case for case in cases if fold[case.narration] != number]
        weights = fit_weights(train)
        for case in cases:
            if fold[case.narration] == number:
                judgements.append(judge(case, weights))
    right = np.mean([is_right for _, is_right in judgements])
    print(f"{len(cases)} pronouns; right without a threshold: {right:.3f}")
    for threshold in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        above = [is_right for chance, is_right in judgements if chance >= threshold]
        share = len(above) / len(judgements)
        print(f"from {threshold}: {share:.2f} get a name, {np.mean(above):.3f} of them right")
    weights = fit_weights(cases)
    if options.write:
        content = {"weights": [round(float(weight), WEIGHT_DECIMALS) for weight in weights]}
        WEIGHTS_PATH.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
