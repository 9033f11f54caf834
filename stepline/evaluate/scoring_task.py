"""Common parts of all benchmarks: inputs, selection of videos, and checked JSON values."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from stepline.datasets.files import Node, read_node
from stepline.datasets.predictions import Cut, SegmentPredictions
from stepline.datasets.record_builder import ID_PREFIX
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic
from stepline.evaluate.report import Scores

COUNT_MISSING = (
    "videos without predictions count as wrong; predictions for unknown videos count nowhere"
)
SKIP_MISSING_VIDEOS = "videos without predictions are left out of the score, as officially"
SKIP_MISSING = f"{SKIP_MISSING_VIDEOS}; the rest of the predictions too"

OptionalSpan: TypeAlias = tuple[float, float] | None


@dataclass(frozen=True)
class ScoringTask:
    """One thing to score: benchmark, protocol and its rule, and the paths of reference and
    predictions.

    subset: only this split of the reference, None for all of it. cut: "pdvc" ranks and cuts PDVC's
    proposals before they are scored.
    """

    benchmark: str
    protocol: str
    rule: str
    reference: Path
    predictions: Path
    subset: str | None = None
    cut: Cut | None = None

    def scores(
        self,
        statistics: Mapping[str, Statistic],
        columns: Mapping[str, Floats],
        *,
        items: float,
        reference_ids: Iterable[str],
        predicted_ids: Iterable[str],
        handling: str = COUNT_MISSING,
        notes: Iterable[str] = (),
    ) -> Scores:
        """Return the scores. Videos without predictions are in them unless `handling` skips them.

        Raises DatasetError when the reference holds nothing to score, or the two share no id at
        all. It is also raised where the convention leaves out videos without predictions and no
        video has any.
        """
        # which videos both sides hold
        wanted_ids = tuple(reference_ids)
        ids = tuple(predicted_ids)
        wanted_set = set(wanted_ids)
        id_set = set(ids)
        shared = []
        missing = []
        for id in wanted_ids:
            if id in id_set:
                shared.append(id)
            else:
                missing.append(id)
        # whether there is something to score
        if not wanted_ids:
            raise self._nothing_to_score()
        if ids and not shared:
            pair = f"{ids[0]!r} and {wanted_ids[0]!r}"
            fault = f"{self.predictions}: no id is in the reference ({pair})"
            raise DatasetError(f"{fault}; give predictions by its ids")
        if items == 0 and not ids and handling != COUNT_MISSING:
            fault = f"{self.predictions}: empty; {self.protocol} scores only videos in both files"
            cure = "give predictions, or a convention that counts missing videos"
            raise DatasetError(f"{fault}; {cure}")
        if items == 0:
            raise self._nothing_to_score()
        videos = wanted_ids
        if handling in (SKIP_MISSING, SKIP_MISSING_VIDEOS):
            videos = tuple(shared)
        return Scores(
            self.benchmark,
            self.protocol,
            self.rule,
            videos,
            int(items),
            statistics,
            columns,
            missing=tuple(missing),
            extra=tuple(id for id in ids if id not in wanted_set),
            handling=handling,
            notes=tuple(notes),
        )

    def _nothing_to_score(self) -> DatasetError:
        part = f" in subset {self.subset!r}" if self.subset is not None else ""
        fault = f"{self.reference}: holds nothing to score{part} for {self.benchmark}"
        return DatasetError(f"{fault}; give its annotations")


def entries_by_id(path: Path, *names: str) -> dict[str, Node]:
    """Return the values of a JSON object by key. In a folder: the first existing one of `names`."""
    return dict(read_node(path, *names).entries())


def read_numbers(node: Node, count: int | None = None, what: str = "values") -> Floats:
    """Return a list of numbers, null as NaN.

    Raises DatasetError for anything else, for infinity or NaN, and where it is not `count` long.
    """
    values = [read_number(row) for row in node.rows()]
    numbers = np.array(values, dtype=np.float64)
    if count is not None:
        require_length(node, numbers, count, what)
    return numbers


def read_number(node: Node) -> float:
    """Return a number, null as NaN. Raises DatasetError for anything else, and for infinity or
    NaN."""
    if node.value is None:
        return float("nan")
    if not is_number(node.value):
        raise node.error("a number or null")
    if not np.isfinite(number := node.number()):
        raise node.error("a finite number, or null for a missing one")
    return number


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number, and not true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_matrix(node: Node) -> Floats:
    """Return a list of equally long lists of numbers as (N, M). Raises DatasetError for anything
    else."""
    try:
        array = np.asarray(node.value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise node.error("a list of equally long lists of numbers") from error
    if array.ndim != 2 or not np.isfinite(array).all():
        raise node.error("a list of equally long lists of finite numbers")
    return array


def read_spans(node: Node, count: int, what: str) -> list[OptionalSpan]:
    """Return `count` spans, [start, end] or null. Raises DatasetError for anything else, and for
    infinity or NaN."""
    spans: list[OptionalSpan] = []
    is_finite = True
    for row in node.rows():
        span = None
        if row.value is not None:
            span = row.pair()
            is_finite = is_finite and bool(np.isfinite(span).all())
        spans.append(span)
    if not is_finite:
        raise node.error("a list of finite [start, end]")
    require_length(node, spans, count, what)
    return spans


def span_centers(spans: Iterable[Sequence[float] | None]) -> Floats:
    """Return the middle second of each span, NaN where there is no span."""
    centers = []
    for span in spans:
        if span is None:
            centers.append(math.nan)
        else:
            start, end = span
            centers.append((start + end) / 2)
    return np.array(centers)


def is_matrix_node(node: Node) -> bool:
    """Return whether a value is a list whose first item is a list."""
    value = node.value
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def require_length(node: Node, values: Sized, count: int, what: str) -> None:
    """Raise DatasetError unless there are `count` values."""
    if len(values) != count:
        counts = f"{len(values)} values for {count} {what}"
        raise DatasetError(f"{node.location}: {counts}; give one, or null, for each")


V = TypeVar("V")


def match_ids(predictions: Mapping[str, V], ids: Iterable[str]) -> dict[str, V]:
    """Return predictions by the reference's ids, where one side writes "v_" before them (PDVC) and
    the other does not.

    Raises DatasetError when two ids become one.
    """
    reference_ids = set(ids)
    matched: dict[str, V] = {}
    for id, value in predictions.items():
        # The id as the other side may write it.
        other = f"{ID_PREFIX}{id}"
        if id.startswith(ID_PREFIX):
            other = id.removeprefix(ID_PREFIX)
        name = other if id not in reference_ids and other in reference_ids else id
        if name in matched:
            raise DatasetError(f"predictions: {id!r} and {other!r} are one video; keep one of them")
        matched[name] = value
    return matched


def prediction_notes(predictions: SegmentPredictions) -> list[str]:
    """Return a note per reason for skipped rows, with the first location, and the rules applied."""
    locations: dict[str, list[str]] = defaultdict(list)
    for row in predictions.rejected:
        locations[row.reason].append(row.location)
    notes = []
    for reason, rows in locations.items():
        fault = f"{len(rows)} of the predictions could not be read"
        notes.append(f"{fault}: {reason} (first: {rows[0]})")
    return [*notes, *predictions.rules]


def reference_notes(reasons: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note of skipped reference rows, or () without any."""
    if not reasons:
        return ()
    counts = json.dumps(dict(reasons), ensure_ascii=False)
    return (f"left out of the reference: {counts}",)
