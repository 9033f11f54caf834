"""HT-Step as a benchmark: R@1 and recall at overlap of steps, and article-grounding mAP.

The reference is the release's folder (annotations.json, taxonomy.csv). Predictions are its CSV
video-id,t-start,t-end,label,score (all metrics; the second of a step is the middle of its best-scored segment), or
JSON by video id (R@1 only): one second a step, in the order of the taxonomy's steps of the video's variation, or
{step id or headline: second}.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stepline.datasets.htstep import ANNOTATIONS, TAXONOMY, read_taxonomy
from stepline.datasets.node import Node
from stepline.datasets.source import find, one_file, read_csv
from stepline.errors import DatasetError
from stepline.evaluate.ht_step import Located, Taxonomy, Truth, grounding_map, unrepeated
from stepline.evaluate.protocols.case import Case, by_id, length, number_or_null, numbers
from stepline.evaluate.report import Scores
from stepline.evaluate.spans import Fit, as_spans, grounding_fit, hit, overlap_statistics
from stepline.evaluate.statistics import Floats, Ratio, Statistic

CSV_COLUMNS = ("video-id", "t-start", "t-end", "label", "score")


@dataclass(frozen=True)
class _Reference:
    taxonomy: Taxonomy
    headlines: Mapping[int, str]
    truths: dict[str, Truth]


@dataclass
class _Rows:
    """One video's rows of the CSV."""

    segments: list[tuple[float, float]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def located(self, allowed: frozenset[int]) -> Located:
        """Return the rows whose step may be predicted."""
        kept = [index for index, step in enumerate(self.steps) if step in allowed]
        return Located(
            as_spans([self.segments[index] for index in kept], "ht-step"),
            np.array([self.steps[index] for index in kept], dtype=np.int64),
            np.array([self.scores[index] for index in kept], dtype=np.float64),
            np.array([self.order[index] for index in kept], dtype=np.int64),
        )


def score(case: Case) -> Scores:
    """Return R@1, and with segments also recall at overlap, mean overlap and both mAPs."""
    reference = _reference(case)
    if case.predictions.name.endswith((".csv", ".csv.gz", ".tsv")):
        return _score_segments(case, reference)
    given = by_id(case.predictions)
    seconds = {id: _seconds(given[id], id, reference) for id in reference.truths if id in given}
    right, counted = _recall(reference.truths, seconds)
    notes = ["no mAP and no overlap: the predictions are seconds, not segments"]
    strange = [key for id in seconds for key in _strange(given[id], id, reference)]
    if strange:
        notes.append(f"{len(strange)} seconds name no single step of their video's article variation: {strange[0]!r}")
    return case.scores(
        reference.truths, int(counted.sum()), {"R@1": Ratio(right, counted)}, {"hits": right, "steps": counted},
        asked=reference.truths, given=given, notes=notes,
    )  # fmt: skip


def _score_segments(case: Case, reference: _Reference) -> Scores:
    rows = _read_rows(case.predictions)
    found = {
        id: rows[id].located(reference.taxonomy.candidates(truth))
        for id, truth in reference.truths.items()
        if id in rows
    }
    best = {id: _best(located) for id, located in found.items()}
    middles = {id: {step: float(span.mean()) for step, span in spans.items()} for id, spans in best.items()}
    right, counted = _recall(reference.truths, middles)
    statistics: dict[str, Statistic] = {"R@1": Ratio(right, counted)}
    columns = {"hits": right, "steps": counted}
    fits = [_fit(truth, best.get(id, {})) for id, truth in reference.truths.items()]
    statistics |= overlap_statistics(fits, counted)
    columns["overlap"] = np.array([fit.overlaps.sum() for fit in fits])
    statistics["mAP"] = grounding_map(reference.truths, found)
    statistics["mAP label-aware"] = grounding_map(reference.truths, found, by_label=True)
    total = sum(len(row.steps) for row in rows.values())
    kept = sum(len(located.steps) for located in found.values())
    notes = [f"{kept} of {total} predicted segments are of steps of their video's article variation"]
    return case.scores(
        reference.truths, int(counted.sum()), statistics, columns, asked=reference.truths, given=rows, notes=notes
    )


def _recall(truths: Mapping[str, Truth], seconds: Mapping[str, Mapping[int, float]]) -> tuple[Floats, Floats]:
    """Return (V,) hits and (V,) annotated steps; a step counts once, hit when its second is in any instance."""
    right, counted = np.zeros(len(truths)), np.zeros(len(truths))
    for index, (id, truth) in enumerate(truths.items()):
        steps = np.array(truth.steps, dtype=np.int64)
        for step in sorted(set(truth.steps)):
            counted[index] += 1
            second = seconds.get(id, {}).get(step)
            right[index] += second is not None and hit(second, truth.segments[steps == step], closed=True)
    return right, counted


def _fit(truth: Truth, best: Mapping[int, Floats]) -> Fit:
    steps = np.array(truth.steps, dtype=np.int64)
    wanted = sorted(set(truth.steps))
    instances = [truth.segments[steps == step] for step in wanted]
    return grounding_fit([best.get(step) for step in wanted], instances)


def _best(located: Located) -> dict[int, Floats]:
    """Return the best-scored segment of each step, of equal scores the first in the file."""
    best: dict[int, Floats] = {}
    for n in np.lexsort((located.order, -located.scores)):
        best.setdefault(int(located.steps[n]), located.segments[n])
    return best


def _reference(case: Case) -> _Reference:
    file = one_file(case.reference, ANNOTATIONS)
    table = find(file.parent, TAXONOMY)
    if table is None:
        raise DatasetError(f"{file.parent}: holds no {TAXONOMY}; put the release's beside {file.name}")
    headlines = {_step(id, str(table)): row for id, row in read_taxonomy(table).items()}
    taxonomy = Taxonomy(
        {id: row.activity for id, row in headlines.items()}, {id: row.variation for id, row in headlines.items()}
    )
    truths = {}
    for id, video in by_id(file).items():
        subset = video.get("subset")
        if case.subset is None or (subset is not None and subset.value == case.subset):
            truth = _truth(video)
            taxonomy.candidates(truth)  # an annotation that does not fit its taxonomy is an error
            if truth.steps:
                truths[id] = truth
    return _Reference(taxonomy, {id: row.text for id, row in headlines.items()}, truths)


def _truth(video: Node) -> Truth:
    rows = list(video["annotations"].rows())
    segments = as_spans([list(row["segment"].pair()) for row in rows], video.place)
    kept, steps = unrepeated(segments, [_step(row["id"].name(), row.place) for row in rows])
    return Truth(video["activity"].text(), kept, steps)


def _step(id: str, place: str) -> int:
    try:
        return int(id)
    except ValueError as error:
        raise DatasetError(f"{place}: step {id[:40]!r} is not a whole number; give a global_step_index") from error


def _seconds(node: Node, id: str, reference: _Reference) -> dict[int, float]:
    steps = sorted(reference.taxonomy.candidates(reference.truths[id]))
    if isinstance(node.value, dict):
        named = _named(id, reference)
        pairs = [(named[key], number_or_null(value)) for key, value in node.entries() if key in named]
    else:
        seconds = numbers(node)
        length(node, seconds, len(steps), "steps of the article's variation")
        pairs = list(zip(steps, seconds.tolist(), strict=True))
    return {step: second for step, second in pairs if not np.isnan(second)}


def _named(id: str, reference: _Reference) -> dict[str, int]:
    """Return the steps of the video's variation by id and by headline, where only one step has that headline."""
    steps = reference.taxonomy.candidates(reference.truths[id])
    count = Counter(reference.headlines[step] for step in steps)
    headlines = {reference.headlines[step]: step for step in steps if count[reference.headlines[step]] == 1}
    return headlines | {str(step): step for step in steps}


def _strange(node: Node, id: str, reference: _Reference) -> list[str]:
    """Return the names that stand for no step of the video's variation, or for several."""
    named = _named(id, reference)
    return [key for key in node.value if key not in named] if isinstance(node.value, dict) else []


def _read_rows(path: Path) -> dict[str, _Rows]:
    rows: dict[str, _Rows] = defaultdict(_Rows)
    for line, row in read_csv(path, CSV_COLUMNS):
        try:
            start, end, value = float(row["t-start"]), float(row["t-end"]), float(row["score"])
        except ValueError as error:
            raise DatasetError(f"{path}: line {line}: {error}; t-start, t-end and score are numbers") from error
        if not np.isfinite((start, end, value)).all():
            raise DatasetError(f"{path}: line {line} holds NaN or infinity; give seconds and a score")
        video = rows[row["video-id"]]
        video.segments.append((start, end))
        video.steps.append(_step(row["label"], f"{path}: line {line}"))
        video.scores.append(value)
        video.order.append(line)
    return dict(rows)
