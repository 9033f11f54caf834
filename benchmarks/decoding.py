"""What order, rivals, speech, grown spans and calibration gain over the best second, in the
simulated world.

    python benchmarks/decoding.py                    # writes benchmarks/results/decoding.json, about 3 CPU minutes

One small network a seed (D = 64, one layer each) is trained on narrations and written steps at the
times at which they are said. Nothing but the calibration sees planted truth, that of 100 videos
which are neither trained on nor scored. The settings were chosen in worlds 10 and 11. R@1 in %,
over texts that the video shows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from research.simulate import SHORT, simulate
from stepline.evaluate.calibration import Logistic, calibration_error, fit_logistic
from stepline.evaluate.crosstask import ordered_rows, step_costs
from stepline.evaluate.ranking import roc_auc
from stepline.evaluate.span_overlaps import grounding_overlaps
from stepline.grounding.said_to_shown import load_prior
from stepline.grounding.speech import narration_labels
from stepline.nasva.align import Posterior, TextScores, posterior, posterior_spans, score_texts
from stepline.nasva.calibration import calibration_features, uncalibrated_probability
from stepline.nasva.model import Aligner
from stepline.nasva.settings import AlignerLossSettings, AlignerNetworkSettings, AlignerSettings
from stepline.nasva.train import train_aligner
from stepline.records import FeatureSequence, Span
from stepline.training.batches import Sample
from stepline.training.settings import TrainSettings

RESULTS = Path(__file__).parent / "results" / "decoding.json"
# 500 to train on, 100 to calibrate, 150 scored
WORLD = SHORT.model_copy(update={"videos": 750, "held_out": 1 / 3})
FITTED = 100
SMALL = AlignerNetworkSettings(
    video_width=128,
    text_width=128,
    width=64,
    heads=4,
    encoder_layers=1,
    decoder_layers=1,
    feed_forward=256,
    alignability=True,
)
LEARNING = TrainSettings(epochs=5, batch=8, learning_rate=1e-3)
THRESHOLDS = (0.3, 0.5, 0.7)
LONG = (1200, 1800, 3600, 14400)  # rows


@dataclass(frozen=True)
class Case:
    """K texts of a video: how they fit it, the truth (K, T), each one's windows, P(shown) and when
    it is said."""

    fit: TextScores
    shown: np.ndarray
    windows: list[list[list[float]]]
    p: np.ndarray
    prior: np.ndarray | None

    def turned(self, order: np.ndarray) -> "Case":
        """Return the same with the texts in another order."""
        fit = TextScores(self.fit.scores[order], None, 1.0)
        return Case(fit, self.shown[order], [self.windows[k] for k in order], self.p[order], None)


def train(seed: int, samples, folder: Path) -> Aligner:
    """Return a network trained on narrations and on written steps, at the times at which they are
    said."""
    data = []
    for one in samples:
        for style in ("narration", "step"):
            said = [Span(float(start), float(end)) for start, end in one.lines(style).times]
            features = one.features().values
            labels = narration_labels(said, len(features), "covering").astype(bool)
            if said:
                data.append(
                    Sample(f"{one.id} {style}", features, one.vectors(style), labels, ordered=True)
                )
    loss = AlignerLossSettings(alignability="agreement", alignability_weight=0.1)
    return train_aligner(
        data, folder, model=SMALL, loss=loss, settings=LEARNING.model_copy(update={"seed": seed})
    )


def look(
    network: Aligner, one, style: str
) -> tuple[TextScores, np.ndarray, list[list[list[float]]], np.ndarray | None]:
    """Return how a video's texts fit it, the truth, and P(shown | said)."""
    settings = AlignerSettings(mode="narration" if style == "narration" else "step")
    features, lines = one.features(), one.lines(style)
    fit = score_texts(network, features, one.vectors(style), settings=settings)
    windows = one.timeline.windows
    own = [
        [windows[w].tolist() for w in np.flatnonzero(one.timeline.steps == step)]
        if style == "recipe"
        else [windows[window].tolist()]
        if window >= 0
        else []
        for step, window in zip(lines.step, lines.window, strict=True)
    ]
    prior = None
    if style != "recipe":
        length = len(features.values)
        said = [Span(float(start), float(end)) for start, end in lines.times]
        prior = np.array([load_prior().distribution([span], length) for span in said])
    return fit, one.shown(style), own, prior


def cases(network: Aligner, samples, style: str) -> tuple[list[Case], Logistic]:
    """Return the scored videos, P(shown) calibrated on the others."""
    looks = [look(network, one, style) for one in samples if len(one.lines(style))]
    fitted, scored = looks[:FITTED], looks[FITTED:]
    rows = np.concatenate([calibration_features(fit) for fit, *_ in fitted])
    logistic = fit_logistic(rows, np.concatenate([shown.any(axis=1) for _, shown, *_ in fitted]))
    return [
        Case(fit, shown, own, logistic(calibration_features(fit)), prior)
        for fit, shown, own, prior in scored
    ], logistic


