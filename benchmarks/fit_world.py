"""Fits version 2 of the simulated world to WhenAct and to the labels of the shared real clips.

    python benchmarks/fit_world.py          # about 15 CPU s; writes benchmarks/results/world_fit.json

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from whenact_data import CLIP, Action, Array, read_actions

from research.simulate import SHORT, SimulationSettings, stream
from research.simulate.settings import NarrationSettings
from research.simulate.statistics import QUANTILES

ROOT = Path(__file__).resolve().parents[1]
CLIPS = ROOT / ".." / "shared" / "clips"
OUT = ROOT / "benchmarks" / "results" / "world_fit.json"
FARTHEST = 12.0  # s; a distance beyond counts as this in the covariance, or a few would make it
FITTED = ("offset", "offset_scale", "offset_freedom", "anywhere")
SEED = 7  # of the simulated world that is fitted, which no table uses


def middles_apart(actions: list[Action]) -> Array:
    """Return middle of shown - middle of said of every localised phrase, (N,)."""
    return np.array([(a.shown[0] + a.shown[1]) / 2 - a.said.center for a in actions if a.shown])


def lag_spread(actions: list[Action]) -> float:
    """Return the standard deviation, between source videos, of the mean distance."""
    apart = np.clip(middles_apart(actions), -FARTHEST, FARTHEST)
    apart -= apart.mean()
    source = np.unique([a.source for a in actions if a.shown], return_inverse=True)[1]
    total, squares, count = (
        np.bincount(source, weights) for weights in (apart, apart**2, np.ones(len(apart)))
    )
    covariance = (total**2 - squares).sum() / (count * (count - 1)).sum()
    return float(np.sqrt(max(0.0, covariance)))


def starts_apart(actions: list[Action]) -> Array:
    """Return shown start - start of the passage that holds the words, of every localised phrase,
    (N,)."""
    return np.array([a.shown[0] - a.said.start for a in actions if a.shown])


def simulated_apart(settings: SimulationSettings, passages: Array, videos: int) -> Array:
    """Return `starts_apart` of a simulated world, its sentences hidden in passages and cut into
    clips as WhenAct's."""
    found, rng = [], np.random.default_rng(SEED)
    for video in stream(SEED, settings, count=videos):
        lines = video.narration
        told = lines.shown
        windows = video.timeline.windows[lines.window[told]]
        start, length = lines.times[told, 0], np.diff(lines.times[told], axis=1)[:, 0]
        room = np.maximum(rng.choice(passages, len(start)) - length, 0.0)
        heard = start - rng.random(len(start)) * room
        same = (heard + (room + length) / 2) // CLIP == windows.mean(axis=1) // CLIP
        found.append((windows[:, 0] - heard)[same])
    return np.concatenate(found)


def fit_narration(
    target: Array, passages: Array, spread: float, videos: int, steps: int
) -> dict[str, float]:
    """Return the narration settings whose quantiles come nearest to the target's."""
    start = np.array([-1.0, np.log(2.5), np.log(1.2), np.log(0.34 / 0.66)])

    def narration(x: Array) -> dict[str, float]:
        values = (
            float(x[0]),
            float(np.exp(x[1])),
            float(np.exp(x[2])),
            float(1 / (1 + np.exp(-x[3]))),
        )
        return dict(zip(FITTED, values, strict=True))

    def loss(x: Array) -> float:
        given = SHORT.narration.model_copy(update={**narration(x), "lag_spread": spread})
        apart = simulated_apart(SHORT.model_copy(update={"narration": given}), passages, videos)
        return float(np.abs((np.percentile(apart, QUANTILES) - target) / WIDTHS).sum())

    best = minimize(
        loss,
        start,
        method="Nelder-Mead",
        options={"maxfev": steps, "initial_simplex": _simplex(start)},
    ).x
    return {name: round(value, 2) for name, value in narration(best).items()}


# s, what a quantile's difference counts one for: tails are less sure
WIDTHS = np.array([4.0, 1.0, 0.5, 1.0, 4.0])


def _simplex(start: Array) -> Array:
    return np.vstack([start, start + np.diag([1.5, 0.4, 0.4, -0.5])])


def clip_figures(labels: Mapping[str, Any]) -> dict[str, float]:
    """Return what the clips' labels say of windows, repetitions and previews."""
    steps = [
        step
        for clip in labels.values()
        for step in clip["steps"]
        if step.get("spoken") and step.get("shown")
    ]
    before, after, starts, middles, repeated, previewed = [], [], [], [], [], []
    for step in steps:
        said, spans = np.array(step["spoken"], float), np.array(step["shown"], float)
        gaps = np.maximum(0.0, np.maximum(spans[:, 0] - said[1], said[0] - spans[:, 1]))
        start, end = main = spans[gaps.argmin()]
        starts.append(start - said[0])
        middles.append(main.mean() - said.mean())
        previewed.append(bool((spans[:, 1] <= start).any()))
        repeated.append(bool((spans[:, 0] >= end).any()))
        if gaps.min() == 0 and min(said[1], end) > max(said[0], start):
            before.append(max(0.0, said[0] - start) / (end - start))
            after.append(max(0.0, end - said[1]) / (end - start))
    told = [step for clip in labels.values() for step in clip["steps"] if step.get("spoken")]
    return {
        "steps": len(told),
        "shown": len(steps),
        "told_again": sum("spoken_again" in step for step in told),
        "preparation": round(float(np.mean(before)), 3),
        "result": round(float(np.mean(after)), 3),
        "repeated": round(float(np.mean(repeated)), 3),
        "previewed": round(float(np.mean(previewed)), 3),
        "start_after_words_p50": round(float(np.median(starts)), 2),
        "middle_after_words_p50": round(float(np.median(middles)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=int, default=250, help="simulated a trial of the fit")
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--clips", type=Path, default=CLIPS)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    actions = read_actions()
    shown = [action for action in actions if action.shown]
    target = np.percentile(starts_apart(shown), QUANTILES)
    passages, spread = np.array([action.said.duration for action in shown]), lag_spread(shown)
    narration = fit_narration(target, passages, spread, args.videos, args.trials)
    fitted = SHORT.model_copy(
        update={"narration": NarrationSettings(**narration, lag_spread=spread)}
    )
    quantiles = {
        "WhenAct": target,
        "version 1": np.percentile(simulated_apart(SHORT, passages, args.videos), QUANTILES),
        "version 2": np.percentile(simulated_apart(fitted, passages, args.videos), QUANTILES),
    }
    tree = {
        "narration": narration | {"lag_spread": round(spread, 2)},
        "starts apart, quantiles 5 25 50 75 95": {
            name: np.round(row, 2).tolist() for name, row in quantiles.items()
        },
        "clips": clip_figures(json.loads((args.clips / "labels.json").read_text(encoding="utf-8"))),
    }
    args.out.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(tree, indent=1))


if __name__ == "__main__":
    main()
