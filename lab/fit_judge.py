"""Fits the judge that ships without a trained detector, and measures it on videos that it was not
fitted to.

    python lab/fit_judge.py --cache DIR --fit 0 16 --test 300 316
    python lab/fit_judge.py --clips CLIPS --records DIR

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
from collections.abc import Sequence
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

from lab.drawn_videos import true_record
from stepline.evaluate.bootstrap import (
    bootstrap_scores,
    group_by_source,
    point_estimate,
    ratio_statistic,
)
from stepline.evaluate.bootstrap import percentile_interval as interval_of
from stepline.files.atomic_files import write_atomic
from stepline.grounding.ground import ground
from stepline.models.wys2.judge import (
    PROBABILITY_MARGIN,
    collect_grounding_evidence,
    make_regression_rows,
    widen_span,
)
from stepline.numeric import fit_logistic_weights, logit
from stepline.pipeline.placing import ground_steps
from stepline.pipeline.request import StepsSettings
from stepline.records import Record, Sentence, Span, Transcript
from stepline.text import embed
from stepline.text.visibility import predict_visibility
from stepline.writing import write_steps

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
JUDGE_SPREAD = 1.0  # standard deviation of the prior of each weight, nats
MAX_JUDGE_CHANGE = 1.0  # of a weight in one step of the fit, nats; it ends in six steps
WEIGHTS_PATH = PROJECT_FOLDER / "stepline" / "models" / "wys2" / "judge.json"
RESULT_PATH = PROJECT_FOLDER / "lab" / "results" / "judge.json"
CLIPS_RESULT_PATH = RESULT_PATH.with_name("judge_on_clips.json")
MIN_SHOWN_SECONDS = 0.5  # of the clip that must show the step
MIN_PROBABILITY = 1e-3  # in a logarithm
MIN_SPOKEN_SHARE = 0.3  # of a sentence in which a labelled step is spoken
RIDGE_WEIGHT = 1e-3  # a few hundred sentences; not tuned
COLUMN_NAMES = ("wording", "picture", "on screen", "told")

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sentences:
    """Evidence (N,) by name and truth (N,) of sentences, and which video each is of."""

    evidence: dict[str, Array]
    is_shown: Array
    video: npt.NDArray[np.int_]


def sentences(seeds: range, cache: Path) -> Sentences:
    """Return the sentences of the drawn videos of some seeds."""
    parts = []
    truths = []
    numbers = []
    for number, seed in enumerate(seeds):
        path, script = rendered(seed, cache)
        record = true_record(script)
        visual = seen(path, [step.text for step in record.reference])
        parts.append(_evidence(record, visual, script.duration))
        truth = labels(record)
        truths.append(truth)
        numbers.append(np.full(len(truth), number))
    evidence = {}
    for name in COLUMN_NAMES:
        evidence[name] = np.concatenate([part[name] for part in parts])
    return Sentences(evidence, np.concatenate(truths), np.concatenate(numbers))


def _evidence(record: Record, visual: Seen, duration: float) -> dict[str, Array]:
    transcript = record.transcript or Transcript()
    steps = write_steps(transcript).steps
    grounding = ground(
        steps,
        duration=duration,
        transcript=transcript,
        features=visual.features,
        step_vectors=embed([step.text for step in steps]),
        activity=visual.activity,
    )
    describes, on_screen = collect_grounding_evidence(
        transcript, grounding.steps, grounding.alignment
    )
    # How a sentence's own clip is more like it than the rest of the video
    vectors = embed([sentence.text for sentence in transcript.sentences])
    cosines = vectors.astype(np.float64) @ visual.features.values.T  # (S, T)
    centred = cosines - cosines.mean(axis=1, keepdims=True)
    scores = centred / cosines.std(axis=1, keepdims=True)
    picture = []
    for sentence, row in zip(transcript.sentences, scores, strict=True):
        clip = visual.features.rows(widen_span(sentence.span))
        score = 0.0
        if clip.stop > clip.start:
            score = row[clip].mean()
        picture.append(score)
    columns = (
        logit(predict_visibility(vectors), PROBABILITY_MARGIN),
        np.array(picture),
        describes * logit(on_screen, PROBABILITY_MARGIN),
        describes,
    )
    return dict(zip(COLUMN_NAMES, columns, strict=True))


def labels(record: Record) -> Array:
    """Return 1.0 for each sentence whose own clip shows what it says."""
    transcript = record.transcript or Transcript()
    is_shown = np.zeros(len(transcript.sentences))
    for step in record.reference:
        for source in step.sources:
            clip = widen_span(transcript.sentences[source].span)
            if any(clip.overlap(span) >= MIN_SHOWN_SECONDS for span in step.spans):
                is_shown[source] = 1.0
    return is_shown


def fit(evidence: Array, describes: Array, is_shown: Array, weight: float | None = None) -> Array:
    """Return weights (3,) of evidence, wording and one. The first is `weight` unless that is
    None."""
    count = len(is_shown)
    columns = np.column_stack([evidence, describes, np.ones(count)])
    is_free = np.array([weight is None, True, True])
    fixed = np.array([weight or 0.0, 0.0, 0.0])

    def loss(w: Array) -> tuple[float, Array]:
        z = columns @ (fixed + np.where(is_free, w, 0.0))
        likelihood_loss = (np.logaddexp(0, z) - is_shown * z).mean()
        penalty = RIDGE_WEIGHT * (w[:2] ** 2 * is_free[:2]).sum()
        residuals = 1 / (1 + np.exp(-z)) - is_shown
        penalty_slope = 2 * RIDGE_WEIGHT * np.append(w[:2], 0)
        slope = columns.T @ residuals / count + penalty_slope
        return float(likelihood_loss + penalty), np.where(is_free, slope, 0.0)

    best = minimize(loss, np.zeros(3), jac=True, method="L-BFGS-B").x
    return np.asarray(fixed + np.where(is_free, best, 0.0))


SENTENCE_KINDS: dict[str, tuple[str, float | None]] = {
    "words": ("wording", 1.0),
    "grounding": ("on screen", None),
    "told and cosine": ("picture", None),
}


@dataclass(frozen=True)
class ClipSentences:
    """What the judges weigh of every sentence of real clips, (N, 3) by judge, its truth (N,), and
    whose clip it is of."""

    rows: dict[str, Array]
    is_shown: Array
    makers: list[str]


def clip_sentences(clips: Path, record_folder: Path) -> ClipSentences:
    """Return the sentences of all clips."""
    truths = json.loads((clips / "labels.json").read_text())
    rows: dict[str, list[Array]] = {"words": [], "grounding": []}
    is_shown: list[float] = []
    makers = []
    for name, record in records(clips, list(truths), record_folder).items():
        transcript = record.transcript or Transcript()
        if not transcript.sentences:
            continue
        duration = record.video.duration or 0.0
        visual = pictures(clips / name, record_folder)
        steps = list(record.steps)
        grounding = ground_steps(steps, duration, transcript, visual, StepsSettings(), written=True)
        describes, on_screen = collect_grounding_evidence(
            transcript, grounding.steps, grounding.alignment
        )
        vectors = embed([sentence.text for sentence in transcript.sentences])
        wording = logit(predict_visibility(vectors), PROBABILITY_MARGIN)
        ones = np.ones(len(describes))
        rows["words"].append(np.column_stack([wording, describes, ones]))
        rows["grounding"].append(make_regression_rows(describes, on_screen))
        for sentence in transcript.sentences:
            is_shown.append(_shown(sentence, truths[name]["steps"]))
        makers += [maker(name)] * len(describes)
    stacked = {judge: np.concatenate(parts) for judge, parts in rows.items()}
    return ClipSentences(stacked, np.array(is_shown), makers)


def _shown(sentence: Sentence, steps: list[dict[str, Any]]) -> float:
    clip = widen_span(sentence.span)
    for step in steps:
        if not step.get("spoken") or not _says(sentence, _span(step["spoken"])):
            continue
        for pair in step.get("shown") or ():
            if clip.overlap(_span(pair)) >= MIN_SHOWN_SECONDS:
                return 1.0
    return 0.0


def _span(pair: list[Any]) -> Span:
    start, end = pair
    return Span(float(start), float(end))


def _says(sentence: Sentence, spoken: Span) -> bool:
    return sentence.span.overlap(spoken) >= MIN_SPOKEN_SHARE * sentence.span.duration


def fit_judge(columns: Array, is_shown: Array, prior: Array) -> Array:
    """Return the most likely weights (3,) under a normal prior around `prior`."""
    return fit_logistic_weights(
        columns,
        is_shown,
        prior_mean=prior,
        prior_precision=np.eye(3) / JUDGE_SPREAD**2,
        max_change=MAX_JUDGE_CHANGE,
    )


def without_own_maker(columns: Array, sentences: ClipSentences, prior: Array) -> Array:
    """Return P(shown), (N,), each maker's by weights fitted to the other makers."""
    makers = np.array(sentences.makers)
    probabilities = np.zeros(len(makers))
    for name in set(sentences.makers):
        test = makers == name
        weights = fit_judge(columns[~test], sentences.is_shown[~test], prior)
        probabilities[test] = _probability(columns[test], weights)
    return probabilities