def recall(found: list[Case], rows: Callable[[Case], np.ndarray]) -> float:
    """Return R@1 in %."""
    hits = [
        one.shown[k, row] for one in found for k, row in enumerate(rows(one)) if one.shown[k].any()
    ]
    return round(100 * float(np.mean(hits)), 2)


def decoded(prior: bool = False, **changes) -> Callable[[Case], Posterior]:
    """Return a decoder by what is switched on."""
    settings = AlignerSettings(**({"compete": 0.0, "order": "none", "speech": 0.0} | changes))
    return lambda one: posterior(
        one.fit.scores, one.p, settings, prior=one.prior if prior else None
    )


def best(decoder: Callable[[Case], Posterior]) -> Callable[[Case], np.ndarray]:
    """Return the best rows by a decoder."""
    return lambda one: decoder(one).best


def argmax(one: Case) -> np.ndarray:
    """Return the paper's best second of each text by itself."""
    return one.fit.scores.argmax(axis=1)


def official(one: Case) -> np.ndarray:
    """Return CrossTask's own decoding: every step shown once, in order."""
    return ordered_rows(step_costs(one.fit.scores.T.astype(np.float64) / 0.07))


DECODERS = {
    "step": {
        "best second": argmax,
        "rivals": best(decoded(compete=1.0)),
        "order": best(decoded(order="given")),
        "rivals, order": best(decoded(compete=1.0, order="given")),
        "rivals, speech": best(decoded(prior=True, compete=1.0, speech=0.25)),
        "rivals, order, speech": best(decoded(prior=True, compete=1.0, order="given", speech=0.25)),
    },
    "recipe": {
        "best second": argmax,
        "rivals": best(decoded(compete=1.0)),
        "rivals, order as if given": best(decoded(compete=1.0, order="given")),
    },
    "crosstask": {
        "best second": argmax,
        "CrossTask's own": official,
        "rivals": best(decoded(compete=1.0)),
        "order": best(decoded(order="given")),
        "rivals, order": best(decoded(compete=1.0, order="given")),
        "rivals, order at 3 nats": best(decoded(compete=1.0, order="given", order_cost=3.0)),
    },
    "narration": {
        "best second": argmax,
        "rivals": best(decoded(compete=1.0)),
        "rivals, speech": best(decoded(prior=True, compete=1.0, speech=0.25)),
    },
}


def span_scores(
    found: list[Case], rule: str, decoder: Callable[[Case], Posterior], **changes
) -> list[float]:
    """Return Recall@IoU at the thresholds and mean IoU, in %."""
    settings = AlignerSettings(spans=rule, **changes)
    overlaps = []
    for one in found:
        made = posterior_spans(decoder(one).at, 1.0, settings)
        shown = [k for k, own in enumerate(one.windows) if own]
        pairs = [(made[k].start, made[k].end) for k in shown]
        overlaps += grounding_overlaps(pairs, [one.windows[k] for k in shown]).overlaps.tolist()
    values = [np.mean(np.array(overlaps) >= threshold) for threshold in THRESHOLDS] + [
        np.mean(overlaps)
    ]
    return [round(100 * float(value), 2) for value in values]


def calibrated(found: list[Case], decoder: Callable[[Case], Posterior]) -> dict[str, list[float]]:
    """Return [ECE, ROC-AUC] of P(shown) before and after, on videos that no fit has seen."""
    truth = np.concatenate([one.shown.any(axis=1) for one in found])
    stated = {
        "best cosine": np.concatenate([np.clip(one.fit.scores.max(axis=1), 0, 1) for one in found]),
        "calibrated": np.concatenate([one.p for one in found]),
        "calibrated, decoded": np.concatenate([decoder(one).shown for one in found]),
    }
    if all(one.fit.alignable is not None for one in found):
        stated["head"] = np.concatenate([uncalibrated_probability(one.fit) for one in found])
    return {
        name: [
            round(calibration_error(truth, p), 4),
            round(roc_auc(truth.astype(np.float64), p), 4),
        ]
        for name, p in stated.items()
    }


def cost(found: list[Case], decoder: Callable[[Case], object]) -> float:
    """Return the least CPU milliseconds a video of three passes."""
    passes = []
    for _ in range(3):
        began = time.process_time()
        for one in found:
            decoder(one)
        passes.append(1000 * (time.process_time() - began) / len(found))
    return round(min(passes), 3)


