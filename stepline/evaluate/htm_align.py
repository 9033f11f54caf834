"""HTM-Align: recall at 1 of alignable sentences, ROC-AUC of alignability, and narration detection.

K sentences, T feature rows of one second each. Two rules differ in what is a hit and in which
videos count:

    tan     floor(start) <= row <= ceil(end), both ends included; every video (TAN, eval_zeroshot_align)
    nasva   start <= row <= end, nothing rounded; videos without an alignable sentence are left out (NaSVA, train.py)

Of equal scores the first row is taken. Both pool the sentences of all videos.

Two labels of a sentence, which are not the same:

Alignability (TAN, HTM-Align): the item is a sentence and its whole video; it is positive when ANY
part of the video shows what it says, early, late or while it is said. The score is the model's best
over the video.

Narration detection (WYS2, section 3 and VND-Test): the item is a sentence and the clip in which it
is SAID; it is positive when that clip shows the action. Something shown only ten seconds later is
alignable and still negative here. VND-Test gives these labels itself. For HTM-Align WYS2 does not
say how its labels follow from the alignable ones; here a sentence is positive when it is alignable
and the span where it is shown overlaps the span where it is said. The official file holds the
spoken times of sentences that are not alignable only, so this needs the transcript
(sentencified_htm); without it, an alignable sentence is taken at its annotated span and is always
positive.

Predictions, by video id: a matrix of scores (sentences, seconds); or one second a sentence, null
where it is not placed; or {"scores": matrix, "seconds": [...], "spans": [[start, end] or null],
"alignability": [...], "shown": [...]} with what there is of these. Spans give recall at overlap,
and where there are no seconds their middles are those.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets.files import Node, find_file, read_json
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Ratio, Statistic
from stepline.evaluate.ranking import AveragePrecision, RocAuc
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    SKIP_MISSING,
    ScoringTask,
    entries_by_id,
    is_matrix_node,
    read_matrix,
    read_numbers,
    read_spans,
    require_length,
    span_centers,
)
from stepline.evaluate.temporal_grounding import (
    Pairs,
    SpanOverlaps,
    grounding_overlaps,
    overlap_statistics,
    span_array,
)

HitRule: TypeAlias = Literal["tan", "nasva"]

NEVER = -6e4  # TAN's score of a second that no window covered, and of one that scores exactly 0
FILE = "htm_align.json"
SPOKEN = ("sentencified_htm_370k.json", "sentencified_htm_1200k.json", "sentencified_htm.json")


@dataclass(frozen=True)
class Annotation:
    """One video of HTM-Align: alignable: (K,) bool; spans: (K, 2) seconds; texts: K.

    The spans of alignable sentences were set by hand; the others keep the times at which they are
    spoken.
    """

    alignable: npt.NDArray[np.bool_]
    spans: Floats
    texts: tuple[str, ...]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[object]]) -> "Annotation":
        """Return the annotation of the file's rows [alignable 0/1, start, end, text]. Raises
        DatasetError."""
        for row in rows:
            if len(row) != 4 or row[0] not in (0, 1) or not isinstance(row[3], str):
                raise DatasetError(
                    f"{str(row)[:60]}: not [alignable 0 or 1, start, end, text]; see docs/evaluation.md"
                )
        spans = span_array([[row[1], row[2]] for row in rows], "htm-align")  # type: ignore[list-item]
        return cls(
            np.array([bool(row[0]) for row in rows], dtype=bool),
            spans,
            tuple(str(row[3]) for row in rows),
        )

    @property
    def alignable_count(self) -> int:
        """How many sentences are alignable."""
        return int(self.alignable.sum())


def hits_span(seconds: Floats, spans: Floats, convention: HitRule = "tan") -> npt.NDArray[np.bool_]:
    """Return (K,): whether each second, (K,), hits its span; a NaN second (not placed) never
    does."""
    if convention == "nasva":
        return (spans[:, 0] <= seconds) & (seconds <= spans[:, 1])
    return (np.floor(spans[:, 0]) <= seconds) & (seconds <= np.ceil(spans[:, 1]))


def best_seconds(scores: Floats, rate: float = 1.0) -> Floats:
    """Return (K,) the second at which the first best row of (K, T) starts. Raises DatasetError for
    NaN or no rows."""
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise DatasetError(
            f"scores of shape {scores.shape}; give (sentences, seconds) with at least one second"
        )
    if np.isnan(scores).any():
        raise DatasetError("scores hold NaN; give a number for every sentence and second")
    return np.asarray(scores.argmax(axis=1) / rate, dtype=np.float64)


# ---------------------------------------------------------------- windows of TAN


@dataclass(frozen=True)
class TanWindow:
    """Rows [start, end) of the video and sentences [first, last] that are scored together."""

    start: int
    end: int
    first: int
    last: int


def tan_windows(annotation: Annotation, rows: int, length: int = 64) -> list[TanWindow]:
    """Return TAN's overlapping windows: `length` rows, a quarter of that apart.

    A window holds the sentences between the first and the last NOT alignable one whose middle lies
    within `length` before and twice `length` after its start: the times of alignable ones would
    give the answer away. The first four windows begin with sentence 0 and the last four end with
    the last (the first four win where a window is both). A window without a sentence that is not
    alignable is left out. Source: TAN, eval_zeroshot_align.
    """
    middle = annotation.spans.mean(axis=1)
    starts = np.arange(0, rows - length // 2, length // 4)
    windows = []
    for index, start in enumerate(starts):
        near = ~annotation.alignable & (start - length <= middle) & (middle <= start + 2 * length)
        if not near.any():
            continue
        first, last = int(np.flatnonzero(near)[0]), int(np.flatnonzero(near)[-1])
        if index <= 3:
            first = 0
        elif index >= len(starts) - 4:
            last = min(rows, len(near) - 1)  # TAN ends at the number of rows, not of sentences
        windows.append(TanWindow(int(start), min(rows, int(start) + length), first, last))
    return windows


def stitch_windows(
    windows: Sequence[tuple[TanWindow, Floats]], sentences: int, rows: int
) -> Floats:
    """Return (K, T) scores: the mean over the windows that cover a cell, NEVER where none does or
    the mean is 0.

    windows: each with its scores (last - first + 1, end - start).
    """
    total, count = np.zeros((sentences, rows)), np.zeros((sentences, rows))
    for window, scores in windows:
        cells = slice(window.first, window.last + 1), slice(window.start, window.end)
        if total[cells].shape != scores.shape:
            raise DatasetError(
                f"window {window}: scores of shape {scores.shape}, not {total[cells].shape}"
            )
        total[cells] += scores
        count[cells] += 1
    return hide_zeros(total / np.maximum(count, 1))


def hide_zeros(scores: Floats) -> Floats:
    """Return scores in which 0 means "not scored", as in TAN's evaluator: such a cell is never the
    best one."""
    return np.where(scores == 0, NEVER, scores)


def keep_window_seconds(scores: Floats, annotation: Annotation) -> Floats:
    """Return what TAN's windows leave of global scores (K, T): only seconds that a window with the
    sentence covers."""
    sentences, rows = scores.shape
    parts = [
        (window, scores[window.first : window.last + 1, window.start : window.end])
        for window in tan_windows(annotation, rows)
    ]
    return stitch_windows(parts, sentences, rows)


# ---------------------------------------------------------------- labels


def alignable_labels(annotation: Annotation) -> npt.NDArray[np.bool_]:
    """Return (K,): whether any part of the video shows what the sentence says."""
    return annotation.alignable


def narration_labels(annotation: Annotation, spoken: Pairs | None = None) -> npt.NDArray[np.bool_]:
    """Return (K,): whether the sentence is shown while it is said. spoken: (K, 2) seconds of the
    transcript.

    Raises DatasetError when there is not one spoken span a sentence.
    """
    if spoken is None:
        return annotation.alignable
    said = span_array(spoken, "spoken")
    if len(said) != len(annotation.spans):
        raise DatasetError(
            f"{len(said)} spoken spans for {len(annotation.spans)} sentences; give the same transcript"
        )
    start = np.maximum(said[:, 0], annotation.spans[:, 0])
    end = np.minimum(said[:, 1], annotation.spans[:, 1])
    return np.asarray(annotation.alignable & (end > start))


# ---------------------------------------------------------------- the score


@dataclass(frozen=True)
class _Prediction:
    """What a system says of one video: seconds (K,), K spans, one score a sentence (K,); None where
    it gives none."""

    seconds: Floats | None
    spans: list[tuple[float, float] | None] | None
    ranking: Floats | None


def score(scoring: ScoringTask, *, convention: HitRule = "tan", windows: bool = False) -> Scores:
    """Return R@1 and alignability ROC-AUC."""
    truths, given = annotations(scoring), entries_by_id(scoring.predictions)
    kept = {
        id: truth for id, truth in truths.items() if convention == "tan" or truth.alignable_count
    }

    def prepare(scores: Floats, truth: Annotation) -> Floats:
        if windows:
            return keep_window_seconds(scores, truth)
        return hide_zeros(scores) if convention == "tan" else scores

    found = {
        id: _read_prediction(given[id], truth, prepare, "alignability")
        for id, truth in kept.items()
        if id in given
    }
    right, counted = (
        np.zeros(len(kept)),
        np.array([float(truth.alignable_count) for truth in kept.values()]),
    )
    for index, (id, truth) in enumerate(kept.items()):
        if id in found and found[id].seconds is not None:
            seconds = found[id].seconds
            hits = hits_span(seconds, truth.spans, convention)  # type: ignore[arg-type]
            right[index] = hits[truth.alignable].sum()
    statistics: dict[str, Statistic] = {}
    notes = (
        [f"{len(truths) - len(kept)} videos without an alignable sentence left out"]
        if kept != truths
        else []
    )
    if all(entry.seconds is not None for entry in found.values()):
        statistics["R@1"] = Ratio(right, counted)
    if found and all(entry.spans is not None for entry in found.values()):
        statistics |= overlap_statistics(
            [_sentence_overlaps(found.get(id), truth) for id, truth in kept.items()], counted
        )
    if convention == "tan":
        labels = {id: alignable_labels(truth) for id, truth in kept.items()}
        notes += _add_ranking_scores(statistics, kept, found, labels, "alignable")
    columns = {"hits": right, "alignable": counted}
    known = [id for id in given if id in kept or id not in truths]
    return scoring.scores(
        kept, int(counted.sum()), statistics, columns, asked=kept, given=known, notes=notes
    )


def score_narration(scoring: ScoringTask) -> Scores:
    """Return ROC-AUC and average precision of narration detection.

    Raises DatasetError unless every video has `shown`: the best score over the video would be
    alignability's.
    """
    truths, given = annotations(scoring), entries_by_id(scoring.predictions)
    kept = {id: truth for id, truth in truths.items() if id in given}
    spoken = read_transcript(scoring.reference)
    notes = (
        []
        if spoken
        else [
            "no transcript beside the annotations: alignable sentences are taken as said when shown"
        ]
    )
    labels = {id: narration_labels(truth, spoken_times(spoken, id)) for id, truth in kept.items()}
    found = {
        id: _read_prediction(given[id], truth, lambda scores, _: scores, "shown")
        for id, truth in kept.items()
    }
    unranked = next((id for id, entry in found.items() if entry.ranking is None), None)
    if unranked is not None:
        raise DatasetError(
            f'{given[unranked].location}: no `shown`; give {{"shown": [a score for each sentence]}}'
        )
    statistics: dict[str, Statistic] = {}
    notes += _add_ranking_scores(statistics, kept, found, labels, "shown", precision=True)
    columns = {"sentences": np.array([float(len(truth.spans)) for truth in kept.values()])}
    items = int(columns["sentences"].sum())
    return scoring.scores(
        kept,
        items,
        statistics,
        columns,
        asked=truths,
        given=given,
        handling=SKIP_MISSING,
        notes=notes,
    )


def annotations(scoring: ScoringTask) -> dict[str, Annotation]:
    """Return the annotated videos by id. Raises DatasetError for rows of another form."""
    made = {}
    for id, node in entries_by_id(scoring.reference, FILE).items():
        try:
            made[id] = Annotation.from_rows(
                [[cell.value for cell in row.rows()] for row in node.rows()]
            )
        except DatasetError as error:
            raise DatasetError(f"{node.location}: {error}") from error
    return made


def _sentence_overlaps(found: _Prediction | None, truth: Annotation) -> SpanOverlaps:
    """Return how the spans of alignable sentences fit; all are missing where the video is."""
    spans = (
        found.spans if found is not None and found.spans is not None else [None] * len(truth.spans)
    )
    rows = np.flatnonzero(truth.alignable)
    return grounding_overlaps([spans[k] for k in rows], [truth.spans[[k]] for k in rows])


def _read_prediction(
    node: Node, truth: Annotation, prepare: Callable[[Floats, Annotation], Floats], kind: str
) -> _Prediction:
    parts = node if isinstance(node.value, dict) else None
    whole = parts.get("scores") if parts else (node if is_matrix_node(node) else None)
    list_of = parts.get("seconds") if parts else (None if is_matrix_node(node) else node)
    ranks = parts.get(kind) if parts else None
    boxes = parts.get("spans") if parts else None
    seconds = spans = ranking = None
    if boxes is not None:
        spans = read_spans(boxes)
        require_length(boxes, spans, len(truth.spans), "sentences")
        seconds = span_centers(spans)
    if whole is not None:
        scores = read_matrix(whole)
        require_length(whole, scores, len(truth.spans), "sentences")
        scores = prepare(scores, truth)
        seconds = best_seconds(scores)
        ranking = scores.max(axis=1) if kind == "alignability" else None
    if list_of is not None:
        seconds = read_numbers(list_of)
        require_length(list_of, seconds, len(truth.spans), "sentences")
    if ranks is not None:
        ranking = read_numbers(ranks)
        require_length(ranks, ranking, len(truth.spans), "sentences")
    return _Prediction(seconds, spans, ranking)


def _add_ranking_scores(
    statistics: dict[str, Statistic],
    truths: dict[str, Annotation],
    found: dict[str, _Prediction],
    labels: dict[str, np.typing.NDArray[np.bool_]],
    what: str,
    *,
    precision: bool = False,
) -> list[str]:
    """Add the ranking scores where every predicted video gives them; return what to note."""
    if not found or any(entry.ranking is None for entry in found.values()):
        return [f"no ROC-AUC: the predictions give no score of {what} for every video"]
    order = {id: index for index, id in enumerate(truths)}
    scores = [found[id].ranking for id in truths if id in found]
    labelled = np.concatenate([labels[id] for id in truths if id in found]).astype(np.float64)
    ranked = np.concatenate(scores).astype(np.float64)  # type: ignore[arg-type]
    if np.isnan(ranked).any():
        raise DatasetError(
            f"a score of {what} is null; a ranking needs a number for every sentence"
        )
    video = np.concatenate([np.full(len(labels[id]), order[id]) for id in truths if id in found])
    statistics[f"ROC-AUC {what}"] = RocAuc(labelled, ranked, video, len(truths))
    if precision:
        statistics[f"AP {what}"] = AveragePrecision(labelled, ranked, video, len(truths))
    return ["ROC-AUC is over the videos with predictions only"] if len(found) < len(truths) else []


def read_transcript(reference: Path) -> dict[str, Node]:
    """Return the videos of the sentencified transcript beside the annotations in a folder; none
    where it is not."""
    transcript = find_file(reference, *SPOKEN) if reference.is_dir() else None
    return dict(Node(read_json(transcript), str(transcript)).entries()) if transcript else {}


def spoken_times(spoken: Mapping[str, Node], id: str) -> Floats | None:
    """Return (K, 2) seconds in which a video's sentences are spoken; None without a transcript at
    all.

    Raises DatasetError where the transcript lacks the video.
    """
    if not spoken:
        return None
    if id not in spoken:
        raise DatasetError(
            f"{id}: not in the transcript beside the annotations; give the transcript of all videos"
        )
    return np.stack([read_numbers(spoken[id]["start"]), read_numbers(spoken[id]["end"])], axis=1)