def clip_figures(p: Array, describes: Array, sentences: ClipSentences) -> dict[str, Any]:
    """Return what P(shown), (N,), is worth on the clips."""
    is_shown = sentences.is_shown
    right = ratio_statistic((p >= 0.5) == (is_shown > 0), np.ones(len(is_shown)))
    draws = bootstrap_scores({"": group_by_source(right, sentences.makers)})
    clipped = np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    losses = -np.where(is_shown > 0, np.log(clipped), np.log(1 - clipped))
    is_instruction = describes > 0
    instruction_auc = auc(p[is_instruction], is_shown[is_instruction])
    return {
        "right": round(point_estimate(right), 4),
        "interval": [round(value, 4) for value in interval_of(draws[""])],
        "loss": round(float(losses.mean()), 4),
        "ROC-AUC": round(auc(p, is_shown), 4),
        "ROC-AUC of instructions": round(instruction_auc, 4),
        "ECE": round(calibration(p, is_shown), 4),
    }


def fit_to_clips(clips: Path, record_folder: Path) -> None:
    """Write the weights that ship and what they are worth on the clips of makers that they were not
    fitted to."""
    drawn = {}
    for judge, values in json.loads(RESULT_PATH.read_text())["weights"].items():
        drawn[judge] = np.array(values)
    sentences = clip_sentences(clips, record_folder)
    is_shown = sentences.is_shown
    figures = {}
    weights = {}
    for judge, columns in sentences.rows.items():
        left_out = without_own_maker(columns, sentences, drawn[judge])
        fitted = fit_judge(columns, is_shown, drawn[judge])
        weights[judge] = [round(float(value), 4) for value in fitted]
        describes = columns[:, 1]
        for row, p in (
            ("drawn", _probability(columns, drawn[judge])),
            ("left out", left_out),
            ("a step rests on it", describes),
        ):
            figures[f"{judge}, {row}"] = clip_figures(p, describes, sentences)
    result = {
        "sentences": len(is_shown),
        "shown": int(is_shown.sum()),
        "makers": len(set(sentences.makers)),
        "weights": weights,
        "judges": figures,
    }
    text = json.dumps(result, indent=1)
    write_atomic(WEIGHTS_PATH, json.dumps(weights) + "\n")
    write_atomic(CLIPS_RESULT_PATH, text + "\n")
    print(text)


