"""A score with everything that it takes to trust it: the rule, the counts, what was missing, and an
interval."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import (
    DRAWS,
    LEVEL,
    Floats,
    Statistic,
    interval,
    over_sources,
    over_videos,
    point_estimate,
    resample,
)

FEW = 30  # videos under which a percentile interval over them is known to be too narrow
# scores this close are equal: sums of the same numbers over other videos differ by some 1e-16
TIE = 1e-12
LISTED = 5  # ids that the printed table names; the JSON holds all


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
        """Return (V,) what each video is drawn with: its source where several come from one, else
        itself."""
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
    """Two systems on the videos that both were scored on, with the paired interval of each metric's
    difference.

    differences: first minus second. beaten: share of draws in which the first is not better: a
    one-sided p-value.
    single: metrics that only one of the two has. missing, extra, notes: the second system's, as in
    Scores.
    """

    videos: int
    differences: Mapping[str, Metric]
    beaten: Mapping[str, float]
    single: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationReport:
    """The metrics of one system under one protocol."""

    benchmark: str
    protocol: str
    rule: str
    metrics: Mapping[str, Metric]
    videos: int
    items: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    handling: str
    notes: tuple[str, ...]
    per_video: tuple[Mapping[str, float | str], ...]
    draws: int
    seed: int
    sources: int


def report(scores: Scores, *, draws: int = DRAWS, seed: int = 0) -> EvaluationReport:
    """Return the report: every score once over its videos, and its interval from seeded draws of
    them."""
    sources = scores.units_drawn()
    statistics = {
        name: over_sources(statistic, sources) for name, statistic in scores.statistics.items()
    }
    drawn = resample(statistics, draws=draws, seed=seed)
    metrics = {
        name: Metric(point_estimate(statistic), *interval(drawn[name]), statistic.items)
        for name, statistic in scores.statistics.items()
    }
    rows: tuple[Mapping[str, float | str], ...] = tuple(
        {"video": video, **{name: float(column[index]) for name, column in scores.columns.items()}}
        for index, video in enumerate(scores.videos)
    )
    count = len(set(sources))
    few = (f"{count} videos are few: the interval is likely too narrow",) if count < FEW else ()
    return EvaluationReport(
        scores.benchmark,
        scores.protocol,
        scores.rule,
        metrics,
        len(scores.videos),
        scores.items,
        scores.missing,
        scores.extra,
        scores.handling,
        (*scores.notes, *few),
        rows,
        draws,
        seed,
        count,
    )


def compare(first: Scores, second: Scores, *, draws: int = DRAWS, seed: int = 0) -> Comparison:
    """Return the paired bootstrap of two systems over the videos that both were scored on.

    Raises DatasetError when the protocols differ or no video is shared.
    """
    if (first.benchmark, first.protocol) != (second.benchmark, second.protocol):
        pair = f"{first.benchmark}/{first.protocol} and {second.benchmark}/{second.protocol}"
        raise DatasetError(f"{pair} do not compare; score both under one protocol")
    known = set(second.videos)
    shared = [video for video in first.videos if video in known]
    if not shared:
        raise DatasetError(
            "the two systems share no scored video; compare predictions for the same videos"
        )
    names = [name for name in first.statistics if name in second.statistics]
    origin = dict(zip(first.videos, first.units_drawn(), strict=True))
    sources = [origin[video] for video in shared]
    one = {
        name: over_sources(over_videos(first.statistics[name], first.videos, shared), sources)
        for name in names
    }
    other = {
        name: over_sources(over_videos(second.statistics[name], second.videos, shared), sources)
        for name in names
    }
    ours, theirs = resample(one, draws=draws, seed=seed), resample(other, draws=draws, seed=seed)
    differences, beaten = {}, {}
    for name in names:
        apart = _differences(ours[name], theirs[name])
        known_draws = apart[~np.isnan(apart)]
        whole = _differences(
            np.array([point_estimate(one[name])]), np.array([point_estimate(other[name])])
        )
        differences[name] = Metric(float(whole[0]), *interval(apart), one[name].items)
        beaten[name] = float((known_draws <= 0).mean()) if len(known_draws) else math.nan
    single = tuple(sorted({*first.statistics} ^ {*second.statistics}))
    return Comparison(
        len(shared), differences, beaten, single, second.missing, second.extra, second.notes
    )


def _differences(first: Floats, second: Floats) -> Floats:
    """Return first - second, 0 where only the order of the sums makes them differ: a tie is not a
    gain."""
    return np.where(np.isclose(first, second, rtol=TIE, atol=TIE), 0.0, first - second)


def as_table(made: EvaluationReport, against: Comparison | None = None) -> str:
    """Return the report as text: one line a metric with its protocol, then the rule and what was
    missing."""
    name = f"{made.benchmark}/{made.protocol}"
    width = max([6, *map(len, made.metrics)])
    lines = [
        f"{'metric':<{width}}  {'value':>8}  {LEVEL:g} % interval     videos   items  protocol"
    ]
    for metric, number in made.metrics.items():
        span = f"[{_number(number.low)}, {_number(number.high)}]"
        lines.append(
            f"{metric:<{width}}  {_number(number.value):>8}  {span:<19} {made.videos:>6} {number.items:>7}  {name}"
        )
    lines += ["", f"rule: {made.rule}"]
    lines += [f"interval: {made.draws} draws of {made.sources} whole videos, seed {made.seed}"]
    lines += [f"in the reference, not in the predictions: {_listed(made.missing)}"]
    lines += [f"in the predictions, not in the reference: {_listed(made.extra)}"]
    lines += [f"these videos: {made.handling}"] if made.handling else []
    lines += [f"note: {note}" for note in made.notes]
    return "\n".join([*lines, *(_comparison_lines(against, width) if against else [])]) + "\n"


def _comparison_lines(against: Comparison, width: int) -> list[str]:
    lines = ["", f"difference to the other system, paired over {against.videos} videos"]
    for metric, number in against.differences.items():
        span = f"[{_number(number.low)}, {_number(number.high)}]"
        share = against.beaten[metric]
        lines.append(
            f"{metric:<{width}}  {number.value:>+8.4f}  {span:<19} not better in {100 * share:.1f} % of draws"
        )
    lines += [
        f"in the reference, not in the other system's predictions: {_listed(against.missing)}"
    ]
    lines += [f"in the other system's predictions, not in the reference: {_listed(against.extra)}"]
    if against.single:
        lines += [
            f"not compared, since one of the two systems has no value: {', '.join(against.single)}"
        ]
    return lines + [f"note on the other system: {note}" for note in against.notes]


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _listed(ids: Sequence[str]) -> str:
    if not ids:
        return "none"
    more = f" and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    return f"{len(ids)} ({', '.join(ids[:LISTED])}{more})"


def as_json(made: EvaluationReport, against: Comparison | None = None) -> str:
    """Return the report as JSON; NaN becomes null."""
    tree: dict[str, object] = {
        "benchmark": made.benchmark,
        "protocol": made.protocol,
        "rule": made.rule,
        "metrics": {
            name: {**_interval(metric), "items": metric.items}
            for name, metric in made.metrics.items()
        },
        "videos": made.videos,
        "items": made.items,
        "missing": list(made.missing),
        "extra": list(made.extra),
        "handling": made.handling,
        "notes": list(made.notes),
        "bootstrap": {
            "draws": made.draws,
            "videos": made.sources,
            "seed": made.seed,
            "level": LEVEL,
        },
    }
    if against is not None:
        differences = {
            name: {**_interval(metric), "not_better": _null_if_nan(against.beaten[name])}
            for name, metric in against.differences.items()
        }
        tree["against"] = {
            "videos": against.videos,
            "differences": differences,
            "not_compared": list(against.single),
            "missing": list(against.missing),
            "extra": list(against.extra),
            "notes": list(against.notes),
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


def write_per_video(made: EvaluationReport, path: Path) -> None:
    """Write one row a video: its id, protocol and numbers. Raises StoreError when the file cannot
    be written."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    from stepline.atomic_files import atomic_path

    rows = [{"protocol": f"{made.benchmark}/{made.protocol}", **row} for row in made.per_video]
    with atomic_path(path) as partial:
        parquet.write_table(arrow.Table.from_pylist(rows), partial)
