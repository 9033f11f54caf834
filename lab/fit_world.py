"""Fits version 2 of the simulated world to WhenAct and to the labels of the shared real clips.

    python lab/fit_world.py          # about 15 CPU s

Writes lab/results/world_fit.json.

From WhenAct (2,105 phrases, when each is said and shown): how long after its words a window begins.
These are the world's narration settings `offset`, `offset_scale`, `offset_freedom` and `anywhere`.
They are fitted by indirect inference. The world is simulated with them. Its sentences are hidden in
passages as long as WhenAct's and cut into clips of 60 s as there. The five quantiles of shown start
- passage start are brought to WhenAct's. `lag_spread` is the square root of the covariance of
two phrases of one source video (cut at 12 s from the middle of the passage).

From the clips (112 labelled steps): the parts of a window before its words begin and after they
end, of the words that overlap it. How many steps are shown again, how many for a moment before
their turn, how many of these are narrated again.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from whenact_data import CLIP, Action, Array, read_actions

from lab.simulate import SHORT_WORLD, SimulationSettings, stream
from lab.simulate.settings import NarrationSettings
from lab.simulate.statistics import OFFSET_PERCENTS

CLIPS_FOLDER = Path(__file__).resolve().parents[1] / ".." / "shared" / "clips"
RESULT_PATH = Path(__file__).resolve().parent / "results" / "world_fit.json"
MAX_DISTANCE = 12.0  # s; a distance beyond counts as this in the covariance, or a few would make it
FITTED_SETTINGS = ("offset", "offset_scale", "offset_freedom", "anywhere")
WORLD_SEED = 7  # of the simulated world that is fitted, which no table uses
# s, what a quantile's difference counts one for: tails are less certain
QUANTILE_WIDTHS = np.array([4.0, 1.0, 0.5, 1.0, 4.0])


def middles_apart(actions: list[Action]) -> Array:
    """Return middle of shown - middle of said of every localised phrase, (N,)."""
    distances = []
    for action in actions:
        if action.shown:
            middle = (action.shown[0] + action.shown[1]) / 2
            distances.append(middle - action.said.center)
    return np.array(distances)


def lag_spread(actions: list[Action]) -> float:
    """Return the standard deviation, between source videos, of the mean distance."""
    apart = np.clip(middles_apart(actions), -MAX_DISTANCE, MAX_DISTANCE)
    apart -= apart.mean()
    names = [action.source for action in actions if action.shown]
    _, source = np.unique(names, return_inverse=True)
    total = np.bincount(source, apart)
    squares = np.bincount(source, apart**2)
    count = np.bincount(source, np.ones(len(apart)))
    # The mean product of two phrases of one video
    products = (total**2 - squares).sum()
    covariance = products / (count * (count - 1)).sum()
    return float(np.sqrt(max(0.0, covariance)))


def starts_apart(actions: list[Action]) -> Array:
    """Return shown start - start of the passage that holds the words, of every localised phrase,
    (N,)."""
    distances = []
    for action in actions:
        if action.shown:
            distances.append(action.shown[0] - action.said.start)
    return np.array(distances)


def simulated_apart(settings: SimulationSettings, passages: Array, videos: int) -> Array:
    """Return `starts_apart` of a simulated world, its sentences hidden in passages and cut into
    clips as WhenAct's."""
    rng = np.random.default_rng(WORLD_SEED)
    distances = []
    for video in stream(WORLD_SEED, settings, count=videos):
        lines = video.narration
        is_shown = lines.shown
        windows = video.timeline.windows[lines.window[is_shown]]
        times = lines.times[is_shown]
        start = times[:, 0]
        length = np.diff(times, axis=1)[:, 0]
        # The words begin anywhere in a passage that is as long as one of WhenAct.
        room = np.maximum(rng.choice(passages, len(start)) - length, 0.0)
        passage_start = start - rng.random(len(start)) * room
        passage_middle = passage_start + (room + length) / 2
        in_same_clip = passage_middle // CLIP == windows.mean(axis=1) // CLIP
        apart = windows[:, 0] - passage_start
        distances.append(apart[in_same_clip])
    return np.concatenate(distances)


def narration_values(x: Array) -> dict[str, float]:
    """Return the narration settings of a point of the search, (4,)."""
    offset, log_scale, log_freedom, logit = x
    values = (offset, np.exp(log_scale), np.exp(log_freedom), 1 / (1 + np.exp(-logit)))
    floats = [float(value) for value in values]
    return dict(zip(FITTED_SETTINGS, floats, strict=True))


