"""Which names are materials, which tools: a logistic regression over MiniLM's vectors of names.

    python lab/fit_materials.py

Learns from lab/narrations/things.txt, writes stepline/writing/materials/thing_kinds.json, and
prints how many names are put right when they were not learned from (ten folds).
"""

import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from stepline.text import embed
from stepline.writing.materials.collect import THING_KINDS, WEIGHTS_FILE

ROOT_FOLDER = Path(__file__).resolve().parents[1]
THINGS_FILE = ROOT_FOLDER / "lab" / "narrations" / "things.txt"
WEIGHTS_PATH = ROOT_FOLDER / "stepline" / "writing" / "materials" / WEIGHTS_FILE
INVERSE_PENALTY = 10.0  # of the weights; 1 to 10 are alike when left out
WEIGHT_DECIMALS = 3


def read_things() -> tuple[list[str], list[int]]:
    """Return the names and the number of the kind of each."""
    names: dict[str, int] = {}
    for line in THINGS_FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        kind, _, listed = line.partition(": ")
        for name in listed.split(", "):
            names.setdefault(name.strip().lower(), THING_KINDS.index(kind))
    return list(names), list(names.values())


def main() -> None:
    """Learn, write and report."""
    names, kinds = read_things()
    vectors = embed(names)
    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=2000)
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    guesses = cross_val_predict(model, vectors, kinds, cv=folds, method="predict_proba")
    kind_of_name = np.array(kinds)
    right = guesses.argmax(axis=1) == kind_of_name
    print(f"{len(names)} names, {right.mean():.3f} right when left out")
    for number, kind in enumerate(THING_KINDS):
        is_kind = kind_of_name == number
        for floor in (0.5, 0.7, 0.9):
            is_named = guesses[:, number] >= floor
            hits = (is_named & is_kind).sum()
            precision = hits / max(1, is_named.sum())
            recall = hits / is_kind.sum()
            print(f"{kind:9} P >= {floor}: precision {precision:.3f}, found {recall:.3f}")
    model.fit(vectors, kinds)
    content = {
        "weights": np.round(model.coef_, WEIGHT_DECIMALS).tolist(),
        "biases": np.round(model.intercept_, WEIGHT_DECIMALS).tolist(),
    }
    WEIGHTS_PATH.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
