"""Fits the judge that ships without a trained detector, and measures it on videos that it was not fitted to.

    python benchmarks/fit_judge.py --cache DIR --fit 0 16 --test 300 316

Drawn videos with known truth: a sentence is shown when a step that rests on it is on screen for at least half a second
of its clip. Steps are written and grounded by the main job's own functions from the script's sentences at their true
times. The regressions are fitted to the first seeds; ROC-AUC (with intervals over videos) and expected calibration
error are measured on the others. The wording's logit keeps weight 1: real narrations (WhenAct) taught it, and the drawn
world's few wordings must not unteach it. Beside them: what the picture's cosine tells of a clip without the grounding.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from fit_visible_text import auc, calibration, interval
from grounding import Seen, rendered, seen
from scipy.optimize import minimize

from research.drawn_videos import true_record
from stepline.grounding.ground import ground
from stepline.records import Record, Transcript
from stepline.storage import write_atomic
from stepline.text import embed
from stepline.text.visibility import predict_visibility
from stepline.writing import write_steps
from stepline.wys2.judge import clipped_logit, grounding_evidence, judged_span

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "stepline" / "wys2" / "judge.json"
RESULT = ROOT / "benchmarks" / "results" / "judge.json"
OVERLAP = 0.5  # s of the clip that must show the step
RIDGE = 1e-3  # a few hundred sentences; not tuned
COLUMNS = ("wording", "picture", "on screen", "told")

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sentences:
    """Evidence (N,) by name and truth (N,) of sentences, and which video each is of."""

    evidence: dict[str, Array]
    shown: Array
    video: npt.NDArray[np.int_]


def sentences(seeds: range, cache: Path) -> Sentences:
    parts, shown, video = [], [], []
    for number, seed in enumerate(seeds):
        path, script = rendered(seed, cache)
        record = true_record(script)
        parts.append(_evidence(record, seen(path, [step.text for step in record.reference]), script.duration))
        shown.append(labels(record))
        video.append(np.full(len(shown[-1]), number))
    evidence = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    return Sentences(evidence, np.concatenate(shown), np.concatenate(video))


def _evidence(record: Record, pictures: Seen, duration: float) -> dict[str, Array]:
    transcript = record.transcript or Transcript()
    steps = write_steps(transcript).steps
    vectors, said = embed([step.text for step in steps]), embed([one.text for one in transcript.sentences])
    grounding = ground(
        steps, duration=duration, transcript=transcript, features=pictures.features, step_vectors=vectors,
        activity=pictures.activity,
    )  # fmt: skip
    told, on = grounding_evidence(transcript, grounding.steps, grounding.alignment)
    cosines = said.astype(np.float64) @ pictures.features.values.T  # (S, T)
    spread = (cosines - cosines.mean(axis=1, keepdims=True)) / cosines.std(axis=1, keepdims=True)
    clips = [pictures.features.rows(judged_span(one.span)) for one in transcript.sentences]
    picture = [spread[k, rows].mean() if rows.stop > rows.start else 0.0 for k, rows in enumerate(clips)]
    columns = (clipped_logit(predict_visibility(said)), np.array(picture), told * clipped_logit(on), told)
    return dict(zip(COLUMNS, columns, strict=True))


def labels(record: Record) -> Array:
    """Return 1.0 for each sentence whose own clip shows what it says."""
    transcript = record.transcript or Transcript()
    found = np.zeros(len(transcript.sentences))
    for step in record.reference:
        for source in step.sources:
            clip = judged_span(transcript.sentences[source].span)
            found[source] = max(found[source], any(clip.overlap(span) >= OVERLAP for span in step.spans))
    return found


def fit(evidence: Array, told: Array, shown: Array, weight: float | None = None) -> Array:
    """Return weights (3,) of evidence, told and one; the first is `weight` where given."""
    columns = np.column_stack([evidence, told, np.ones(len(shown))])
    free = np.array([weight is None, True, True])
    fixed = np.array([weight or 0.0, 0.0, 0.0])

    def loss(w: Array) -> tuple[float, Array]:
        z = columns @ (fixed + np.where(free, w, 0.0))
        penalty = RIDGE * (w[:2] ** 2 * free[:2]).sum()
        slope = columns.T @ (1 / (1 + np.exp(-z)) - shown) / len(shown) + 2 * RIDGE * np.append(w[:2], 0)
        return float((np.logaddexp(0, z) - shown * z).mean() + penalty), np.where(free, slope, 0.0)

    return np.asarray(fixed + np.where(free, minimize(loss, np.zeros(3), jac=True, method="L-BFGS-B").x, 0.0))


KINDS: dict[str, tuple[str, float | None]] = {
    "words": ("wording", 1.0), "grounding": ("on screen", None), "told and cosine": ("picture", None),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--fit", type=int, nargs=2, default=(0, 16))
    parser.add_argument("--test", type=int, nargs=2, default=(300, 316))
    options = parser.parse_args()
    given, held = (sentences(range(*seeds), options.cache) for seeds in (options.fit, options.test))
    told = held.evidence["told"]
    weights, rows = {}, {}
    for name, (column, weight) in KINDS.items():
        w = fit(given.evidence[column], given.evidence["told"], given.shown, weight)
        p = 1 / (1 + np.exp(-(np.column_stack([held.evidence[column], told, np.ones(len(told))]) @ w)))
        weights[name] = [round(float(value), 4) for value in w]
        rows[name] = {
            "ROC-AUC": round(auc(p, held.shown), 4),
            "interval": interval(p, held.shown, held.video),
            "ROC-AUC of instructions": round(auc(p[told > 0], held.shown[told > 0]), 4),
            "ECE": round(calibration(p, held.shown), 4),
        }
    alone = {name: round(auc(held.evidence[name], held.shown), 4) for name in COLUMNS}
    counts = {"sentences": len(held.shown), "shown": int(held.shown.sum()), "fitted to": len(given.shown)}
    result = {"fit": options.fit, "test": options.test, **counts, "alone": alone, "judges": rows}
    write_atomic(OUT, json.dumps({name: weights[name] for name in ("words", "grounding")}) + "\n")
    write_atomic(RESULT, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
