"""Evaluation reports: scores with their rule, counts, missing videos and bootstrap intervals."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import (
    BOOTSTRAP_DRAWS,
    INTERVAL_PERCENT,
    Floats,
    Statistic,
    interval,
    over_sources,
    over_videos,
    point_estimate,
    resample,
)

MIN_VIDEOS = 30  # videos under which a percentile interval over them is known to be too narrow
# scores this close are equal: sums of the same numbers over other videos differ by some 1e-16
TIE_TOLERANCE = 1e-12
MAX_LISTED_IDS = 5  # ids that the printed table names; the JSON holds all


@dataclass(frozen=True)
class Scores:
    """What a protocol computed, before its statistics.

    videos: ids of the V videos scored. items: what was counted in them (sentences, steps, segments,
    clips).
    statistics: name -> Statistic over those videos. columns: name -> (V,) per-video numbers, NaN
    where undefined.
    missing: in the reference, not in the predictions. extra: the reverse. handling: what was done
    with them.
    sources: (V,) what each video was cut from, where videos share a source and so are not
    independent.
    """

    benchmark: str
    protocol: str
    rule: str
    videos: tuple[str, ...]
    items: int
    statistics: Mapping[str, Statistic]
    columns: Mapping[str, Floats] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    handling: str = ""
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def units_drawn(self) -> tuple[str, ...]:
        """Return (V,) the bootstrap unit of each video: its source if several share one, else
        itself.
        """
        return self.sources or self.videos


@dataclass(frozen=True)
class Metric:
    """A number, its bootstrap interval over videos (NaN where undefined), and how many items it
    counts."""

    value: float
    low: float
    high: float
    items: int


@dataclass(frozen=True)
class Comparison:
    """Two systems on their common videos, with the paired interval of each metric's difference.

    differences: first minus second. beaten: fraction of draws in which the first is not better: a
    one-sided p-value. second: the scores of the second system. single: metrics that only one of the
    two has.
    """

    videos: int
    differences: Mapping[str, Metric]
    beaten: Mapping[str, float]
    second: Scores
    single: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationReport:
    """The metrics of one system under one protocol.

    notes: of the scores and of the report. sources: number of independent units.
    """

    scores: Scores
    metrics: Mapping[str, Metric]
    notes: tuple[str, ...]
    draws: int
    seed: int
    sources: int

    @property
    def name(self) -> str:
        """Return benchmark and protocol."""
        return f"{self.scores.benchmark}/{self.scores.protocol}"

    @property
    def per_video(self) -> list[dict[str, float | str]]:
        """Return one row per video: its id and numbers."""
        rows: list[dict[str, float | str]] = []
        for index, video in enumerate(self.scores.videos):
            row: dict[str, float | str] = {"video": video}
            for name, column in self.scores.columns.items():
                row[name] = float(column[index])
            rows.append(row)
        return rows


def report(scores: Scores, *, draws: int = BOOTSTRAP_DRAWS, seed: int = 0) -> EvaluationReport:
    """Return the report of scores with bootstrap intervals from seeded draws."""
    # Videos of one source are drawn together.
    sources = scores.units_drawn()
    statistics = {
        name: over_sources(statistic, sources) for name, statistic in scores.statistics.items()
    }
    draws_of = resample(statistics, draws=draws, seed=seed)
    metrics = {}
    for name, statistic in scores.statistics.items():
        low, high = interval(draws_of[name])
        metrics[name] = Metric(point_estimate(statistic), low, high, statistic.items)
    # Few units make a percentile interval too narrow.
    count = len(set(sources))
    notes = scores.notes
    if count < MIN_VIDEOS:
        notes = (*notes, f"{count} videos are few: the interval is likely too narrow")
    return EvaluationReport(scores, metrics, notes, draws, seed, count)


def compare(
    first: Scores, second: Scores, *, draws: int = BOOTSTRAP_DRAWS, seed: int = 0
) -> Comparison:
    """Return the paired bootstrap of two systems over the videos that both were scored on.

    Raises DatasetError when the protocols differ or no video is shared.
    """
    if (first.benchmark, first.protocol) != (second.benchmark, second.protocol):
        pair = f"{first.benchmark}/{first.protocol} and {second.benchmark}/{second.protocol}"
        raise DatasetError(f"{pair} do not compare; score both under one protocol")
    # the videos that both were scored on
    second_videos = set(second.videos)
    shared = [video for video in first.videos if video in second_videos]
    if not shared:
        raise DatasetError(
            "the two systems share no scored video; compare predictions for the same videos"
        )
    source_of = dict(zip(first.videos, first.units_drawn(), strict=True))
    sources = [source_of[video] for video in shared]
    # the statistics of both, over these videos
    common = [name for name in first.statistics if name in second.statistics]
    systems = []
    for scores in (first, second):
        over_shared = {}
        for name in common:
            statistic = over_videos(scores.statistics[name], scores.videos, shared)
            over_shared[name] = over_sources(statistic, sources)
        systems.append(over_shared)
    # the differences, draw by draw
    first_system, second_system = systems
    first_draws = resample(first_system, draws=draws, seed=seed)
    second_draws = resample(second_system, draws=draws, seed=seed)
    differences = {}
    beaten = {}
    for name in common:
        statistic = first_system[name]
        drawn = _differences(first_draws[name], second_draws[name])
        defined = drawn[~np.isnan(drawn)]
        first_point = np.array([point_estimate(statistic)])
        second_point = np.array([point_estimate(second_system[name])])
        whole = float(_differences(first_point, second_point)[0])
        low, high = interval(drawn)
        differences[name] = Metric(whole, low, high, statistic.items)
        beaten[name] = math.nan
        if len(defined):
            beaten[name] = float((defined <= 0).mean())
    single = sorted({*first.statistics} ^ {*second.statistics})
    return Comparison(len(shared), differences, beaten, second, tuple(single))


def _differences(first: Floats, second: Floats) -> Floats:
    """Return first - second, 0 where only the order of the sums makes them differ: a tie is not a
    gain."""
    ties = np.isclose(first, second, rtol=TIE_TOLERANCE, atol=TIE_TOLERANCE)
    return np.where(ties, 0.0, first - second)


def as_table(system: EvaluationReport, against: Comparison | None = None) -> str:
    """Return the report as text: one line per metric with its protocol, then the rule and what was
    missing."""
    scores = system.scores
    width = max([6, *map(len, system.metrics)])
    lines = [
        f"{'metric':<{width}}  {'value':>8}  {INTERVAL_PERCENT:g} % interval     "
        "videos   items  protocol"
    ]
    # A line per metric.
    for name, metric in system.metrics.items():
        numbers = f"{_four_digits(metric.value):>8}  {_span(metric):<19}"
        counts = f"{len(scores.videos):>6} {metric.items:>7}"
        lines.append(f"{name:<{width}}  {numbers} {counts}  {system.name}")
    # How it was measured, and what was left out.
    lines += ["", f"rule: {scores.rule}"]
    lines.append(
        f"interval: {system.draws} draws of {system.sources} whole videos, seed {system.seed}"
    )
    lines.append(f"in the reference, not in the predictions: {_listed(scores.missing)}")
    lines.append(f"in the predictions, not in the reference: {_listed(scores.extra)}")
    if scores.handling:
        lines.append(f"these videos: {scores.handling}")
    lines += [f"note: {note}" for note in system.notes]
    if against is not None:
        lines += _comparison_lines(against, width)
    return "\n".join(lines) + "\n"


def _comparison_lines(against: Comparison, width: int) -> list[str]:
    second = against.second
    lines = ["", f"difference to the other system, paired over {against.videos} videos"]
    for name, metric in against.differences.items():
        numbers = f"{metric.value:>+8.4f}  {_span(metric):<19}"
        share = 100 * against.beaten[name]
        lines.append(f"{name:<{width}}  {numbers} not better in {share:.1f} % of draws")
    lines.append(
        f"in the reference, not in the other system's predictions: {_listed(second.missing)}"
    )
    lines.append(
        f"in the other system's predictions, not in the reference: {_listed(second.extra)}"
    )
    if against.single:
        names = ", ".join(against.single)
        lines.append(f"not compared, since one of the two systems has no value: {names}")
    return lines + [f"note on the other system: {note}" for note in second.notes]


def _span(metric: Metric) -> str:
    return f"[{_four_digits(metric.low)}, {_four_digits(metric.high)}]"


def _four_digits(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _listed(ids: Sequence[str]) -> str:
    if not ids:
        return "none"
    more = f" and {len(ids) - MAX_LISTED_IDS} more" if len(ids) > MAX_LISTED_IDS else ""
    return f"{len(ids)} ({', '.join(ids[:MAX_LISTED_IDS])}{more})"


def as_json(system: EvaluationReport, against: Comparison | None = None) -> str:
    """Return the report as JSON. NaN becomes null."""
    # One system.
    scores = system.scores
    metrics = {}
    for name, metric in system.metrics.items():
        metrics[name] = _interval(metric) | {"items": metric.items}
    tree: dict[str, object] = {
        "benchmark": scores.benchmark,
        "protocol": scores.protocol,
        "rule": scores.rule,
        "metrics": metrics,
        "videos": len(scores.videos),
        "items": scores.items,
        "missing": scores.missing,
        "extra": scores.extra,
        "handling": scores.handling,
        "notes": system.notes,
        "bootstrap": {
            "draws": system.draws,
            "videos": system.sources,
            "seed": system.seed,
            "level": INTERVAL_PERCENT,
        },
    }
    # Its difference to the other.
    if against is not None:
        differences = {}
        for name, metric in against.differences.items():
            not_better = _null_if_nan(against.beaten[name])
            differences[name] = _interval(metric) | {"not_better": not_better}
        tree["against"] = {
            "videos": against.videos,
            "differences": differences,
            "not_compared": against.single,
            "missing": against.second.missing,
            "extra": against.second.extra,
            "notes": against.second.notes,
        }
    return json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _interval(metric: Metric) -> dict[str, float | int | None]:
    return {
        "value": _null_if_nan(metric.value),
        "low": _null_if_nan(metric.low),
        "high": _null_if_nan(metric.high),
    }


def _null_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def write_per_video(system: EvaluationReport, path: Path) -> None:
    """Write one row per video: its id, protocol and numbers. Raises StoreError when the file cannot
    be written."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    from stepline.files.atomic_files import atomic_path

    rows = [{"protocol": system.name, **row} for row in system.per_video]
    with atomic_path(path) as partial:
        parquet.write_table(arrow.Table.from_pylist(rows), partial)
