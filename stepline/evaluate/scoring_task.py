"""What every benchmark shares: the two inputs, which videos count, and values read from JSON with
their place."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from stepline.datasets.files import Node, file_in, read_json
from stepline.datasets.predictions import SegmentPredictions
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic
from stepline.evaluate.report import Scores

PREFIX = "v_"  # before YouTube ids in ActivityNet's and PDVC's files
COUNT_MISSING = (
    "videos without predictions count as wrong; predictions for unknown videos count nowhere"
)
SKIP_MISSING = "videos without predictions are left out of the score, as officially; the rest of the predictions too"


@dataclass(frozen=True)
class ScoringTask:
    """One thing to score: benchmark, protocol and its rule; where the reference and the predictions
    lie.

    subset: only this split of the reference, None for all of it.
    """

    benchmark: str
    protocol: str
    rule: str
    reference: Path
    predictions: Path
    subset: str | None = None

    def scores(
        self,
        videos: Iterable[str],
        items: int,
        statistics: Mapping[str, Statistic],
        columns: Mapping[str, Floats],
        *,
        asked: Iterable[str],
        given: Iterable[str],
        handling: str = COUNT_MISSING,
        notes: Iterable[str] = (),
        sources: Iterable[str] = (),
    ) -> Scores:
        """Return the scores; asked: ids of the reference, given: ids of the predictions, sources:
        of the videos, where several come from one.

        Raises DatasetError when the reference holds nothing to score, the two share no id at all,
        or the convention leaves out videos without predictions and there are none with.
        """
        known, predicted = list(asked), list(given)
        has, there = set(predicted), set(known)
        part = f" in subset {self.subset!r}" if self.subset is not None else ""
        nothing = f"{self.reference}: holds nothing to score{part} for {self.benchmark}; give its annotations"
        if not known:
            raise DatasetError(nothing)
        if predicted and not has & there:
            pair = f"{predicted[0]!r} and {known[0]!r}"
            raise DatasetError(
                f"{self.predictions}: no id is in the reference ({pair}); give predictions by its ids"
            )
        if items == 0 and not predicted and handling != COUNT_MISSING:
            cure = "give predictions, or a convention that counts missing videos"
            raise DatasetError(
                f"{self.predictions}: empty; {self.protocol} scores only videos in both files; {cure}"
            )
        if items == 0:
            raise DatasetError(nothing)
        return Scores(
            self.benchmark,
            self.protocol,
            self.rule,
            tuple(videos),
            items,
            statistics,
            columns,
            tuple(id for id in known if id not in has),
            tuple(id for id in predicted if id not in there),
            handling,
            tuple(notes),
            tuple(sources),
        )


def entries_by_id(path: Path, *names: str) -> dict[str, Node]:
    """Return the values of a JSON object by key; in a folder the file of the first name that is
    there."""
    file = file_in(path, *names) if names else path
    return dict(Node(read_json(file), str(file)).entries())


def read_numbers(node: Node) -> Floats:
    """Return a list of numbers, null as NaN. Raises DatasetError for anything else, and for
    infinity or NaN."""
    return np.array([read_number(row) for row in node.rows()], dtype=np.float64)


def read_number(node: Node) -> float:
    """Return a number, null as NaN. Raises DatasetError for anything else, and for infinity or
    NaN."""
    if node.value is None:
        return float("nan")
    if not isinstance(node.value, int | float) or isinstance(node.value, bool):
        raise node.error("a number or null")
    if not np.isfinite(number := node.number()):
        raise node.error("a finite number, or null where there is none")
    return number


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


def read_spans(node: Node) -> list[tuple[float, float] | None]:
    """Return a list of [start, end] or null. Raises DatasetError for anything else, and for
    infinity or NaN."""
    spans = [None if row.value is None else row.pair() for row in node.rows()]
    if not np.isfinite([span for span in spans if span is not None]).all():
        raise node.error("a list of finite [start, end]")
    return spans


def span_centers(spans: Sequence[tuple[float, float] | None]) -> Floats:
    """Return the middle second of each span, NaN where there is none."""
    return np.array([float("nan") if span is None else (span[0] + span[1]) / 2 for span in spans])


def is_matrix_node(node: Node) -> bool:
    """Tell whether a value is a list whose first item is a list."""
    return isinstance(node.value, list) and bool(node.value) and isinstance(node.value[0], list)


def require_length(node: Node, values: Sized, wanted: int, what: str) -> None:
    """Raise DatasetError unless there are as many values as wanted."""
    if len(values) != wanted:
        raise DatasetError(
            f"{node.location}: {len(values)} values for {wanted} {what}; give one, or null, for each"
        )


V = TypeVar("V")


def match_ids(given: Mapping[str, V], known: Iterable[str]) -> dict[str, V]:
    """Return predictions by the reference's ids, where one side writes "v_" before them (PDVC) and
    the other does not.

    Raises DatasetError when two ids become one.
    """
    ids = set(known)
    made: dict[str, V] = {}
    for id, value in given.items():
        other = id.removeprefix(PREFIX) if id.startswith(PREFIX) else PREFIX + id
        name = other if id not in ids and other in ids else id
        if name in made:
            raise DatasetError(f"predictions: {id!r} and {other!r} are one video; keep one of them")
        made[name] = value
    return made


def prediction_notes(predictions: SegmentPredictions) -> tuple[str, ...]:
    """Return a note for each reason why rows could not be read, with the first place, and the rules
    that were used."""
    places: dict[str, list[str]] = defaultdict(list)
    for row in predictions.rejected:
        places[row.reason].append(row.location)
    unread = [
        f"{len(where)} of the predictions could not be read: {why} (first: {where[0]})"
        for why, where in places.items()
    ]
    return (*unread, *predictions.rules)


def reference_notes(reasons: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note of reference rows that the reader left out, none where it kept all."""
    return (
        (f"left out of the reference: {json.dumps(dict(reasons), ensure_ascii=False)}",)
        if reasons
        else ()
    )
