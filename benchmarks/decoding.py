"""What order, rivals, speech, grown spans and calibration gain over the best second, in the
simulated world.

    python benchmarks/decoding.py        # about 3 CPU minutes

Writes benchmarks/results/decoding.json. One small network per seed (D = 64, one layer each) is
trained on narrations and written steps at the times at which they are said. Nothing but the
calibration sees planted truth, that of 100 videos which are neither trained on nor scored. The
settings were chosen in worlds 10 and 11. R@1 in %, over texts that the video shows.
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

from research.simulate import SHORT_WORLD, simulate
from stepline.evaluate.calibration import Logistic, calibration_error, fit_logistic
from stepline.evaluate.crosstask import ordered_rows, step_costs
from stepline.evaluate.ranking import roc_auc
from stepline.evaluate.span_overlaps import grounding_overlaps
from stepline.grounding.said_to_shown import load_prior
from stepline.grounding.speech import narration_labels
from stepline.models.nasva.align import (
    Posterior,
    TextScores,
    posterior,
    posterior_spans,
    score_texts,
)
from stepline.models.nasva.calibration import calibration_features, uncalibrated_probability
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import (
    AlignerLossSettings,
    AlignerNetworkSettings,
    AlignerSettings,
)
from stepline.models.nasva.train import train_aligner
from stepline.models.training.batches import Sample
from stepline.models.training.settings import TrainSettings
from stepline.records import FeatureSequence, Span

RESULT_PATH = Path(__file__).parent / "results" / "decoding.json"
# 500 to train on, 100 to calibrate, 150 scored
WORLD_SETTINGS = SHORT_WORLD.model_copy(update={"videos": 750, "held_out": 1 / 3})
CALIBRATION_VIDEOS = 100
NETWORK_SETTINGS = AlignerNetworkSettings(
    video_width=128,
    text_width=128,
    width=64,
    heads=4,
    encoder_layers=1,
    decoder_layers=1,
    feed_forward=256,
    alignability=True,
)
TRAIN_SETTINGS = TrainSettings(epochs=5, batch=8, learning_rate=1e-3)
IOU_THRESHOLDS = (0.3, 0.5, 0.7)
LONG_VIDEO_ROWS = (1200, 1800, 3600, 14400)

Windows = list[list[list[float]]]  # of each text: its spans, [start, end]


@dataclass(frozen=True)
class Case:
    """K texts of a video: how they fit it, the truth (K, T), each one's windows, P(shown) and when
    it is said."""

    fit: TextScores
    truth: np.ndarray
    windows: Windows
    p: np.ndarray
    prior: np.ndarray | None

    @property
    def is_shown(self) -> np.ndarray:
        """(K,) whether the video shows a text."""
        return self.truth.any(axis=1)

    def turned(self, order: np.ndarray) -> "Case":
        """Return the same with the texts in another order."""
        fit = TextScores(self.fit.scores[order], None, 1.0)
        windows = [self.windows[k] for k in order]
        return Case(fit, self.truth[order], windows, self.p[order], None)


def train(seed: int, samples, folder: Path) -> Aligner:
    """Return a network trained on narrations and on written steps, at the times at which they are
    said."""
    data = []
    for video in samples:
        for style in ("narration", "step"):
            spans = said_spans(video.lines(style))
            features = video.features().values
            labels = narration_labels(spans, len(features), "covering").astype(bool)
            if spans:
                name = f"{video.id} {style}"
                vectors = video.vectors(style)
                data.append(Sample(name, features, vectors, labels, ordered=True))
    loss = AlignerLossSettings(alignability="agreement", alignability_weight=0.1)
    settings = TRAIN_SETTINGS.model_copy(update={"seed": seed})
    return train_aligner(data, folder, model=NETWORK_SETTINGS, loss=loss, settings=settings)


def said_spans(lines) -> list[Span]:
    """Return when each line is said."""
    return [Span(float(start), float(end)) for start, end in lines.times]


def look(
    network: Aligner, video, style: str
) -> tuple[TextScores, np.ndarray, Windows, np.ndarray | None]:
    """Return how a video's texts fit it, the truth, and P(shown | said)."""
    mode = "narration" if style == "narration" else "step"
    features = video.features()
    lines = video.lines(style)
    settings = AlignerSettings(mode=mode)
    fit = score_texts(network, features, video.vectors(style), settings=settings)
    windows = []
    for step, window in zip(lines.step, lines.window, strict=True):
        windows.append(windows_of(video.timeline, step, window, style))
    prior = None
    if style != "recipe":
        length = len(features.values)
        rows = [load_prior().distribution([span], length) for span in said_spans(lines)]
        prior = np.array(rows)
    return fit, video.shown(style), windows, prior


