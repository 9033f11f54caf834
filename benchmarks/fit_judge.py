"""Fits the judge that ships without a trained detector, and measures it on videos that it was not
fitted to.

    python benchmarks/fit_judge.py --cache DIR --fit 0 16 --test 300 316
    python benchmarks/fit_judge.py --clips CLIPS --records DIR

Drawn videos with known truth. A sentence is shown when a step that rests on it is on screen for at
least half a second of its clip. Steps are written and grounded by the main job's own functions from
the script's sentences at their true times. The regressions are fitted to the first seeds. ROC-AUC
(with intervals over videos) and expected calibration error are measured on the others. The
wording's logit keeps weight 1: real narrations (WhenAct) taught it, and the drawn world's few
wordings must not unteach it. Next to them: what the picture's cosine says of a clip without the
grounding.

The second begins with those weights and fits what ships. These are the most likely weights on real
clips (as real_clips.py reads them) under a normal prior around the drawn ones. Each maker is left
out in turn. A sentence is shown when a labelled step in it is on screen for half a second of its
clip. The step must be spoken in it, by at least `SPOKEN` of the sentence.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from correspondence import maker
from fit_visible_text import auc, calibration, interval
from grounding import Seen, rendered, seen
from real_clips import pictures, records
from scipy.optimize import minimize

from research.drawn_videos import true_record
from research.refit.refit import fit_judge
from stepline.atomic_files import write_atomic
from stepline.evaluate.bootstrap import Ratio, over_sources, point_estimate, resample
from stepline.evaluate.bootstrap import interval as interval_of
from stepline.grounding.ground import ground
from stepline.numeric import logit
from stepline.pipeline.placing import ground_steps
from stepline.pipeline.request import StepsSettings
from stepline.records import Record, Sentence, Span, Transcript
from stepline.text import embed
from stepline.text.visibility import predict_visibility
from stepline.writing import write_steps
from stepline.wys2.judge import PROBABILITY_MARGIN, grounding_evidence, judge_rows, judged_span

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "stepline" / "wys2" / "judge.json"
RESULT = ROOT / "benchmarks" / "results" / "judge.json"
ON_CLIPS = RESULT.with_name("judge_on_clips.json")
OVERLAP = 0.5  # s of the clip that must show the step
SURE = 1e-3  # of a probability in a logarithm
SPOKEN = 0.3  # of a sentence in which a labelled step is spoken
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
        parts.append(
            _evidence(record, seen(path, [step.text for step in record.reference]), script.duration)
        )
        shown.append(labels(record))
        video.append(np.full(len(shown[-1]), number))
    evidence = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    return Sentences(evidence, np.concatenate(shown), np.concatenate(video))


def _evidence(record: Record, pictures: Seen, duration: float) -> dict[str, Array]:
    transcript = record.transcript or Transcript()
    steps = write_steps(transcript).steps
    vectors, said = (
        embed([step.text for step in steps]),
        embed([one.text for one in transcript.sentences]),
    )
    grounding = ground(
        steps,
        duration=duration,
        transcript=transcript,
        features=pictures.features,
        step_vectors=vectors,
        activity=pictures.activity,
    )
    told, on = grounding_evidence(transcript, grounding.steps, grounding.alignment)
    cosines = said.astype(np.float64) @ pictures.features.values.T  # (S, T)
    spread = (cosines - cosines.mean(axis=1, keepdims=True)) / cosines.std(axis=1, keepdims=True)
    clips = [pictures.features.rows(judged_span(one.span)) for one in transcript.sentences]
    picture = [
        spread[k, rows].mean() if rows.stop > rows.start else 0.0 for k, rows in enumerate(clips)
    ]
    columns = (
        logit(predict_visibility(said), PROBABILITY_MARGIN),
        np.array(picture),
        told * logit(on, PROBABILITY_MARGIN),
        told,
    )
    return dict(zip(COLUMNS, columns, strict=True))


def labels(record: Record) -> Array:
    """Return 1.0 for each sentence whose own clip shows what it says."""
    transcript = record.transcript or Transcript()
    found = np.zeros(len(transcript.sentences))
    for step in record.reference:
        for source in step.sources:
            clip = judged_span(transcript.sentences[source].span)
            found[source] = max(
                found[source], any(clip.overlap(span) >= OVERLAP for span in step.spans)
            )
    return found


def fit(evidence: Array, told: Array, shown: Array, weight: float | None = None) -> Array:
    """Return weights (3,) of evidence, wording and one. The first is `weight` where given."""
    columns = np.column_stack([evidence, told, np.ones(len(shown))])
    free = np.array([weight is None, True, True])
    fixed = np.array([weight or 0.0, 0.0, 0.0])

    def loss(w: Array) -> tuple[float, Array]:
        z = columns @ (fixed + np.where(free, w, 0.0))
        penalty = RIDGE * (w[:2] ** 2 * free[:2]).sum()
        slope = columns.T @ (1 / (1 + np.exp(-z)) - shown) / len(shown) + 2 * RIDGE * np.append(
            w[:2], 0
        )
        return float((np.logaddexp(0, z) - shown * z).mean() + penalty), np.where(free, slope, 0.0)

    return np.asarray(
        fixed + np.where(free, minimize(loss, np.zeros(3), jac=True, method="L-BFGS-B").x, 0.0)
    )


SENTENCE_KINDS: dict[str, tuple[str, float | None]] = {
    "words": ("wording", 1.0),
    "grounding": ("on screen", None),
    "told and cosine": ("picture", None),
}


def clip_sentences(clips: Path, known: Path) -> tuple[dict[str, Array], Array, list[str]]:
    """Return what the judges weigh of every sentence of real clips (N, 3), its truth (N,), and
    whose clip it is of."""
    truths = json.loads((clips / "labels.json").read_text())
    rows: dict[str, list[Array]] = {"words": [], "grounding": []}
    shown, makers = [], []
    for name, record in records(clips, list(truths), known).items():
        transcript = record.transcript or Transcript()
        if not transcript.sentences:
            continue
        duration, seen_of = record.video.duration or 0.0, pictures(clips / name, known)
        grounding = ground_steps(
            list(record.steps), duration, transcript, seen_of, StepsSettings(), written=True
        )
        told, on = grounding_evidence(transcript, grounding.steps, grounding.alignment)
        visibility = predict_visibility(embed([one.text for one in transcript.sentences]))
        wording = logit(visibility, PROBABILITY_MARGIN)
        rows["words"].append(np.column_stack([wording, told, np.ones(len(told))]))
        rows["grounding"].append(judge_rows(told, on))
        shown.append(np.array([_shown(one, truths[name]["steps"]) for one in transcript.sentences]))
        makers += [maker(name)] * len(told)
    return (
        {kind: np.concatenate(parts) for kind, parts in rows.items()},
        np.concatenate(shown),
        makers,
    )


def _shown(sentence: Sentence, steps: list[dict[str, Any]]) -> float:
    clip = judged_span(sentence.span)
    tells = [
        step
        for step in steps
        if step.get("spoken") and _says(sentence, Span(*map(float, step["spoken"])))
    ]
    spans = [Span(*map(float, pair)) for step in tells for pair in step.get("shown") or ()]
    return float(any(clip.overlap(span) >= OVERLAP for span in spans))


def _says(sentence: Sentence, spoken: Span) -> bool:
    return sentence.span.overlap(spoken) >= SPOKEN * sentence.span.duration


def fit_to_clips(clips: Path, known: Path) -> None:
    """Write the weights that ship and what they are worth on the clips of makers that they were not
    fitted to."""
    drawn = {
        name: np.array(weights)
        for name, weights in json.loads(RESULT.read_text())["weights"].items()
    }
    rows, shown, makers = clip_sentences(clips, known)
    makers_of = np.array(makers)
    found, weights = {}, {}
    for kind, columns in rows.items():
        left_out = np.zeros(len(shown))
        for name in set(makers):
            held = makers_of == name
            left_out[held] = _p(columns[held], fit_judge(columns[~held], shown[~held], drawn[kind]))
        weights[kind] = [round(float(value), 4) for value in fit_judge(columns, shown, drawn[kind])]
        told = columns[:, 1]
        for row, p in (
            ("drawn", _p(columns, drawn[kind])),
            ("left out", left_out),
            ("a step rests on it", told),
        ):
            right = Ratio((p >= 0.5) == (shown > 0), np.ones(len(shown)))
            bounds = interval_of(resample({"": over_sources(right, makers)})[""])
            clipped = np.clip(p, SURE, 1 - SURE)
            found[f"{kind}, {row}"] = {
                "right": round(point_estimate(right), 4),
                "interval": [round(value, 4) for value in bounds],
                "loss": round(
                    float(-np.where(shown > 0, np.log(clipped), np.log(1 - clipped)).mean()), 4
                ),
                "ROC-AUC": round(auc(p, shown), 4),
                "ROC-AUC of instructions": round(auc(p[told > 0], shown[told > 0]), 4),
                "ECE": round(calibration(p, shown), 4),
            }
    counts = {"sentences": len(shown), "shown": int(shown.sum()), "makers": len(set(makers))}
    result = {**counts, "weights": weights, "judges": found}
    write_atomic(OUT, json.dumps(weights) + "\n")
    write_atomic(ON_CLIPS, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def _p(rows: Array, weights: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-(rows @ weights))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, help="of drawn videos")
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--records", type=Path, help="of the clips, as real_clips.py keeps them")
    parser.add_argument("--fit", type=int, nargs=2, default=(0, 16))
    parser.add_argument("--test", type=int, nargs=2, default=(300, 316))
    options = parser.parse_args()
    if options.clips:
        fit_to_clips(options.clips, options.records)
        return
    given, held = (sentences(range(*seeds), options.cache) for seeds in (options.fit, options.test))
    told = held.evidence["told"]
    weights, rows = {}, {}
    for name, (column, weight) in SENTENCE_KINDS.items():
        w = fit(given.evidence[column], given.evidence["told"], given.shown, weight)
        p = 1 / (
            1 + np.exp(-(np.column_stack([held.evidence[column], told, np.ones(len(told))]) @ w))
        )
        weights[name] = [round(float(value), 4) for value in w]
        rows[name] = {
            "ROC-AUC": round(auc(p, held.shown), 4),
            "interval": interval(p, held.shown, held.video),
            "ROC-AUC of instructions": round(auc(p[told > 0], held.shown[told > 0]), 4),
            "ECE": round(calibration(p, held.shown), 4),
        }
    alone = {name: round(auc(held.evidence[name], held.shown), 4) for name in COLUMNS}
    counts = {
        "sentences": len(held.shown),
        "shown": int(held.shown.sum()),
        "fitted to": len(given.shown),
    }
    result = {"fit": options.fit, "test": options.test, **counts, "alone": alone, "judges": rows}
    result["weights"] = {name: weights[name] for name in ("words", "grounding")}
    write_atomic(RESULT, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
