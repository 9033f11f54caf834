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
    bootstrap_scores,
    group_by_source,
    percentile_interval,
    point_estimate,
)

MIN_VIDEOS = 30  # videos under which a percentile interval over them is known to be too narrow
# Scores this close are equal: sums of the same numbers over other videos differ by some 1e-16.
TIE_TOLERANCE = 1e-12
MAX_LISTED_IDS = 5  # ids that the printed table names; the JSON holds all


@dataclass(frozen=True)
class Scores:
    """Scores of one system's predictions by one scoring convention, without bootstrap intervals.

    Attributes:
        benchmark: name of the benchmark.
        protocol: name of the scoring convention.
        rule: text of the scoring convention, which is printed with the scores.
        videos: ids of the V scored videos.
        items: number of counted items in these videos (sentences, steps, segments or clips).
        statistics: metric name -> statistic over these videos.
        columns: column name -> (V,) one number per video, NaN where it is undefined.
        missing: ids of the videos that the reference has and the predictions lack.
        extra: ids of the videos that the predictions have and the reference lacks.
        handling: sentence that says how missing and extra videos were scored.
        notes: remarks that are printed with the scores.
        sources: (V,) id of the source video that each video was cut from. Videos of one source are
            not independent. Empty: every video is its own source.
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


@dataclass(frozen=True)
class Metric:
    """A score with its bootstrap confidence interval over videos.

    Attributes:
        value: the score, NaN where it is undefined.
        low: lower end of the interval.
        high: upper end of the interval.
        items: number of items that the score counts.
    """

    value: float
    low: float
    high: float
    items: int


@dataclass(frozen=True)
class Comparison:
    """Paired bootstrap comparison of two systems on the videos that both systems were scored on.

    Attributes:
        videos: number of these videos.
        differences: metric name -> score of the first system minus score of the second system, with
            its paired interval.
        p_values: metric name -> fraction of the draws in which the first system is not better
            than the second: a one-sided p-value, NaN where it is undefined.
        second_scores: the scores of the second system.
        uncompared: names of the metrics that only one of the systems has.
    """

    videos: int
    differences: Mapping[str, Metric]
    p_values: Mapping[str, float]
    second_scores: Scores
    uncompared: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationReport:
    """Metrics of one system by one scoring convention, with bootstrap intervals.

    Attributes:
        scores: the scores without intervals.
        metrics: metric name -> score with its interval.
        notes: remarks of the scores and of the bootstrap.
        draws: number of bootstrap draws.
        seed: seed of the random draws.
        sources: number of independent source videos that the bootstrap draws from.
    """

    scores: Scores
    metrics: Mapping[str, Metric]
    notes: tuple[str, ...]
    draws: int
    seed: int
    sources: int

    @property
    def name(self) -> str:
        """Name of the benchmark and name of the scoring convention, joined by a slash."""
        return f"{self.scores.benchmark}/{self.scores.protocol}"


def report(scores: Scores, *, draws: int = BOOTSTRAP_DRAWS, seed: int = 0) -> EvaluationReport:
    """Return the report of a system's scores, with bootstrap intervals.

    Args:
        scores: the scores.
        draws: number of bootstrap draws.
        seed: seed of the random draws.
    """
    # Videos of one source are drawn together.
    sources = scores.sources or scores.videos
    samples = bootstrap_scores(
        {
            name: group_by_source(statistic, sources)
            for name, statistic in scores.statistics.items()
        },
        draws=draws,
        seed=seed,
    )
    metrics = {
        name: Metric(
            point_estimate(statistic), *percentile_interval(samples[name]), statistic.items
        )
        for name, statistic in scores.statistics.items()
    }
    source_count = len(set(sources))
    notes = scores.notes
    if source_count < MIN_VIDEOS:
        notes = (*notes, f"{source_count} videos are few: the interval is likely too narrow")
    undefined = [name for name, metric in metrics.items() if math.isnan(metric.value)]
    if undefined:
        notes = (*notes, f"undefined, as a ranking of one class is: {', '.join(undefined)}")
    return EvaluationReport(scores, metrics, notes, draws, seed, source_count)


def compare(
    first: Scores, second: Scores, *, draws: int = BOOTSTRAP_DRAWS, seed: int = 0
) -> Comparison:
    """Return the paired bootstrap comparison of two systems on the videos that both have in common.

    Args:
        first: scores of the first system.
        second: scores of the second system, by the same convention.
        draws: number of bootstrap draws.
        seed: seed of the random draws.

    Raises DatasetError when the conventions differ or when the systems share no video.
    """
    if (first.benchmark, first.protocol) != (second.benchmark, second.protocol):
        raise DatasetError(
            f"{first.benchmark}/{first.protocol} and {second.benchmark}/{second.protocol}"
            " do not compare; score both under one protocol"
        )
    # Source of each shared video.
    sources = dict(zip(first.videos, first.sources or first.videos, strict=True))
    sources = {video: sources[video] for video in second.videos if video in sources}
    if not sources:
        raise DatasetError(
            "the two systems share no scored video; compare predictions for the same videos"
        )
    names = [name for name in first.statistics if name in second.statistics]
    first_statistics, second_statistics = (
        {
            name: group_by_source(scores.statistics[name], [*map(sources.get, scores.videos)])
            for name in names
        }
        for scores in (first, second)
    )
    # The same draws for both systems.
    first_samples = bootstrap_scores(first_statistics, draws=draws, seed=seed)
    second_samples = bootstrap_scores(second_statistics, draws=draws, seed=seed)
    differences = {}
    p_values = {}
    for name in names:
        sample = _differences(first_samples[name], second_samples[name])
        first_point = np.array([point_estimate(first_statistics[name])])
        second_point = np.array([point_estimate(second_statistics[name])])
        value = float(_differences(first_point, second_point)[0])
        differences[name] = Metric(
            value, *percentile_interval(sample), first_statistics[name].items
        )
        known = sample[~np.isnan(sample)]
        p_values[name] = float((known <= 0).mean()) if len(known) else math.nan
    uncompared = sorted({*first.statistics} ^ {*second.statistics})
    return Comparison(len(sources), differences, p_values, second, tuple(uncompared))


def _differences(first: Floats, second: Floats) -> Floats:
    """Return first - second for bootstrap scores (draws,) of two systems. A difference that is only
    a rounding error becomes 0."""
    ties = np.isclose(first, second, rtol=TIE_TOLERANCE, atol=TIE_TOLERANCE)
    return np.where(ties, 0.0, first - second)


def as_table(system: EvaluationReport, against: Comparison | None = None) -> str:
    """Return a report as text: one line per metric, then the convention and the missing videos.

    Args:
        system: the report of the system.
        against: comparison of the system with a second one, which is printed below. None: no
            comparison.
    """
    scores = system.scores
    width = max([6, *map(len, system.metrics)])
    lines = [
        f"{'metric':<{width}}  {'value':>8}  {INTERVAL_PERCENT:g} % interval     "
        "videos   items  protocol"
    ]
    for name, metric in system.metrics.items():
        lines.append(
            f"{name:<{width}}  {_four_digits(metric.value):>8}  {_interval_text(metric):<19} "
            f"{system.sources:>6} {metric.items:>7}  {system.name}"
        )
    lines += [
        "",
        f"rule: {scores.rule}",
        "items: what a value is a mean or share of: sentences, steps, clips or whole videos",
        f"interval: {system.draws} draws of {system.sources} whole videos, seed {system.seed}",
        f"in the reference, not in the predictions: {_id_list(scores.missing)}",
        f"in the predictions, not in the reference: {_id_list(scores.extra)}",
    ]
    if scores.handling:
        lines.append(f"these videos: {scores.handling}")
    lines += [f"note: {note}" for note in system.notes]
    if against is not None:
        lines += _comparison_lines(against, width)
    return "\n".join(lines) + "\n"


def _comparison_lines(against: Comparison, width: int) -> list[str]:
    second = against.second_scores
    lines = ["", f"difference to the other system, paired over {against.videos} videos"]
    for name, metric in against.differences.items():
        numbers = f"{metric.value:>+8.4f}  {_interval_text(metric):<19}"
        percent = 100 * against.p_values[name]
        lines.append(f"{name:<{width}}  {numbers} not better in {percent:.1f} % of draws")
    lines += [
        f"in the reference, not in the other system's predictions: {_id_list(second.missing)}",
        f"in the other system's predictions, not in the reference: {_id_list(second.extra)}",
    ]
    if against.uncompared:
        names = ", ".join(against.uncompared)
        lines.append(f"not compared, since one of the two systems has no value: {names}")
    return lines + [f"note on the other system: {note}" for note in second.notes]


def _interval_text(metric: Metric) -> str:
    return f"[{_four_digits(metric.low)}, {_four_digits(metric.high)}]"


def _four_digits(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _id_list(ids: Sequence[str]) -> str:
    if not ids:
        return "none"
    more = f" and {len(ids) - MAX_LISTED_IDS} more" if len(ids) > MAX_LISTED_IDS else ""
    return f"{len(ids)} ({', '.join(ids[:MAX_LISTED_IDS])}{more})"


def as_json(system: EvaluationReport, against: Comparison | None = None) -> str:
    """Return a report as JSON text, with null for NaN.

    Args:
        system: the report of the system.
        against: comparison of the system with a second one, under the key "against". None: no
            comparison.
    """
    scores = system.scores
    tree: dict[str, object] = {
        "benchmark": scores.benchmark,
        "protocol": scores.protocol,
        "rule": scores.rule,
        "metrics": {
            name: _interval_tree(metric) | {"items": metric.items}
            for name, metric in system.metrics.items()
        },
        "videos": system.sources,
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
    if against is not None:
        tree["against"] = {
            "videos": against.videos,
            "differences": {
                name: _interval_tree(metric) | {"not_better": _null_if_nan(against.p_values[name])}
                for name, metric in against.differences.items()
            },
            "not_compared": against.uncompared,
            "missing": against.second_scores.missing,
            "extra": against.second_scores.extra,
            "notes": against.second_scores.notes,
        }
    return json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _interval_tree(metric: Metric) -> dict[str, float | None]:
    return {name: _null_if_nan(getattr(metric, name)) for name in ("value", "low", "high")}


def _null_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def write_per_video(system: EvaluationReport, path: Path) -> None:
    """Write a Parquet file with one row per video: convention, video id and the per-video numbers.

    Args:
        system: the report whose `scores.columns` are written.
        path: path of the Parquet file.

    Raises StoreError when the file cannot be written.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    from stepline.files.atomic_files import atomic_path

    scores = system.scores
    rows = [
        {
            "protocol": system.name,
            "video": video,
            **{name: float(column[index]) for name, column in scores.columns.items()},
        }
        for index, video in enumerate(scores.videos)
    ]
    with atomic_path(path) as partial:
        parquet.write_table(arrow.Table.from_pylist(rows), partial)