def windows_of(timeline, step: int, window: int, style: str) -> list[list[float]]:
    """Return where a text is shown: a recipe's step in all its windows, another in its own."""
    if style == "recipe":
        numbers = np.flatnonzero(timeline.steps == step)
        return [timeline.windows[number].tolist() for number in numbers]
    if window < 0:
        return []
    return [timeline.windows[window].tolist()]


def cases(network: Aligner, samples, style: str) -> tuple[list[Case], Logistic]:
    """Return the scored videos, P(shown) calibrated on the others."""
    looks = [look(network, video, style) for video in samples if len(video.lines(style))]
    features = []
    labels = []
    for fit, truth, *_ in looks[:CALIBRATION_VIDEOS]:
        features.append(calibration_features(fit))
        labels.append(truth.any(axis=1))
    logistic = fit_logistic(np.concatenate(features), np.concatenate(labels))
    scored = []
    for fit, truth, windows, prior in looks[CALIBRATION_VIDEOS:]:
        p = logistic(calibration_features(fit))
        scored.append(Case(fit, truth, windows, p, prior))
    return scored, logistic


def recall(scored: list[Case], rows: Callable[[Case], np.ndarray]) -> float:
    """Return R@1 in %."""
    hits = []
    for case in scored:
        for k, row in enumerate(rows(case)):
            if case.truth[k].any():
                hits.append(case.truth[k, row])
    return round(100 * float(np.mean(hits)), 2)


def decoded(with_prior: bool = False, **changes) -> Callable[[Case], Posterior]:
    """Return a decoder by what is switched on."""
    values = {"compete": 0.0, "order": "none", "speech": 0.0} | changes
    settings = AlignerSettings(**values)

    def decode(case: Case) -> Posterior:
        prior = case.prior if with_prior else None
        return posterior(case.fit.scores, case.p, settings, prior=prior)

    return decode


def best(decoder: Callable[[Case], Posterior]) -> Callable[[Case], np.ndarray]:
    """Return the best rows by a decoder."""
    return lambda case: decoder(case).best


def argmax(case: Case) -> np.ndarray:
    """Return the paper's best second of each text by itself."""
    return case.fit.scores.argmax(axis=1)


def official(case: Case) -> np.ndarray:
    """Return CrossTask's own decoding: every step shown once, in order."""
    logits = case.fit.scores.T.astype(np.float64) / 0.07
    return ordered_rows(step_costs(logits))


# By kind of text: name -> the best row of each text
DECODERS_OF_STYLES = {
    "step": {
        "best second": argmax,
        "rivals": best(decoded(compete=1.0)),
        "order": best(decoded(order="given")),
        "rivals, order": best(decoded(compete=1.0, order="given")),
        "rivals, speech": best(decoded(with_prior=True, compete=1.0, speech=0.25)),
        "rivals, order, speech": best(
            decoded(with_prior=True, compete=1.0, order="given", speech=0.25)
        ),
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
        "rivals, speech": best(decoded(with_prior=True, compete=1.0, speech=0.25)),
    },
}
# By kind of text: what decodes its spans and P(shown)
WHOLE_DECODERS = {
    "step": decoded(compete=1.0, order="given"),
    "recipe": decoded(compete=1.0),
    "narration": decoded(compete=1.0),
    "crosstask": decoded(compete=1.0, order="given"),
}


