"""Common parts of all benchmarks: inputs, selection of videos, and checked JSON values."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

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


@dataclass(frozen=True)
class ScoringTask:
    """The files and options of one evaluation.

    Attributes:
        benchmark: name of the benchmark.
        protocol: name of the scoring convention.
        rule: text of the scoring convention.
        reference: file or folder of the annotations.
        predictions: file or folder of the predictions.
        subset: only this split of the reference, None for all of it.
        cut: "pdvc" ranks and cuts PDVC's proposals before they are scored.
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
        """Return the scores, with the missing and the extra videos.

        Args:
            statistics: name -> statistic over the scored videos.
            columns: name -> (V,) numbers per scored video.
            items: number of counted items (sentences, steps, segments, clips).
            reference_ids: ids of the videos with a reference.
            predicted_ids: ids of the videos with predictions.
            handling: what is done with videos without predictions. The SKIP rules leave them out.
            notes: printed with the scores.

        Raises DatasetError when the reference holds nothing to score, when the two share no id, or
        when the convention scores only videos in both files and there are no predictions.
        """
        expected = dict.fromkeys(reference_ids)
        predicted = dict.fromkeys(predicted_ids)
        shared = tuple(id for id in expected if id in predicted)
        if expected and predicted and not shared:
            pair = f"{next(iter(predicted))!r} and {next(iter(expected))!r}"
            fault = f"{self.predictions}: no id is in the reference ({pair})"
            raise DatasetError(f"{fault}; give predictions by its ids")
        if expected and items == 0 and not predicted and handling != COUNT_MISSING:
            fault = f"{self.predictions}: empty; {self.protocol} scores only videos in both files"
            cure = "give predictions, or a convention that counts missing videos"
            raise DatasetError(f"{fault}; {cure}")
        if not expected or items == 0:
            part = f" in subset {self.subset!r}" if self.subset is not None else ""
            fault = f"{self.reference}: holds nothing to score{part} for {self.benchmark}"
            raise DatasetError(f"{fault}; give its annotations")
        is_skipping = handling in (SKIP_MISSING, SKIP_MISSING_VIDEOS)
        return Scores(
            self.benchmark,
            self.protocol,
            self.rule,
            shared if is_skipping else tuple(expected),
            int(items),
            statistics,
            columns,
            missing=tuple(id for id in expected if id not in predicted),
            extra=tuple(id for id in predicted if id not in expected),
            handling=handling,
            notes=tuple(notes),
        )


def entries_by_id(path: Path) -> dict[str, Node]:
    """Return video id -> JSON value of a file that holds one object."""
    return dict(read_node(path).entries())


def read_numbers(node: Node, count: int | None = None, noun: str = "values") -> Floats:
    """Return a list of numbers (N,), null as NaN.

    Args:
        node: the JSON list.
        count: the N that is required. None: any.
        noun: what the list has one number for, in the error.

    Raises DatasetError for anything else, for infinity or NaN, and where it is not `count` long.
    """
    numbers = np.array([read_number(row) for row in node.rows()], dtype=np.float64)
    if count is not None:
        require_length(node, numbers, count, noun)
    return numbers


def read_number(node: Node) -> float:
    """Return a number, null as NaN. Raises DatasetError for anything else, infinity or NaN."""
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
    """Return a list of equally long lists of numbers as (N, M). Raises DatasetError otherwise."""
    try:
        array = np.asarray(node.value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise node.error("a list of equally long lists of numbers") from error
    if array.ndim != 2 or not np.isfinite(array).all():
        raise node.error("a list of equally long lists of finite numbers")
    return array


def is_matrix_node(node: Node) -> bool:
    """Return whether a value is a list whose first item is a list."""
    value = node.value
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def require_length(node: Node, values: Sized, count: int, noun: str) -> None:
    """Raise DatasetError unless there are `count` values. noun: what the values are for."""
    if len(values) != count:
        counts = f"{len(values)} values for {count} {noun}"
        raise DatasetError(f"{node.location}: {counts}; give one, or null, for each")


V = TypeVar("V")


def match_ids(predictions: Mapping[str, V], ids: Iterable[str]) -> dict[str, V]:
    """Return predictions by the ids of the reference, also where only one side writes PDVC's "v_".

    Args:
        predictions: video id -> prediction.
        ids: video ids of the reference.

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
    """Return a note per reason for unreadable rows, with the first location, and the rules applied."""
    locations: dict[str, list[str]] = defaultdict(list)
    for row in predictions.rejected:
        locations[row.reason].append(row.location)
    notes = []
    for reason, rows in locations.items():
        fault = f"{len(rows)} of the predictions could not be read"
        notes.append(f"{fault}: {reason} (first: {rows[0]})")
    return [*notes, *predictions.rules]


def reference_notes(reasons: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note on the rejected rows of the reference, or () without any.

    reasons: reason -> number of rows.
    """
    if not reasons:
        return ()
    counts = json.dumps(dict(reasons), ensure_ascii=False)
    return (f"left out of the reference: {counts}",)
