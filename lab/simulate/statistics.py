"""What a simulation is like, in the numbers that real data and the papers are known by
(docs/results/world.md)."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np

from lab.simulate.narration import TEXT_STYLES, Style
from lab.simulate.scene import Times
from lab.simulate.video import SimulatedVideo

CLIP_SECONDS = 60.0  # s, of WhenAct's clips: order is compared within one
OFFSET_PERCENTS = (5, 25, 50, 75, 95)

Values = Iterable[float]


def statistics(videos: Iterable[SimulatedVideo]) -> dict[str, float]:
    """Return every statistic by name. Seconds, fractions and counts per video. NaN where nothing
    was counted."""
    values: dict[str, list[float]] = {name: [] for name in VIDEO_MEASURES}
    for video in videos:
        for name, measure in VIDEO_MEASURES.items():
            values[name].extend(measure(video))
    means = {name: _mean(numbers) for name, numbers in values.items()}
    return means | _offset_quantiles(values["offset"])


def zero_shot_recall(
    videos: Iterable[SimulatedVideo], backbone: str | None = None
) -> dict[str, float]:
    """Return R@1 of each style by plain cosine, and of chance: the best second is in the text's
    window."""
    hits: dict[str, list[float]] = {name: [] for name in (*TEXT_STYLES, "chance")}
    for video in videos:
        rows = video.features(backbone).values
        for style in TEXT_STYLES:
            truth = video.shown(style)
            is_shown = truth.any(axis=1)
            similarity = video.vectors(style, backbone) @ rows.T
            best = similarity.argmax(axis=1)
            best_hits = truth[np.arange(len(truth)), best]
            hits[style].extend(best_hits[is_shown])
            hits["chance"].extend(truth[is_shown].mean(axis=1))
    return {name: _mean(values) for name, values in hits.items()}


def _offsets(video: SimulatedVideo) -> Times:
    """Return shown start - said start of every sentence that is said and shown in the same minute.

    As in WhenAct, whose clips of 60 s hide greater offsets.
    """
    lines = video.narration
    windows = video.timeline.windows[lines.window]
    said_minute = lines.times.mean(axis=1) // CLIP_SECONDS
    shown_minute = windows.mean(axis=1) // CLIP_SECONDS
    same_minute = lines.shown & (said_minute == shown_minute)
    return np.asarray(windows[same_minute, 0] - lines.times[same_minute, 0])


def _well_aligned(video: SimulatedVideo) -> Values:
    """Say for each sentence whether its middle is in the window that it is about: well
    aligned."""
    lines = video.narration
    windows = video.timeline.windows[lines.window]
    center = lines.times.mean(axis=1)
    is_inside = (windows[:, 0] <= center) & (center < windows[:, 1])
    return [float(well_aligned) for well_aligned in lines.shown & is_inside]


def _inversions_in_a_minute(video: SimulatedVideo) -> Values:
    """Return, for each minute of the video, the fraction of pairs of steps said in one order and
    shown in the other.

    As in WhenAct's statistics: clips of 60 s, only what is said and shown in the same one, the mean
    over clips.
    """
    lines = video.narration
    shown_rows = np.flatnonzero(lines.shown)
    said_times = lines.times[shown_rows].mean(axis=1)
    shown_times = video.timeline.windows[lines.window[shown_rows]].mean(axis=1)
    for start in np.arange(0.0, video.duration, CLIP_SECONDS):
        # the sentences that are said and shown in this minute
        minute = start // CLIP_SECONDS
        is_said = said_times // CLIP_SECONDS == minute
        is_shown = shown_times // CLIP_SECONDS == minute
        said_at = said_times[is_said & is_shown]
        shown_at = shown_times[is_said & is_shown]
        # their pairs that are not shown at one time
        first, second = np.triu_indices(len(said_at), k=1)
        is_different = shown_at[first] != shown_at[second]
        if is_different.any():
            said_order = said_at[first] - said_at[second]
            shown_order = shown_at[first] - shown_at[second]
            is_inverted = said_order * shown_order < 0
            yield float(is_inverted[is_different].mean())


def _inversions_in_the_video(video: SimulatedVideo) -> Values:
    """Return the fraction of all pairs of step sentences in a video that are said in one order,
    shown in the other."""
    lines = video.narration
    shown_windows = lines.window[np.flatnonzero(lines.shown)]
    starts = video.timeline.windows[shown_windows, 0]
    first, second = np.triu_indices(len(starts), k=1)
    is_different = starts[first] != starts[second]
    if not is_different.any():
        return []
    is_inverted = starts[first] > starts[second]
    return [float(is_inverted[is_different].mean())]


def _offset_quantiles(offsets: Times | list[float]) -> dict[str, float]:
    values = np.asarray(offsets if len(offsets) else [np.nan])
    lengths = np.abs(values)
    quantiles = {}
    for percent in OFFSET_PERCENTS:
        quantiles[f"offset_p{percent}"] = float(np.percentile(values, percent))
    for percent in OFFSET_PERCENTS[2:]:
        quantiles[f"abs_offset_p{percent}"] = float(np.percentile(lengths, percent))
    return quantiles


def _shown_lines(style: Style) -> Callable[[SimulatedVideo], Values]:
    return lambda video: video.lines(style).shown.tolist()


def _count(style: Style) -> Callable[[SimulatedVideo], Values]:
    return lambda video: [float(len(video.lines(style)))]


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _window_lengths(video: SimulatedVideo) -> Times:
    return np.asarray(np.diff(video.timeline.windows, axis=1).ravel())


def _gaps(video: SimulatedVideo) -> Values:
    for (_, end), (start, _) in pairwise(video.timeline.windows):
        yield float(start - end)


def _covered(video: SimulatedVideo) -> Values:
    return [float(np.diff(video.timeline.windows, axis=1).sum() / video.duration)]


def _first_start(video: SimulatedVideo) -> Values:
    return [float(video.timeline.windows[0, 0] / video.duration)]


def _last_end(video: SimulatedVideo) -> Values:
    return [float(video.timeline.windows[-1, 1] / video.duration)]


VIDEO_MEASURES: Mapping[str, Callable[[SimulatedVideo], Values]] = {
    "duration": lambda video: [video.duration],
    "windows": lambda video: [float(len(video.timeline.windows))],
    "window_s": lambda video: _window_lengths(video).tolist(),
    "gap_s": _gaps,
    "covered": _covered,
    "first_start": _first_start,
    "last_end": _last_end,
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