def fit_narration(
    target: Array, passages: Array, spread: float, videos: int, steps: int
) -> dict[str, float]:
    """Return the narration settings whose quantiles come nearest to the target's."""
    start = np.array([-1.0, np.log(2.5), np.log(1.2), np.log(0.34 / 0.66)])

    def loss(x: Array) -> float:
        values = narration_values(x)
        values["lag_spread"] = spread
        narration = SHORT_WORLD.narration.model_copy(update=values)
        settings = SHORT_WORLD.model_copy(update={"narration": narration})
        apart = simulated_apart(settings, passages, videos)
        quantiles = np.percentile(apart, OFFSET_PERCENTS)
        differences = (quantiles - target) / QUANTILE_WIDTHS
        return float(np.abs(differences).sum())

    options = {"maxfev": steps, "initial_simplex": _simplex(start)}
    best = minimize(loss, start, method="Nelder-Mead", options=options).x
    return {name: round(value, 2) for name, value in narration_values(best).items()}


def _simplex(start: Array) -> Array:
    steps = np.diag([1.5, 0.4, 0.4, -0.5])
    return np.vstack([start, start + steps])


def clip_figures(labels: Mapping[str, Any]) -> dict[str, float]:
    """Return what the clips' labels say of windows, repetitions and previews."""
    spoken_steps = []
    for clip in labels.values():
        for step in clip["steps"]:
            if step.get("spoken"):
                spoken_steps.append(step)
    shown_steps = [step for step in spoken_steps if step.get("shown")]
    before = []
    after = []
    starts = []
    middles = []
    repeated = []
    previewed = []
    for step in shown_steps:
        words = np.array(step["spoken"], float)
        spans = np.array(step["shown"], float)
        # The main window is the one nearest to the words.
        words_start, words_end = words
        span_starts = spans[:, 0]
        span_ends = spans[:, 1]
        gaps = np.maximum(span_starts - words_end, words_start - span_ends)
        gaps = np.maximum(0.0, gaps)
        main = spans[gaps.argmin()]
        start, end = main
        starts.append(start - words_start)
        middles.append(main.mean() - words.mean())
        previewed.append(bool((span_ends <= start).any()))
        repeated.append(bool((span_starts >= end).any()))
        overlaps_words = min(words_end, end) > max(words_start, start)
        if gaps.min() == 0 and overlaps_words:
            length = end - start
            before.append(max(0.0, words_start - start) / length)
            after.append(max(0.0, end - words_end) / length)
    return {
        "steps": len(spoken_steps),
        "shown": len(shown_steps),
        "told_again": sum("spoken_again" in step for step in spoken_steps),
        "preparation": _rounded_mean(before),
        "result": _rounded_mean(after),
        "repeated": _rounded_mean(repeated),
        "previewed": _rounded_mean(previewed),
        "start_after_words_p50": round(float(np.median(starts)), 2),
        "middle_after_words_p50": round(float(np.median(middles)), 2),
    }


def _rounded_mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 3)


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=int, default=250, help="simulated per trial of the fit")
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--clips", type=Path, default=CLIPS_FOLDER)
    parser.add_argument("--out", type=Path, default=RESULT_PATH)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    shown_actions = [action for action in read_actions() if action.shown]
    target = np.percentile(starts_apart(shown_actions), OFFSET_PERCENTS)
    passages = np.array([action.said.duration for action in shown_actions])
    spread = lag_spread(shown_actions)
    narration = fit_narration(target, passages, spread, options.videos, options.trials)
    # The quantiles before and after the fit
    fitted_narration = NarrationSettings(**narration, lag_spread=spread)
    fitted_world = SHORT_WORLD.model_copy(update={"narration": fitted_narration})
    version_1 = simulated_apart(SHORT_WORLD, passages, options.videos)
    version_2 = simulated_apart(fitted_world, passages, options.videos)
    quantiles = {
        "WhenAct": target,
        "version 1": np.percentile(version_1, OFFSET_PERCENTS),
        "version 2": np.percentile(version_2, OFFSET_PERCENTS),
    }
    rounded = {name: np.round(row, 2).tolist() for name, row in quantiles.items()}
    labels = json.loads((options.clips / "labels.json").read_text(encoding="utf-8"))
    tree = {
        "narration": narration | {"lag_spread": round(spread, 2)},
        "starts apart, quantiles 5 25 50 75 95": rounded,
        "clips": clip_figures(labels),
    }
    text = json.dumps(tree, indent=1)
    options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
