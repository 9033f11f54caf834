"""How far what is shown is from what is said: cooking narration (YouCook2) and vlogs (WhenAct).

    python benchmarks/lag_of_narration.py NARRATION.json.gz

NARRATION: narrations of YouCook2 videos, with the videos' own steps and spans, and people's mark on
the sentences that describe a step. A telling is a step with P(said) of at least .5 by the line
model, and its most probable sentence, where people marked that one. The family of
`said_to_shown.py` is fitted to each source and to both, and tested on dishes (YouCook2) and source
videos (WhenAct) left out:

    log-likelihood  mean over a picture's seconds of log P(second), P normalised over the video
    R@1             the likeliest second lies in the span
    "cut"           YouCook2 in pieces of 60 s, as WhenAct's clips are

"product" is all steps and all sentences, weighed by the line model, as a user's lines are grounded
without pictures. Gains are over the curve fitted to WhenAct, which the package has, in the product
with the usual lag. Intervals: 95 % bootstrap over videos.
"""

import argparse
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from lag_curves import (
    COOKING_CUT_NAME,
    COOKING_NAME,
    CURVE_SOURCES,
    MIN_PROBABILITY,
    VLOGS_NAME,
    Curves,
    FoldCurves,
    Sources,
    Tellings,
    fit,
    fit_without_folds,
    left_out,
    log_likelihood,
    log_mass,
    targets_of,
)
from scipy.stats import norm
from tellings import (
    Array,
    Narration,
    cut_into_clips,
    read_narrations,
    uniform_within,
    whenact_tellings,
)

from stepline.evaluate.bootstrap import (
    Integers,
    Ratio,
    draw_videos,
    interval,
    point_estimate,
    resample,
)
from stepline.grounding.fusion import SpeechPrior, fuse, occupancy
from stepline.grounding.ground import line_seconds
from stepline.grounding.inputs import GroundingInputs
from stepline.grounding.said_to_shown import ShownPrior
from stepline.grounding.settings import GroundSettings
from stepline.records import Span, Step

RESULT_PATH = Path(__file__).resolve().parent / "results/lag_of_narration.json"
GRID_LAGS = np.arange(-6.0, 12.25, 0.5)  # seconds by which pictures follow the words
MIN_TELLINGS = 3  # of a video, for a lag of its own
USUAL_LAGS = np.arange(-4.0, 10.1, 0.25)
LAG_SPREADS = np.arange(0.25, 8.1, 0.25)
INTERVAL_PERCENTS = (2.5, 97.5)
QUANTILE_PERCENTS = (10, 25, 50, 75, 90)
ROUND_DIGITS = 4
DRAW_COUNT = 1000
LIKELIHOOD_NAME = "log-likelihood"
HIT_RATE_NAME = "R@1"

Figure: TypeAlias = list[float]  # mean, low, high
Values: TypeAlias = dict[str, dict[str, Array]]  # by row and metric, of each telling
Table: TypeAlias = dict[str, dict[str, Figure]]
Narrations: TypeAlias = Sequence[Narration]
Names: TypeAlias = Sequence[str]
Tables: TypeAlias = dict[str, Table]
Json: TypeAlias = dict[str, Any]


def is_within(seconds: Iterable[float], pictures: Iterable[Span]) -> Array:
    """Return (N,): 1 where a second is in its span, else 0."""
    hits = []
    for second, picture in zip(seconds, pictures, strict=True):
        is_hit = picture.start <= second <= picture.end
        hits.append(float(is_hit))
    return np.array(hits)


def best_second(row: Array) -> float:
    """Return the second at which a step is most likely shown, as benchmarks/whenact.py answers."""
    everything = [slice(0, len(row))]
    typical = GroundSettings().typical
    being_shown = occupancy(row[None], everything, typical)
    best = int(being_shown[0].argmax())
    return best + 0.5


def test_curves(tellings: Tellings, curves: Curves) -> Table:
    """Return the figures of each curve on a source, each telling by the curve that left it out."""
    targets = targets_of(tellings)
    pictures = [telling.picture for telling in tellings]
    uniform = []
    for telling in tellings:
        seconds = telling.seconds
        row = np.full(seconds, 1 / seconds)
        uniform.append(row)
    values: Values = {}
    values["uniform"] = {LIKELIHOOD_NAME: log_likelihood(uniform, targets)}
    for name, of_folds in curves.items():
        rows = left_out(of_folds, tellings)
        best = [best_second(row) for row in rows]
        values[name] = {
            LIKELIHOOD_NAME: log_likelihood(rows, targets),
            HIT_RATE_NAME: is_within(best, pictures),
        }
    videos = [telling.video for telling in tellings]
    return with_intervals(values, videos, VLOGS_NAME)