def _probability(rows: Array, weights: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-(rows @ weights))))


def drawn_figures(p: Array, test: Sentences) -> dict[str, Any]:
    """Return what P(shown), (N,), is worth on drawn videos."""
    is_instruction = test.evidence["told"] > 0
    instruction_auc = auc(p[is_instruction], test.is_shown[is_instruction])
    return {
        "ROC-AUC": round(auc(p, test.is_shown), 4),
        "interval": interval(p, test.is_shown, test.video),
        "ROC-AUC of instructions": round(instruction_auc, 4),
        "ECE": round(calibration(p, test.is_shown), 4),
    }


def fit_to_drawn(fit_seeds: Sequence[int], test_seeds: Sequence[int], cache: Path) -> None:
    """Write the weights fitted to drawn videos, and what they are worth on others."""
    train = sentences(range(*fit_seeds), cache)
    test = sentences(range(*test_seeds), cache)
    describes = test.evidence["told"]
    ones = np.ones(len(describes))
    weights = {}
    rows = {}
    for name, (column, weight) in SENTENCE_KINDS.items():
        w = fit(train.evidence[column], train.evidence["told"], train.is_shown, weight)
        columns = np.column_stack([test.evidence[column], describes, ones])
        weights[name] = [round(float(value), 4) for value in w]
        rows[name] = drawn_figures(_probability(columns, w), test)
    alone = {}
    for name in COLUMN_NAMES:
        alone[name] = round(auc(test.evidence[name], test.is_shown), 4)
    result = {
        "fit": fit_seeds,
        "test": test_seeds,
        "sentences": len(test.is_shown),
        "shown": int(test.is_shown.sum()),
        "fitted to": len(train.is_shown),
        "alone": alone,
        "judges": rows,
        "weights": {name: weights[name] for name in ("words", "grounding")},
    }
    text = json.dumps(result, indent=1)
    write_atomic(RESULT_PATH, text + "\n")
    print(text)


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
    else:
        fit_to_drawn(options.fit, options.test, options.cache)


if __name__ == "__main__":
    main()
