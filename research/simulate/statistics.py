"""What a simulation is like, in the numbers that real data and the papers are known by (docs/world.md)."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np

from research.simulate.scene import STYLES, Style, Times
from research.simulate.video import Sample

CLIP = 60.0  # s, of WhenAct's clips: order is compared within one
QUANTILES = (5, 25, 50, 75, 95)

Values = Iterable[float]


def statistics(samples: Iterable[Sample]) -> dict[str, float]:
    """Return every statistic by name; seconds, shares and counts a video. NaN where nothing was counted."""
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    for sample in samples:
        for name, measure in MEASURES.items():
            found[name].extend(measure(sample))
    return {name: _mean(values) for name, values in found.items()} | _offset_quantiles(found["offset"])


def zero_shot(samples: Iterable[Sample], backbone: str | None = None) -> dict[str, float]:
    """Return R@1 of each style by plain cosine, and of chance: the best second lies in the text's window."""
    hits: dict[str, list[float]] = {name: [] for name in (*STYLES, "chance")}
    for sample in samples:
        video = sample.features(backbone).values
        for style in STYLES:
            truth = sample.shown(style)
            known = truth.any(axis=1)
            best = (sample.vectors(style, backbone) @ video.T).argmax(axis=1)
            hits[style].extend(truth[np.arange(len(truth)), best][known])
            hits["chance"].extend(truth[known].mean(axis=1))
    return {name: _mean(values) for name, values in hits.items()}


def _offsets(sample: Sample) -> Times:
    """Return shown start - said start of every sentence that is said and shown in the same minute.

    As in WhenAct, whose clips of 60 s hide greater offsets.
    """
    lines = sample.narration
    window, said = sample.timeline.windows[lines.window], lines.times
    same = lines.shown & (said.mean(axis=1) // CLIP == window.mean(axis=1) // CLIP)
    return np.asarray(window[same, 0] - said[same, 0])


def _centered(sample: Sample) -> Values:
    """Tell for each sentence whether its middle lies in the window that it tells of: well aligned."""
    lines = sample.narration
    window = sample.timeline.windows[lines.window]
    center = lines.times.mean(axis=1)
    inside = lines.shown & (window[:, 0] <= center) & (center < window[:, 1])
    return [float(each) for each in inside]


def _inversions(sample: Sample) -> Values:
    """Return, for each minute of the video, the share of pairs of steps said in one order and shown in the other.

    As in WhenAct's statistics: clips of 60 s, only what is said and shown in the same one, the mean over clips.
    """
    lines = sample.narration
    told = np.flatnonzero(lines.shown)
    said = lines.times[told].mean(axis=1)
    shown = sample.timeline.windows[lines.window[told]].mean(axis=1)
    for start in np.arange(0.0, sample.duration, CLIP):
        both = (said // CLIP == start // CLIP) & (shown // CLIP == start // CLIP)
        first, second = np.triu_indices(int(both.sum()), k=1)
        different = shown[both][first] != shown[both][second]
        if different.any():
            inverted = (said[both][first] - said[both][second]) * (shown[both][first] - shown[both][second]) < 0
            yield float(inverted[different].mean())


def _order(sample: Sample) -> Values:
    """Return the share of all pairs of told sentences in a video that are said in one order, shown in the other."""
    lines = sample.narration
    told = np.flatnonzero(lines.shown)
    shown = sample.timeline.windows[lines.window[told], 0]
    first, second = np.triu_indices(len(told), k=1)
    different = shown[first] != shown[second]
    return [float((shown[first] > shown[second])[different].mean())] if different.any() else []


def _offset_quantiles(offsets: Times | list[float]) -> dict[str, float]:
    values = np.asarray(offsets if len(offsets) else [np.nan])
    plain = {f"offset_p{q}": float(np.percentile(values, q)) for q in QUANTILES}
    return plain | {f"abs_offset_p{q}": float(np.percentile(np.abs(values), q)) for q in QUANTILES[2:]}


def _shown_share(style: Style) -> Callable[[Sample], Values]:
    return lambda sample: sample.lines(style).shown.tolist()


def _count(style: Style) -> Callable[[Sample], Values]:
    return lambda sample: [float(len(sample.lines(style)))]


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


MEASURES: Mapping[str, Callable[[Sample], Values]] = {
    "duration": lambda sample: [sample.duration],
    "windows": lambda sample: [float(len(sample.timeline.windows))],
    "window_s": lambda sample: np.diff(sample.timeline.windows, axis=1).ravel().tolist(),
    "gap_s": lambda sample: [float(b[0] - a[1]) for a, b in pairwise(sample.timeline.windows)],
    "covered": lambda sample: [float(np.diff(sample.timeline.windows, axis=1).sum() / sample.duration)],
    "first_start": lambda sample: [float(sample.timeline.windows[0, 0] / sample.duration)],
    "last_end": lambda sample: [float(sample.timeline.windows[-1, 1] / sample.duration)],
    "narrations": _count("narration"),
    "narrations_alignable": _shown_share("narration"),
    "narrations_well_aligned": _centered,
    "steps": _count("step"),
    "steps_alignable": _shown_share("step"),
    "recipe_lines": _count("recipe"),
    "recipe_present": _shown_share("recipe"),
    "offset": lambda sample: _offsets(sample).tolist(),
    "inversions_in_a_minute": _inversions,
    "inversions_in_the_video": _order,
}