def test_in_product(narrations: Narrations, curves: Curves) -> Table:
    """Return the figures of each curve with each of two lags on all steps of all videos."""
    videos: list[str] = []
    for narration in narrations:
        videos += [narration.name] * len(narration.pictures)
    usual = GroundSettings().lag_usual
    values: Values = {}
    for name, of_folds in curves.items():
        for lag in (usual, 0.0):
            likelihoods = []
            hits = []
            for narration in narrations:
                curve = of_folds[narration.fold]
                prior = line_prior(narration, curve, lag)
                targets = []
                for picture in narration.pictures:
                    targets.append(uniform_within(picture, narration.seconds))
                likelihoods.append(log_likelihood(prior, targets))
                seconds = grounded_seconds(narration, prior)
                hits.append(is_within(seconds, narration.pictures))
            values[product_row(name, lag)] = {
                LIKELIHOOD_NAME: np.concatenate(likelihoods),
                HIT_RATE_NAME: np.concatenate(hits),
            }
    return with_intervals(values, videos, product_row(VLOGS_NAME, usual))


def product_row(curve: str, lag: float) -> str:
    """Return what a row of the product's table is called."""
    return f"{curve}, lag {lag:g} s"


def line_prior(narration: Narration, curve: ShownPrior, lag: float) -> Array:
    """Return P(shown at t | what is said) of each step, (K, T), as `ShownPrior.distribution` does of
    weighted passages."""
    rows = []
    seconds = narration.seconds
    for sentence in narration.sentences:
        row = curve.distribution([sentence], seconds, lag=lag)
        rows.append(row)
    places = narration.places
    unsaid = 1 - places.sum(axis=1, keepdims=True)
    told_prior = places @ np.array(rows)
    return np.asarray(told_prior + unsaid / seconds)


def grounded_seconds(narration: Narration, prior: Array) -> Array:
    """Return the second at which each step is most likely shown, (K,), while steps compete."""
    count = len(prior)
    steps = [Step(id="0", text="line")] * count
    inputs = GroundingInputs(steps, narration.seconds)
    settings = GroundSettings(typical=line_seconds(inputs))
    rates = np.full(count, settings.shown_rate)
    is_said = np.ones(count, dtype=np.bool_)
    no_likeness = np.zeros(prior.shape)
    speech = SpeechPrior(prior, rates, is_said)
    posterior = fuse(speech, no_likeness, 0.0, settings)
    return np.asarray(posterior.best + 0.5)


def with_intervals(values: Values, videos: Names, baseline: str) -> Table:
    """Return the mean of each figure, and of its difference from that of the baseline."""
    table: Table = {}
    for name, row in values.items():
        figures: dict[str, Figure] = {}
        for metric, numbers in row.items():
            figures[metric] = mean_by_video(numbers, videos)
            if metric in values[baseline] and name != baseline:
                gain = numbers - values[baseline][metric]
                figures[f"{metric}, gained"] = mean_by_video(gain, videos)
        table[name] = figures
    return table


def video_numbers(videos: Names) -> Integers:
    """Return the number of each item's video, (N,)."""
    _, numbers = np.unique(videos, return_inverse=True)
    return numbers


def mean_by_video(values: Array, videos: Names) -> Figure:
    """Return the mean of values (N,) with its interval."""
    video = video_numbers(videos)
    sums = np.bincount(video, weights=values)
    counts = np.bincount(video)
    mean = Ratio(sums, counts.astype(float))
    draws = resample({"mean": mean})
    low, high = interval(draws["mean"])
    figure = (point_estimate(mean), low, high)
    return np.round(figure, ROUND_DIGITS).tolist()


def describe(tellings: Tellings) -> Json:
    """Return how many are said ahead of the picture, on the spot and after it, and how far."""
    videos = [telling.video for telling in tellings]
    offsets = np.array([telling.offset for telling in tellings])
    is_ahead = (offsets > 0).astype(float)
    is_after = (offsets < 0).astype(float)
    starts = []
    middles = []
    lengths = []
    for telling in tellings:
        speech = telling.speech
        picture = telling.picture
        starts.append(picture.start - speech.start)
        middles.append(picture.center - speech.center)
        lengths.append(picture.duration)
    return {
        "tellings": len(tellings),
        "videos": len(set(videos)),
        "told ahead": mean_by_video(is_ahead, videos),
        "on the spot": mean_by_video(1 - is_ahead - is_after, videos),
        "told after": mean_by_video(is_after, videos),
        "start to start, s": quantiles(starts),
        "middle to middle, s": quantiles(middles),
        "shown for, s": quantiles(lengths),
    }


def quantiles(values: Iterable[float]) -> list[float]:
    """Return the values below which 10, 25, 50, 75 and 90 % lie."""
    levels = np.percentile(list(values), QUANTILE_PERCENTS)
    return levels.round(2).tolist()


def lags(tellings: Tellings, curves: FoldCurves) -> Json:
    """Return the lags of the videos by two likelihoods of a span: of all its seconds, and of one
    second somewhere in it."""
    targets = targets_of(tellings)
    names = [telling.video for telling in tellings]
    video = video_numbers(names)
    is_enough = np.bincount(video) >= MIN_TELLINGS
    of_seconds = []
    of_moments = []
    for lag in GRID_LAGS.tolist():
        rows = left_out(curves, tellings, lag)
        likelihoods = log_likelihood(rows, targets)
        masses = log_mass(rows, targets)
        by_video = np.bincount(video, weights=likelihoods)
        of_seconds.append(by_video)
        by_video = np.bincount(video, weights=masses)
        of_moments.append(by_video)
    by_seconds = np.array(of_seconds).T  # (V, L)
    by_moments = np.array(of_moments).T
    return {
        "of all seconds": lag_figures(by_seconds[is_enough]),
        "of a moment": lag_figures(by_moments[is_enough]),
    }


