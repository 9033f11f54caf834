"""What a simulation is like, in the numbers that real data and the papers are known by
(docs/results/world.md)."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np

from research.simulate.narration import STYLES, Style
from research.simulate.scene import Times
from research.simulate.video import SimulatedVideo

CLIP = 60.0  # s, of WhenAct's clips: order is compared within one
QUANTILES = (5, 25, 50, 75, 95)

Values = Iterable[float]


def statistics(videos: Iterable[SimulatedVideo]) -> dict[str, float]:
    """Return every statistic by name. Seconds, fractions and counts per video. NaN where nothing
    was counted."""
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    for video in videos:
        for name, measure in MEASURES.items():
            found[name].extend(measure(video))
    return {name: _mean(values) for name, values in found.items()} | _offset_quantiles(
        found["offset"]
    )


def zero_shot_recall(
    videos: Iterable[SimulatedVideo], backbone: str | None = None
) -> dict[str, float]:
    """Return R@1 of each style by plain cosine, and of chance: the best second is in the text's
    window."""
    hits: dict[str, list[float]] = {name: [] for name in (*STYLES, "chance")}
    for video in videos:
        rows = video.features(backbone).values
        for style in STYLES:
            truth = video.shown(style)
            known = truth.any(axis=1)
            best = (video.vectors(style, backbone) @ rows.T).argmax(axis=1)
            hits[style].extend(truth[np.arange(len(truth)), best][known])
            hits["chance"].extend(truth[known].mean(axis=1))
    return {name: _mean(values) for name, values in hits.items()}


def _offsets(video: SimulatedVideo) -> Times:
    """Return shown start - said start of every sentence that is said and shown in the same minute.

    As in WhenAct, whose clips of 60 s hide greater offsets.
    """
    lines = video.narration
    window, said = video.timeline.windows[lines.window], lines.times
    same = lines.shown & (said.mean(axis=1) // CLIP == window.mean(axis=1) // CLIP)
    return np.asarray(window[same, 0] - said[same, 0])


def _well_aligned(video: SimulatedVideo) -> Values:
    """Say for each sentence whether its middle is in the window that it is about: well
    aligned."""
    lines = video.narration
    window = video.timeline.windows[lines.window]
    center = lines.times.mean(axis=1)
    inside = lines.shown & (window[:, 0] <= center) & (center < window[:, 1])
    return [float(well_aligned) for well_aligned in inside]


def _inversions_in_a_minute(video: SimulatedVideo) -> Values:
    """Return, for each minute of the video, the fraction of pairs of steps said in one order and
    shown in the other.

    As in WhenAct's statistics: clips of 60 s, only what is said and shown in the same one, the mean
    over clips.
    """
    lines = video.narration
    told = np.flatnonzero(lines.shown)
    said = lines.times[told].mean(axis=1)
    shown = video.timeline.windows[lines.window[told]].mean(axis=1)
    for start in np.arange(0.0, video.duration, CLIP):
        both = (said // CLIP == start // CLIP) & (shown // CLIP == start // CLIP)
        first, second = np.triu_indices(int(both.sum()), k=1)
        different = shown[both][first] != shown[both][second]
        if different.any():
            inverted = (said[both][first] - said[both][second]) * (
                shown[both][first] - shown[both][second]
            ) < 0
            yield float(inverted[different].mean())


def _inversions_in_the_video(video: SimulatedVideo) -> Values:
    """Return the fraction of all pairs of step sentences in a video that are said in one order,
    shown in the other."""
    lines = video.narration
    told = np.flatnonzero(lines.shown)
    shown = video.timeline.windows[lines.window[told], 0]
    first, second = np.triu_indices(len(told), k=1)
    different = shown[first] != shown[second]
    return [float((shown[first] > shown[second])[different].mean())] if different.any() else []


def _offset_quantiles(offsets: Times | list[float]) -> dict[str, float]:
    values = np.asarray(offsets if len(offsets) else [np.nan])
    plain = {f"offset_p{q}": float(np.percentile(values, q)) for q in QUANTILES}
    return plain | {
        f"abs_offset_p{q}": float(np.percentile(np.abs(values), q)) for q in QUANTILES[2:]
    }


def _shown_lines(style: Style) -> Callable[[SimulatedVideo], Values]:
    return lambda video: video.lines(style).shown.tolist()


def _count(style: Style) -> Callable[[SimulatedVideo], Values]:
    return lambda video: [float(len(video.lines(style)))]


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


MEASURES: Mapping[str, Callable[[SimulatedVideo], Values]] = {
    "duration": lambda video: [video.duration],
    "windows": lambda video: [float(len(video.timeline.windows))],
    "window_s": lambda video: np.diff(video.timeline.windows, axis=1).ravel().tolist(),
    "gap_s": lambda video: [float(b[0] - a[1]) for a, b in pairwise(video.timeline.windows)],
    "covered": lambda video: [
        float(np.diff(video.timeline.windows, axis=1).sum() / video.duration)
    ],
    "first_start": lambda video: [float(video.timeline.windows[0, 0] / video.duration)],
    "last_end": lambda video: [float(video.timeline.windows[-1, 1] / video.duration)],
    "narrations": _count("narration"),
    "narrations_alignable": _shown_lines("narration"),
    "narrations_well_aligned": _well_aligned,
    "steps": _count("step"),
    "steps_alignable": _shown_lines("step"),
    "recipe_lines": _count("recipe"),
    "recipe_present": _shown_lines("recipe"),
    "offset": lambda video: _offsets(video).tolist(),
    "inversions_in_a_minute": _inversions_in_a_minute,
    "inversions_in_the_video": _inversions_in_the_video,
}
