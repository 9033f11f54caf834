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
        subset: name of the split of the reference that is scored. None: all splits.
        cut: "pdvc" keeps PDVC's best-ranked proposals, as many as PDVC predicts, as PDVC does
            before scoring. None: all proposals are scored.
    """

    benchmark: str
    protocol: str
    rule: str
    reference: Path
    predictions: Path
    subset: str | None
    cut: Cut | None

    def make_scores(
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
        """Return the scores, together with the lists of missing and extra videos.

        Args:
            statistics: metric name -> statistic over the V scored videos.
            columns: column name -> (V,) one number per scored video.
            items: number of counted items (sentences, steps, segments or clips).
            reference_ids: ids of the videos that have a reference.
            predicted_ids: ids of the videos that have predictions.
            handling: sentence on how videos without predictions are scored. Under the SKIP rules
                the scored videos are those in both files, else all videos of the reference.
            notes: remarks that are printed with the scores.

        Raises DatasetError when the reference holds nothing to score, when the two files share no
        id, or when the convention scores only videos in both files and there are no predictions.
        """
        expected = dict.fromkeys(reference_ids)
        predicted = dict.fromkeys(predicted_ids)
        shared = tuple(id for id in expected if id in predicted)
        if expected and predicted and not shared:
            raise DatasetError(
                f"{self.predictions}: no id is in the reference ({next(iter(predicted))!r} and "
                f"{next(iter(expected))!r}); give predictions by its ids"
            )
        if expected and items == 0 and not predicted and handling != COUNT_MISSING:
            raise DatasetError(
                f"{self.predictions}: empty; {self.protocol} scores only videos in both files; "
                "give predictions, or a convention that counts missing videos"
            )
        if not expected or items == 0:
            part = f" in subset {self.subset!r}" if self.subset is not None else ""
            raise DatasetError(
                f"{self.reference}: holds nothing to score{part} for {self.benchmark}"
                "; give its annotations"
            )
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
    """Return video id -> JSON value, from a file that holds one JSON object."""
    return dict(read_node(path).entries())


def read_numbers(node: Node, count: int | None = None, noun: str = "values") -> Floats:
    """Return a JSON list of numbers as an array (N,), with NaN for null.

    Args:
        node: the JSON list.
        count: the required N. None: any N.
        noun: plural of what the list gives one number for, for the error message.

    Raises DatasetError for any other value, for infinity or NaN, and for another length than
    `count`.
    """
    numbers = np.array([read_number(row) for row in node.rows()], dtype=np.float64)
    if count is not None:
        require_length(node, numbers, count, noun)
    return numbers


def read_number(node: Node) -> float:
    """Return a JSON number, NaN for null. Raises DatasetError for other values and infinity."""
    if node.value is None:
        return float("nan")
    if not is_number(node.value):
        raise node.error("a number or null")
    if not np.isfinite(number := node.number()):
        raise node.error("a finite number, or null for a missing one")
    return number


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number. true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_matrix(node: Node) -> Floats:
    """Return a JSON list of N lists of M numbers as an array (N, M).

    Raises DatasetError for any other value.
    """
    try:
        array = np.asarray(node.value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise node.error("a list of equally long lists of numbers") from error
    if array.ndim != 2 or not np.isfinite(array).all():
        raise node.error("a list of equally long lists of finite numbers")
    return array


def is_matrix_node(node: Node) -> bool:
    """Return whether a JSON value is a list whose first item is a list."""
    value = node.value
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def require_length(node: Node, values: Sized, count: int, noun: str) -> None:
    """Raise DatasetError unless a JSON value has the required length.

    Args:
        node: the JSON value, for the location in the message.
        values: what was read from it.
        count: the required length.
        noun: plural of what the values are for, for the message.
    """
    if len(values) != count:
        raise DatasetError(
            f"{node.location}: {len(values)} values for {count} {noun}; give one, or null, for each"
        )


V = TypeVar("V")


def match_ids(predictions: Mapping[str, V], ids: Iterable[str]) -> dict[str, V]:
    """Return the predictions by the video ids of the reference.

    Ids also match if only one side writes PDVC's prefix "v_".

    Args:
        predictions: video id -> prediction.
        ids: video ids of the reference.

    Raises DatasetError when two predicted ids become one.
    """
    reference_ids = set(ids)
    matched: dict[str, V] = {}
    for id, value in predictions.items():
        # The id as the other side may write it.
        other = id.removeprefix(ID_PREFIX) if id.startswith(ID_PREFIX) else f"{ID_PREFIX}{id}"
        name = other if id not in reference_ids and other in reference_ids else id
        if name in matched:
            raise DatasetError(f"predictions: {id!r} and {other!r} are one video; keep one of them")
        matched[name] = value
    return matched


def prediction_notes(predictions: SegmentPredictions) -> list[str]:
    """Return notes on how the predictions were read.

    There is one note per reason for unreadable rows, with the first location, and one per rule that
    the reader applied.
    """
    locations: dict[str, list[str]] = defaultdict(list)
    for row in predictions.rejected:
        locations[row.reason].append(row.location)
    notes = []
    for reason, rows in locations.items():
        notes.append(
            f"{len(rows)} of the predictions could not be read: {reason} (first: {rows[0]})"
        )
    return [*notes, *predictions.rules]


def reference_notes(reasons: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note on the rejected rows of the reference, () if none were rejected.

    reasons: reason -> number of rejected rows.
    """
    if not reasons:
        return ()
    counts = json.dumps(dict(reasons), ensure_ascii=False)
    return (f"left out of the reference: {counts}",)