def lag_figures(likelihood: Array) -> Json:
    """Return the usual lag and how it varies from video to video. likelihood: (V, L) log-likelihood
    of each video under each lag.

    Usual lag and spread are the mean and the deviation of the normal that each video draws its
    lag from. They have the greatest marginal likelihood.
    """
    best = GRID_LAGS[likelihood.argmax(axis=1)]
    heights = likelihood.max(axis=1, keepdims=True)
    probabilities = np.exp(likelihood - heights)  # (V, L)
    # the likelihood of each usual lag and spread
    marginals = []
    pairs = []
    usual_lags = USUAL_LAGS.tolist()
    spreads = LAG_SPREADS.tolist()
    for pair in itertools.product(usual_lags, spreads):
        weights = norm.pdf(GRID_LAGS, *pair)
        marginal = probabilities @ (weights / weights.sum())
        marginals.append(np.log(marginal + MIN_PROBABILITY))
        pairs.append(pair)
    by_video = np.array(marginals).T  # (V, pairs)
    total = by_video.sum(axis=0)
    usual, spread = pairs[total.argmax()]
    rng = np.random.default_rng(0)
    draws = draw_videos(len(best), DRAW_COUNT, rng)
    drawn_totals = draws @ by_video
    drawn_best = drawn_totals.argmax(axis=1)
    drawn = np.array(pairs)[drawn_best]  # (draws, 2)
    medians = []
    for counts in draws.astype(int):
        again = np.repeat(best, counts)
        medians.append(np.median(again))
    return {
        "videos": len(best),
        "likeliest of each video, s": quantiles(best),
        "median, s": lag_interval(np.median(best), np.array(medians)),
        "usual, s": lag_interval(usual, drawn[:, 0]),
        "spread, s": lag_interval(spread, drawn[:, 1]),
    }


def lag_interval(value: float, draws: Array) -> Figure:
    """Return a figure in seconds with its interval."""
    ends = np.percentile(draws, INTERVAL_PERCENTS).round(2)
    return [float(value), *ends.tolist()]


def markdown(tests: Tables) -> str:
    """Return the tables of docs/results/grounding.md."""
    lines = []
    for source, rows in tests.items():
        lines.append(f"| {source} | {LIKELIHOOD_NAME} | gained | {HIT_RATE_NAME} | gained |")
        lines.append("|---|---|---|---|---|")
        for name, row in rows.items():
            cells = [name]
            for metric in (LIKELIHOOD_NAME, HIT_RATE_NAME):
                for column in (metric, f"{metric}, gained"):
                    cell = with_brackets(row.get(column))
                    cells.append(cell)
            line = " | ".join(cells)
            lines.append(f"| {line} |")
        lines.append("")
    return "\n".join(lines)


def with_brackets(figure: Figure | None) -> str:
    """Return a figure and its interval as text."""
    if figure is None:
        return "–"
    value, low, high = figure
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Fit, test, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("narration", type=Path)
    options = parser.parse_args()
    narrations = read_narrations(options.narration)
    cooking = []
    by_cosine = []
    for narration in narrations:
        cooking += narration.by_line_model()
        by_cosine += narration.by_cosine()
    vlogs = whenact_tellings()
    sources: Sources = {
        VLOGS_NAME: vlogs,
        COOKING_NAME: cooking,
        COOKING_CUT_NAME: cut_into_clips(cooking),
    }
    # tests without the fold that is tested, and curves of all tellings
    curves = fit_without_folds(sources)
    tests: Tables = {}
    described = {}
    for name, tellings in sources.items():
        tests[name] = test_curves(tellings, curves)
        described[name] = describe(tellings)
    tests["YouCook2, product"] = test_in_product(narrations, curves)
    described["YouCook2, matched by cosine"] = describe(by_cosine)
    fitted = {}
    for name, weights in CURVE_SOURCES.items():
        fitted[name] = asdict(fit(sources, weights))
    by_vlogs = curves[VLOGS_NAME]
    by_cooking = curves[COOKING_NAME]
    # the lag of each video
    lags_of_videos = {
        VLOGS_NAME: lags(vlogs, by_vlogs),
        COOKING_NAME: lags(cooking, by_cooking),
        "YouCook2, by WhenAct's curve": lags(cooking, by_vlogs),
        "YouCook2, matched by cosine": lags(by_cosine, by_cooking),
    }
    result: Json = {}
    result["tellings"] = described
    result["lags"] = lags_of_videos
    result["curves"] = fitted
    result["tests"] = tests
    text = json.dumps(result, indent=1) + "\n"
    RESULT_PATH.write_text(text, encoding="utf-8")
    print(markdown(tests))


if __name__ == "__main__":
    main()