def one_seed(seed: int) -> dict[str, object]:
    """Train, calibrate and score one world."""
    began = time.process_time()
    samples = simulate(seed, WORLD).videos
    held = [one for one in samples if one.subset != "train"]
    with tempfile.TemporaryDirectory() as folder:
        network = train(seed, [one for one in samples if one.subset == "train"], Path(folder))
    trained = time.process_time() - began
    made = {style: cases(network, held, style)[0] for style in ("step", "recipe", "narration")}
    scored = [one for one in held if len(one.recipe)][FITTED:]
    in_order = [
        one.turned(np.argsort(each.recipe.step))
        for one, each in zip(made["recipe"], scored, strict=True)
    ]
    found = {**made, "crosstask": in_order}
    whole = {
        "step": decoded(compete=1.0, order="given"),
        "recipe": decoded(compete=1.0),
        "crosstask": decoded(compete=1.0, order="given"),
        "narration": decoded(compete=1.0),
    }
    sizes = [one.fit.scores.shape for one in made["step"]]
    return {
        "seed": seed,
        "train_cpu_s": round(trained, 1),
        "R@1": {
            name: {what: recall(found[name], rows) for what, rows in rows_by.items()}
            for name, rows_by in DECODERS.items()
        },
        "spans": {
            name: {
                "start, 8 s (paper)": span_scores(found[name], "start", decoded()),
                "start, 8 s, decoded": span_scores(found[name], "start", whole[name]),
                "center, 8 s, decoded": span_scores(found[name], "center", whole[name]),
                "grown, decoded": span_scores(found[name], "grown", whole[name]),
                "grown at 0.7 of one row": span_scores(
                    found[name], "grown", whole[name], smooth=1, grow=0.7
                ),
            }
            for name in ("step", "recipe")
        },
        "shown": {
            name: calibrated(found[name], whole[name])
            for name in ("step", "recipe", "narration", "crosstask")
        },
        "cpu_ms_a_video": {
            "texts": round(float(np.mean([size[0] for size in sizes])), 1),
            "rows": round(float(np.mean([size[1] for size in sizes])), 1),
            "best second": cost(made["step"], argmax),
            "rivals": cost(made["step"], decoded(compete=1.0)),
            "rivals, order": cost(made["step"], decoded(compete=1.0, order="given")),
        },
    }


def spread(values: list[float]) -> dict[str, float]:
    """Return mean, least and most."""
    return {"mean": round(float(np.mean(values)), 4), "least": min(values), "most": max(values)}


def together(seeds: list[dict]) -> dict[str, object]:
    """Return the spread over seeds of every R@1, and of its gain over the best second of the same
    seed."""
    out: dict[str, object] = {}
    for name, decoders in DECODERS.items():
        values = {what: [seed["R@1"][name][what] for seed in seeds] for what in decoders}
        plain = values["best second"]
        gains = {
            what: [round(a - b, 2) for a, b in zip(row, plain, strict=True)]
            for what, row in values.items()
        }
        out[name] = {
            what: {"R@1": spread(values[what]), "gain": spread(gains[what])} for what in decoders
        }
    return out


def memory(rows: int) -> dict[str, float]:
    """Return by how much this process's memory peaks, MiB, when a video of that many rows is
    aligned, and CPU seconds."""
    import torch

    torch.manual_seed(0)
    # of the released size
    network = Aligner(AlignerNetworkSettings(video_width=128, text_width=128)).eval()
    chance = np.random.default_rng(0)
    text = chance.normal(size=(30, 128)).astype(np.float32)
    score_texts(
        network,
        FeatureSequence(chance.normal(size=(64, 128)).astype(np.float32), 1.0, "drawn"),
        text,
    )
    features = FeatureSequence(chance.normal(size=(rows, 128)).astype(np.float32), 1.0, "drawn")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, began = resident("VmRSS"), time.process_time()
    score_texts(network, features, text)
    grown = resident("VmHWM") - before
    return {
        "rows": rows,
        "grown_mib": round(grown, 1),
        "cpu_s": round(time.process_time() - began, 2),
    }


def resident(name: str) -> float:
    """Return one of this process's memory counts, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def measured_apart(rows: int) -> dict[str, float]:
    """Return `memory` of a fresh process."""
    made = subprocess.run(
        [sys.executable, __file__, "--memory", str(rows)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(made.stdout)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--memory", type=int, help="Only the memory of one video of so many rows.")
    parser.add_argument(
        "--long", action="store_true", help="Only measure long videos, and keep the other results."
    )
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps(memory(arguments.memory)))
        return
    long = [measured_apart(rows) for rows in LONG]
    if arguments.long:
        RESULTS.write_text(
            json.dumps(json.loads(RESULTS.read_text()) | {"long": long}, indent=1) + "\n"
        )
        print(json.dumps(long))
        return
    seeds = []
    for seed in arguments.seeds:
        seeds.append(one_seed(seed))
        print(json.dumps(seeds[-1]), file=sys.stderr, flush=True)
    tree = {
        "together": together(seeds),
        "seeds": seeds,
        "long": long,
        "cpu_s": round(time.process_time(), 1),
    }
    RESULTS.write_text(json.dumps(tree, indent=1) + "\n")
    print(json.dumps(tree["together"], indent=1))


if __name__ == "__main__":
    main()
