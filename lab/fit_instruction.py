"""Fits whether a video instructs, from P(step) and the vectors of its sentences.

    python lab/fit_instruction.py lab/narrations [--shared FOLDER] [--write]

How-to narrations are those of `texts` and `later`. Talks are those of `talks` and the talk_* of
`texts`. The tagger was trained on `texts`, so the talks there count for the fit alone. Printed is
what holds on the talks of `talks`, each left out, and on the how-to narrations, a fifth left out at
a time. With --shared also on real captions (transcripts, clips_long) and tutorials (TutorialVQA)
that nothing was fitted on. The option --write stores the regression that is fitted on all, and the
numbers in lab/results/instruction.json.
"""

import argparse
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from lab.writer_training.marked import read_marked_narrations
from stepline.grounding.ground import MIN_INSTRUCTS_LOG_ODDS
from stepline.speech.captions import read_captions
from stepline.text import embed
from stepline.text.narration import load_tagger
from stepline.writing.extractive.step_score import (
    InstructionWeights,
    instruction_features,
    instruction_log_bayes,
)
from stepline.writing.extractive.writer import sentence_step_probabilities

LAB_FOLDER = Path(__file__).parent
WEIGHTS_PATH = LAB_FOLDER.parent / "stepline/writing/extractive/instruction.json"
RESULT_PATH = LAB_FOLDER / "results/instruction.json"
PART_SENTENCES = (10, 20, 40)
PARTS_PER_LENGTH = 2
FOLD_COUNT = 5
WEIGHT_DECIMALS = 4


@dataclass(frozen=True)
class Narration:
    """P(step), (S,), and vectors, (S, D), of the sentences of one video. left_out: talks that the
    tagger was not trained on."""

    name: str
    instructs: bool
    left_out: bool
    probabilities: np.ndarray
    vectors: np.ndarray


def main() -> None:
    """Fit, print and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("narrations", type=Path)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    narrations = read_folders(options.narrations)
    rows = part_features(narrations)
    model = fit(rows, narrations)
    least = MIN_INSTRUCTS_LOG_ODDS
    results = {"least": least, **left_out_scores(rows, narrations)}
    if options.shared is not None:
        results["real"] = real_scores(options.shared, model)
    print(json.dumps(results, indent=1))
    if options.write:
        content = {"weights": model.weights, "intercept": model.intercept}
        WEIGHTS_PATH.write_text(json.dumps(content) + "\n", encoding="utf-8")
        RESULT_PATH.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def read_folders(folder: Path) -> list[Narration]:
    """Return the narrations with what the scorer says of them."""
    narrations = []
    for part in ("texts", "later", "talks"):
        for marked in read_marked_narrations(folder / part):
            texts = [sentence.text for sentence in marked.sentences]
            is_talk = marked.name.startswith("talk")
            left_out = is_talk and part == "talks"
            probabilities, vectors = score(texts)
            narration = Narration(marked.name, not is_talk, left_out, probabilities, vectors)
            narrations.append(narration)
    return narrations


def score(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return P(step), (S,), and vectors, (S, D)."""
    probabilities = sentence_step_probabilities(texts, load_tagger())
    return np.array(probabilities), embed(texts)


def part_features(narrations: list[Narration]) -> list[np.ndarray]:
    """Return the features of each narration as a whole, first, and of random parts of it."""
    rng = np.random.default_rng(0)
    rows = []
    for narration in narrations:
        count = len(narration.probabilities)
        parts = [slice(0, count)]
        for length in PART_SENTENCES:
            if count > length:
                starts = rng.integers(0, count - length + 1, PARTS_PER_LENGTH)
                parts += [slice(start, start + length) for start in starts]
        features = []
        for part in parts:
            vectors = narration.vectors[part]
            features.append(instruction_features(narration.probabilities[part], vectors))
        rows.append(np.stack(features))
    return rows


def fit(rows: list[np.ndarray], narrations: list[Narration]) -> InstructionWeights:
    """Return the regression. Both kinds weigh alike, so its log odds are a log Bayes factor."""
    labels = []
    for features, narration in zip(rows, narrations, strict=True):
        labels += [narration.instructs] * len(features)
    model = LogisticRegression(C=1.0, class_weight="balanced", max_iter=2000)
    model.fit(np.concatenate(rows), np.array(labels))
    weights = [round(float(weight), WEIGHT_DECIMALS) for weight in model.coef_[0]]
    intercept = round(float(model.intercept_[0]), WEIGHT_DECIMALS)
    return InstructionWeights(weights, intercept)


def left_out_scores(
    rows: list[np.ndarray], narrations: list[Narration]
) -> dict[str, dict[str, float]]:
    """Return the log Bayes factor of each talk, and the five lowest of how-to narrations, of fits
    without them."""
    talks = [k for k, narration in enumerate(narrations) if narration.left_out]
    how_to = [k for k, narration in enumerate(narrations) if narration.instructs]
    groups = [[k] for k in talks]
    groups += [how_to[fold::FOLD_COUNT] for fold in range(FOLD_COUNT)]
    scores = {}
    for group in groups:
        others = [k for k in range(len(rows)) if k not in group]
        model = fit([rows[k] for k in others], [narrations[k] for k in others])
        for k in group:
            item = narrations[k]
            scores[k] = instruction_log_bayes(item.probabilities, item.vectors, model)
    lowest = sorted(how_to, key=lambda k: scores[k])[:5]
    return {
        "talks": {narrations[k].name: round(scores[k], 2) for k in talks},
        "how_to_lowest": {narrations[k].name: round(scores[k], 2) for k in lowest},
        "count": {"talks": len(talks), "how_to": len(how_to)},
    }


def real_scores(shared: Path, model: InstructionWeights) -> dict[str, float]:
    """Return the log Bayes factor of real captions and of tutorials, the lowest first."""
    texts: dict[str, list[str]] = {}
    for folder in ("transcripts/captions", "clips_long/captions"):
        for path in sorted((shared / folder).iterdir()):
            transcript = read_captions(path).transcript
            texts[path.name] = [sentence.text for sentence in transcript.sentences]
    packed = (shared / "data/tutorialvqa/tutorials.json.gz").read_bytes()
    for name, video in json.loads(gzip.decompress(packed)).items():
        texts[f"tutorial {name}"] = video["transcript"]
    scores = {}
    for name, sentences in texts.items():
        scores[name] = round(instruction_log_bayes(*score(sentences), model), 2)
    return dict(sorted(scores.items(), key=lambda item: item[1]))


if __name__ == "__main__":
    main()