def span_scores(
    scored: list[Case], rule: str, decoder: Callable[[Case], Posterior], **changes
) -> list[float]:
    """Return Recall@IoU at the thresholds and mean IoU, in %."""
    settings = AlignerSettings(spans=rule, **changes)
    overlaps = []
    for case in scored:
        spans = posterior_spans(decoder(case).at, 1.0, settings)
        pairs = []
        windows = []
        for span, own_windows in zip(spans, case.windows, strict=True):
            if own_windows:
                pairs.append((span.start, span.end))
                windows.append(own_windows)
        overlaps += grounding_overlaps(pairs, windows).overlaps.tolist()
    overlaps_of_texts = np.array(overlaps)
    values = [np.mean(overlaps_of_texts >= threshold) for threshold in IOU_THRESHOLDS]
    values.append(np.mean(overlaps))
    return [round(100 * float(value), 2) for value in values]


def calibrated(scored: list[Case], decoder: Callable[[Case], Posterior]) -> dict[str, list[float]]:
    """Return [ECE, ROC-AUC] of P(shown) before and after, on videos that no fit has seen."""
    truth = np.concatenate([case.is_shown for case in scored])
    cosines = [np.clip(case.fit.scores.max(axis=1), 0, 1) for case in scored]
    probabilities = {
        "best cosine": np.concatenate(cosines),
        "calibrated": np.concatenate([case.p for case in scored]),
        "calibrated, decoded": np.concatenate([decoder(case).p_shown for case in scored]),
    }
    if all(case.fit.alignable is not None for case in scored):
        heads = [uncalibrated_probability(case.fit) for case in scored]
        probabilities["head"] = np.concatenate(heads)
    figures = {}
    for name, p in probabilities.items():
        error = calibration_error(truth, p)
        area = roc_auc(truth.astype(np.float64), p)
        figures[name] = [round(error, 4), round(area, 4)]
    return figures


def cost(scored: list[Case], decoder: Callable[[Case], object]) -> float:
    """Return the least CPU milliseconds per video of three passes."""
    passes = []
    for _ in range(3):
        start = time.process_time()
        for case in scored:
            decoder(case)
        passes.append(1000 * (time.process_time() - start) / len(scored))
    return round(min(passes), 3)


def one_seed(seed: int) -> dict[str, object]:
    """Train, calibrate and score one world."""
    start = time.process_time()
    samples = simulate(seed, WORLD_SETTINGS).videos
    train_videos = [video for video in samples if video.subset == "train"]
    test_videos = [video for video in samples if video.subset != "train"]
    with tempfile.TemporaryDirectory() as folder:
        network = train(seed, train_videos, Path(folder))
    train_seconds = time.process_time() - start
    scored = {}
    for style in ("step", "recipe", "narration"):
        scored[style], _ = cases(network, test_videos, style)
    # CrossTask's texts are a recipe's steps in their order.
    with_recipe = [video for video in test_videos if len(video.recipe)]
    scored["crosstask"] = []
    for case, video in zip(scored["recipe"], with_recipe[CALIBRATION_VIDEOS:], strict=True):
        scored["crosstask"].append(case.turned(np.argsort(video.recipe.step)))
    return {
        "seed": seed,
        "train_cpu_s": round(train_seconds, 1),
        "R@1": recall_table(scored),
        "spans": {style: span_table(scored, style) for style in ("step", "recipe")},
        "shown": {
            style: calibrated(scored[style], WHOLE_DECODERS[style])
            for style in ("step", "recipe", "narration", "crosstask")
        },
        "cpu_ms_a_video": cost_table(scored["step"]),
    }


def recall_table(scored: dict[str, list[Case]]) -> dict[str, dict[str, float]]:
    """Return the R@1 of every decoder."""
    table: dict[str, dict[str, float]] = {}
    for style, decoders in DECODERS_OF_STYLES.items():
        table[style] = {}
        for name, rows in decoders.items():
            table[style][name] = recall(scored[style], rows)
    return table


