"""HTM-Align as a benchmark: R@1 of alignable sentences and ROC-AUC, of alignability or of narration detection.

Predictions, by video id: a matrix of scores (sentences, seconds); or one second a sentence, null where it is not
placed; or {"scores": matrix, "seconds": [...], "spans": [[start, end] or null], "alignability": [...], "shown": [...]}
with what there is of these. Spans give recall at overlap, and where there are no seconds their middles are those.
alignability scores a sentence against the whole video, shown against the clip in which it is said (see `narration`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from stepline.datasets.node import Node
from stepline.datasets.source import find, read_json
from stepline.errors import DatasetError
from stepline.evaluate.htm_align import Annotation, Convention, best_seconds, hide_zeros, hits, windowed
from stepline.evaluate.narration import alignable_labels, narration_labels
from stepline.evaluate.protocols.case import SKIP, Case, by_id, is_matrix, length, matrix, middles, numbers, placed
from stepline.evaluate.ranking import Area, AveragePrecision
from stepline.evaluate.report import Scores
from stepline.evaluate.spans import Fit, grounding_fit, overlap_statistics
from stepline.evaluate.statistics import Floats, Ratio, Statistic

FILE = "htm_align.json"
SPOKEN = ("sentencified_htm_370k.json", "sentencified_htm_1200k.json", "sentencified_htm.json")


@dataclass(frozen=True)
class _Found:
    """What a system says of one video: seconds (K,), K spans, one score a sentence (K,); None where it gives none."""

    seconds: Floats | None
    spans: list[tuple[float, float] | None] | None
    ranking: Floats | None


def score(case: Case, *, convention: Convention = "tan", windows: bool = False) -> Scores:
    """Return R@1 and alignability ROC-AUC."""
    truths, given = annotations(case), by_id(case.predictions)
    kept = {id: truth for id, truth in truths.items() if convention == "tan" or truth.counted}
    prepare = partial(_prepared, convention=convention, windows=windows)
    found = {id: _found(given[id], truth, prepare, "alignability") for id, truth in kept.items() if id in given}
    right, counted = np.zeros(len(kept)), np.array([float(truth.counted) for truth in kept.values()])
    for index, (id, truth) in enumerate(kept.items()):
        if id in found and found[id].seconds is not None:
            right[index] = hits(found[id].seconds, truth.spans, convention)[truth.alignable].sum()  # type: ignore[arg-type]
    statistics: dict[str, Statistic] = {}
    notes = [f"{len(truths) - len(kept)} videos without an alignable sentence left out"] if kept != truths else []
    if all(entry.seconds is not None for entry in found.values()):
        statistics["R@1"] = Ratio(right, counted)
    if found and all(entry.spans is not None for entry in found.values()):
        statistics |= overlap_statistics([_fit(found.get(id), truth) for id, truth in kept.items()], counted)
    if convention == "tan":
        labels = {id: alignable_labels(truth) for id, truth in kept.items()}
        notes += _rank(statistics, kept, found, labels, "alignable")
    columns = {"hits": right, "alignable": counted}
    known = [id for id in given if id in kept or id not in truths]
    return case.scores(kept, int(counted.sum()), statistics, columns, asked=kept, given=known, notes=notes)


def score_narration(case: Case) -> Scores:
    """Return ROC-AUC and average precision of narration detection.

    Raises DatasetError unless every video has `shown`: the best score over the video would be alignability's.
    """
    truths, given = annotations(case), by_id(case.predictions)
    kept = {id: truth for id, truth in truths.items() if id in given}
    spoken = _spoken(case)
    notes = [] if spoken else ["no transcript beside the annotations: alignable sentences are taken as said when shown"]
    labels = {id: narration_labels(truth, _times(spoken, id)) for id, truth in kept.items()}
    found = {id: _found(given[id], truth, lambda scores, _: scores, "shown") for id, truth in kept.items()}
    unranked = next((id for id, entry in found.items() if entry.ranking is None), None)
    if unranked is not None:
        raise DatasetError(f'{given[unranked].place}: no `shown`; give {{"shown": [a score for each sentence]}}')
    statistics: dict[str, Statistic] = {}
    notes += _rank(statistics, kept, found, labels, "shown", precision=True)
    columns = {"sentences": np.array([float(len(truth.spans)) for truth in kept.values()])}
    items = int(columns["sentences"].sum())
    return case.scores(kept, items, statistics, columns, asked=truths, given=given, handling=SKIP, notes=notes)


def annotations(case: Case) -> dict[str, Annotation]:
    """Return the annotated videos by id. Raises DatasetError for rows of another form."""
    made = {}
    for id, node in by_id(case.reference, FILE).items():
        try:
            made[id] = Annotation.from_rows([[cell.value for cell in row.rows()] for row in node.rows()])
        except DatasetError as error:
            raise DatasetError(f"{node.place}: {error}") from error
    return made


def _fit(found: _Found | None, truth: Annotation) -> Fit:
    """Return how the spans of alignable sentences fit; all are missing where the video is."""
    spans = found.spans if found is not None and found.spans is not None else [None] * len(truth.spans)
    rows = np.flatnonzero(truth.alignable)
    return grounding_fit([spans[k] for k in rows], [truth.spans[[k]] for k in rows])


def _prepared(scores: Floats, truth: Annotation, *, convention: Convention, windows: bool) -> Floats:
    if windows:
        return windowed(scores, truth)
    return hide_zeros(scores) if convention == "tan" else scores


def _found(node: Node, truth: Annotation, prepare: Callable[[Floats, Annotation], Floats], kind: str) -> _Found:
    parts = node if isinstance(node.value, dict) else None
    whole = parts.get("scores") if parts else (node if is_matrix(node) else None)
    list_of = parts.get("seconds") if parts else (None if is_matrix(node) else node)
    ranks = parts.get(kind) if parts else None
    boxes = parts.get("spans") if parts else None
    seconds = spans = ranking = None
    if boxes is not None:
        spans = placed(boxes)
        length(boxes, spans, len(truth.spans), "sentences")
        seconds = middles(spans)
    if whole is not None:
        scores = matrix(whole)
        length(whole, scores, len(truth.spans), "sentences")
        scores = prepare(scores, truth)
        seconds = best_seconds(scores)
        ranking = scores.max(axis=1) if kind == "alignability" else None
    if list_of is not None:
        seconds = numbers(list_of)
        length(list_of, seconds, len(truth.spans), "sentences")
    if ranks is not None:
        ranking = numbers(ranks)
        length(ranks, ranking, len(truth.spans), "sentences")
    return _Found(seconds, spans, ranking)


def _rank(
    statistics: dict[str, Statistic], truths: dict[str, Annotation], found: dict[str, _Found],
    labels: dict[str, np.typing.NDArray[np.bool_]], what: str, *, precision: bool = False,
) -> list[str]:  # fmt: skip
    """Add the ranking scores where every predicted video gives them; return what to note."""
    if not found or any(entry.ranking is None for entry in found.values()):
        return [f"no ROC-AUC: the predictions give no score of {what} for every video"]
    order = {id: index for index, id in enumerate(truths)}
    scores = [found[id].ranking for id in truths if id in found]
    labelled = np.concatenate([labels[id] for id in truths if id in found]).astype(np.float64)
    ranked = np.concatenate(scores).astype(np.float64)  # type: ignore[arg-type]
    if np.isnan(ranked).any():
        raise DatasetError(f"a score of {what} is null; a ranking needs a number for every sentence")
    video = np.concatenate([np.full(len(labels[id]), order[id]) for id in truths if id in found])
    statistics[f"ROC-AUC {what}"] = Area(labelled, ranked, video, len(truths))
    if precision:
        statistics[f"AP {what}"] = AveragePrecision(labelled, ranked, video, len(truths))
    return ["ROC-AUC is over the videos with predictions only"] if len(found) < len(truths) else []


def _spoken(case: Case) -> dict[str, Node]:
    file = find(case.reference, *SPOKEN) if case.reference.is_dir() else None
    return dict(Node(read_json(file), str(file)).entries()) if file else {}


def _times(spoken: dict[str, Node], id: str) -> Floats | None:
    if not spoken:
        return None
    if id not in spoken:
        raise DatasetError(f"{id}: not in the transcript beside the annotations; give the transcript of all videos")
    return np.stack([numbers(spoken[id]["start"]), numbers(spoken[id]["end"])], axis=1)