def span_table(scored: dict[str, list[Case]], style: str) -> dict[str, list[float]]:
    """Return the overlaps by every rule of spans."""
    own = scored[style]
    whole = WHOLE_DECODERS[style]
    return {
        "start, 8 s (paper)": span_scores(own, "start", decoded()),
        "start, 8 s, decoded": span_scores(own, "start", whole),
        "center, 8 s, decoded": span_scores(own, "center", whole),
        "grown, decoded": span_scores(own, "grown", whole),
        "grown at 0.7 of one row": span_scores(own, "grown", whole, smooth=1, grow=0.7),
    }


def cost_table(scored: list[Case]) -> dict[str, float]:
    """Return the sizes of the videos, and the CPU milliseconds of decoders."""
    sizes = [case.fit.scores.shape for case in scored]
    return {
        "texts": round(float(np.mean([size[0] for size in sizes])), 1),
        "rows": round(float(np.mean([size[1] for size in sizes])), 1),
        "best second": cost(scored, argmax),
        "rivals": cost(scored, decoded(compete=1.0)),
        "rivals, order": cost(scored, decoded(compete=1.0, order="given")),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Return mean, least and most."""
    return {"mean": round(float(np.mean(values)), 4), "least": min(values), "most": max(values)}


def together(seeds: list[dict]) -> dict[str, object]:
    """Return the spread over seeds of every R@1, and of its gain over the best second of the same
    seed."""
    table: dict[str, object] = {}
    for style, decoders in DECODERS_OF_STYLES.items():
        rows = {}
        for name in decoders:
            values = []
            gains = []
            for seed in seeds:
                recalls = seed["R@1"][style]
                values.append(recalls[name])
                gains.append(round(recalls[name] - recalls["best second"], 2))
            rows[name] = {"R@1": spread(values), "gain": spread(gains)}
        table[style] = rows
    return table


def memory(rows: int) -> dict[str, float]:
    """Return by how much this process's memory peaks, MiB, when a video of that many rows is
    aligned, and CPU seconds."""
    import torch

    torch.manual_seed(0)
    # A network of the released size, used once
    network = Aligner(AlignerNetworkSettings(video_width=128, text_width=128)).eval()
    rng = np.random.default_rng(0)
    text = rng.normal(size=(30, 128)).astype(np.float32)
    small = rng.normal(size=(64, 128)).astype(np.float32)
    score_texts(network, FeatureSequence(small, 1.0, "drawn"), text)
    values = rng.normal(size=(rows, 128)).astype(np.float32)
    features = FeatureSequence(values, 1.0, "drawn")
    # The peak counts from here.
    Path("/proc/self/clear_refs").write_text("5")
    resident_before = resident("VmRSS")
    cpu_start = time.process_time()
    score_texts(network, features, text)
    growth = resident("VmHWM") - resident_before
    return {
        "rows": rows,
        "grown_mib": round(growth, 1),
        "cpu_s": round(time.process_time() - cpu_start, 2),
    }


def resident(name: str) -> float:
    """Return one of this process's memory counts, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


def measured_apart(rows: int) -> dict[str, float]:
    """Return `memory` of a fresh process."""
    command = [sys.executable, __file__, "--memory", str(rows)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--memory", type=int, help="Only the memory of one video of that many rows."
    )
    parser.add_argument(
        "--long", action="store_true", help="Only measure long videos, and keep the other results."
    )
    options = parser.parse_args()
    if options.memory:
        print(json.dumps(memory(options.memory)))
        return
    long = [measured_apart(rows) for rows in LONG_VIDEO_ROWS]
    if options.long:
        tree = json.loads(RESULT_PATH.read_text()) | {"long": long}
        RESULT_PATH.write_text(json.dumps(tree, indent=1) + "\n")
        print(json.dumps(long))
        return
    seeds = []
    for seed in options.seeds:
        seeds.append(one_seed(seed))
        print(json.dumps(seeds[-1]), file=sys.stderr, flush=True)
    tree = {
        "together": together(seeds),
        "seeds": seeds,
        "long": long,
        "cpu_s": round(time.process_time(), 1),
    }
    RESULT_PATH.write_text(json.dumps(tree, indent=1) + "\n")
    print(json.dumps(tree["together"], indent=1))


if __name__ == "__main__":
    main()
