"""HTM-Align: recall at 1 of alignable sentences, ROC-AUC of alignability, and narration detection.

K sentences, T feature rows of one second each. Two rules differ in what is a hit and in which
videos count:

    tan     floor(start) <= row <= ceil(end), both ends included; every video (TAN, eval_zeroshot_align)
    nasva   start <= row <= end, nothing rounded; videos without an alignable sentence are left out (NaSVA, train.py)

Of equal scores the first row is taken. Both pool the sentences of all videos.

Two labels of a sentence, which are not the same:

Alignability (TAN, HTM-Align): the item is a sentence and its whole video. It is positive when ANY
part of the video shows what it says, early, late or while it is said. The score is the model's best
over the video.

Narration detection (WYS2, section 3 and VND-Test): the item is a sentence and the clip in which it
is SAID. It is positive when that clip shows the action. Something shown only ten seconds later is
alignable and still negative here. VND-Test gives these labels itself. For HTM-Align WYS2 does not
say how its labels follow from the alignable ones. Here a sentence is positive when it is alignable
and the span where it is shown overlaps the span where it is said. The official file holds the
spoken times of sentences that are not alignable only, so this needs the transcript
(sentencified_htm). Without it, an alignable sentence is taken at its annotated span and is always
positive.

Predictions are given by video id. Each is a matrix of scores (sentences, seconds), or one second
per sentence, null where it is not placed. Or it is {"scores": matrix, "seconds": [...], "spans":
[[start, end] or null], "alignability": [...], "shown": [...]} with any of these. Spans give recall
at overlap, and where there are no seconds, their middles are the seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets.files import Node, find_file, read_node
from stepline.datasets.htm_align import FILE_NAME, AlignRow, read_rows
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Integers, Statistic, ratio
from stepline.evaluate.ranking import average_precision_statistic, roc_auc_statistic
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    SKIP_MISSING,
    OptionalSpan,
    ScoringTask,
    entries_by_id,
    is_matrix_node,
    read_matrix,
    read_numbers,
    read_spans,
    require_length,
    span_centers,
)
from stepline.evaluate.span_overlaps import (
    Pairs,
    grounding_overlaps,
    overlap_statistics,
    span_array,
)

HitRule: TypeAlias = Literal["tan", "nasva"]
Flags: TypeAlias = npt.NDArray[np.bool_]

# TAN's score of a second that no window covered, and of one that scores exactly 0
UNSCORED_VALUE = -6e4
WINDOW_ROWS = 64  # of TAN's windows, which start a quarter of that apart
TAN_EDGE_WINDOWS = 4  # at either end of a video, that reach to its first or last sentence
TRANSCRIPT_FILES = (
    "sentencified_htm_370k.json",
    "sentencified_htm_1200k.json",
    "sentencified_htm.json",
)


@dataclass(frozen=True)
class Annotation:
    """One video of HTM-Align: alignable (K,) and spans (K, 2) in seconds.

    The spans of alignable sentences were set by hand. The others keep the times at which they are
    spoken.
    """

    alignable: Flags
    spans: Floats

    @classmethod
    def from_rows(cls, rows: Sequence[AlignRow], location: str = FILE_NAME) -> "Annotation":
        """Return the annotation of the file's rows. Raises DatasetError for NaN and infinity."""
        spans = span_array([(row.start, row.end) for row in rows], location)
        alignable = [row.alignable for row in rows]
        return cls(np.array(alignable, dtype=bool), spans)

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def alignable_count(self) -> int:
        """How many sentences are alignable."""
        return int(self.alignable.sum())


def hits_span(seconds: Floats, spans: Floats, convention: HitRule = "tan") -> Flags:
    """Return (K,): whether each second, (K,), hits its span. A NaN second (not placed) never
    does."""
    starts = spans[:, 0]
    ends = spans[:, 1]
    if convention == "tan":
        starts = np.floor(starts)
        ends = np.ceil(ends)
    return (starts <= seconds) & (seconds <= ends)


def best_seconds(scores: Floats, rate: float = 1.0) -> Floats:
    """Return (K,) the second at which the first best row of (K, T) starts. Raises DatasetError for
    NaN or no rows."""
    if scores.ndim != 2 or scores.shape[1] == 0:
        fault = f"scores of shape {scores.shape}"
        raise DatasetError(f"{fault}; give (sentences, seconds) with at least one second")
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


def tan_windows(annotation: Annotation, rows: int) -> list[TanWindow]:
    """Return TAN's overlapping windows: WINDOW_ROWS rows, a quarter of that apart.

    A window reaches from the first to the last NOT alignable sentence whose middle is from
    WINDOW_ROWS before to twice that after its start. The times of alignable ones would give
    the answer away. The first four windows begin with sentence 0 and the last four end with the
    last (the first four win where a window is both). A window without a sentence that is not
    alignable is left out. Source: TAN, eval_zeroshot_align.
    """
    middle = annotation.spans.mean(axis=1)
    not_alignable = ~annotation.alignable
    starts = range(0, rows - WINDOW_ROWS // 2, WINDOW_ROWS // 4)
    windows = []
    for index, start in enumerate(starts):
        # Sentences whose middle is near, by the times of those that are not alignable.
        earliest = start - WINDOW_ROWS
        is_near = (earliest <= middle) & (middle <= start + 2 * WINDOW_ROWS)
        sentences = np.flatnonzero(is_near & not_alignable).tolist()
        if not sentences:
            continue
        first = sentences[0]
        last = sentences[-1]
        if index < TAN_EDGE_WINDOWS:
            first = 0
        elif index >= len(starts) - TAN_EDGE_WINDOWS:
            # TAN ends at the number of rows, not of sentences
            last = min(rows, len(annotation) - 1)
        end = min(rows, start + WINDOW_ROWS)
        windows.append(TanWindow(start, end, first, last))
    return windows


def stitch_windows(
    windows: Sequence[tuple[TanWindow, Floats]], sentences: int, rows: int
) -> Floats:
    """Return (K, T) scores: the mean over the windows that cover a cell, UNSCORED_VALUE where no
    window does or the mean is 0.

    windows: each with its scores (last - first + 1, end - start).
    """
    total = np.zeros((sentences, rows))
    count = np.zeros((sentences, rows))
    for window, scores in windows:
        cells = _window_cells(window)
        shape = total[cells].shape
        if shape != scores.shape:
            raise DatasetError(f"window {window}: scores of shape {scores.shape}, not {shape}")
        total[cells] += scores
        count[cells] += 1
    # A cell that no window covers has a sum of 0, and keeps it.
    means = total / np.maximum(count, 1)
    return hide_zeros(means)


def _window_cells(window: TanWindow) -> tuple[slice, slice]:
    return slice(window.first, window.last + 1), slice(window.start, window.end)


def hide_zeros(scores: Floats) -> Floats:
    """Return scores in which 0 means "not scored", as in TAN's evaluator: such a cell is never the
    best one."""
    return np.where(scores == 0, UNSCORED_VALUE, scores)


def keep_window_seconds(scores: Floats, annotation: Annotation) -> Floats:
    """Return what TAN's windows leave of global scores (K, T): only seconds that a window with the
    sentence covers."""
    sentences, rows = scores.shape
    parts = []
    for window in tan_windows(annotation, rows):
        window_scores = scores[_window_cells(window)]
        parts.append((window, window_scores))
    return stitch_windows(parts, sentences, rows)


# ---------------------------------------------------------------- labels


def narration_labels(annotation: Annotation, spoken: Pairs | None = None) -> Flags:
    """Return (K,): whether the sentence is shown while it is said. spoken: (K, 2) seconds of the
    transcript.

    Raises DatasetError when there is not one spoken span per sentence.
    """
    if spoken is None:
        return annotation.alignable
    speech = span_array(spoken, "spoken")
    if len(speech) != len(annotation):
        counts = f"{len(speech)} spoken spans for {len(annotation)} sentences"
        raise DatasetError(f"{counts}; give the same transcript")
    start = np.maximum(speech[:, 0], annotation.spans[:, 0])
    overlaps = np.minimum(speech[:, 1], annotation.spans[:, 1]) > start
    return np.asarray(annotation.alignable & overlaps)


# ---------------------------------------------------------------- the score


@dataclass(frozen=True)
class _Prediction:
    """What a system predicts for one video: seconds (K,), K spans, one score per sentence (K,).
    None for what it does not predict."""

    seconds: Floats | None = None
    spans: Sequence[OptionalSpan] | None = None
    ranking: Floats | None = None


def score(scoring: ScoringTask, *, convention: HitRule = "tan", windows: bool = False) -> Scores:
    """Return R@1 and alignability ROC-AUC."""
    truths = _annotations(scoring)
    nodes = entries_by_id(scoring.predictions)
    scored = truths
    notes = []
    if convention == "nasva":
        scored = {id: truth for id, truth in truths.items() if truth.alignable_count}
    left_out_count = len(truths) - len(scored)
    if left_out_count:
        notes.append(f"{left_out_count} videos without an alignable sentence left out")

    def prepare(scores: Floats, truth: Annotation) -> Floats:
        if windows:
            return keep_window_seconds(scores, truth)
        if convention == "tan":
            return hide_zeros(scores)
        return scores

    predictions = {}
    for id, truth in scored.items():
        if id in nodes:
            predictions[id] = _read_prediction(nodes[id], truth, "alignability", prepare)
    # the hits of each video, and how its spans fit
    alignable = np.zeros(len(scored))
    hits = np.zeros(len(scored))
    fits = []
    for index, (id, truth) in enumerate(scored.items()):
        prediction = predictions.get(id, _Prediction())
        alignable[index] = truth.alignable_count
        if prediction.seconds is not None:
            inside = hits_span(prediction.seconds, truth.spans, convention)
            hits[index] = inside[truth.alignable].sum()
        spans = prediction.spans or [None] * len(truth)
        alignable_rows = np.flatnonzero(truth.alignable).tolist()
        predicted_spans = [spans[row] for row in alignable_rows]
        true_spans = [truth.spans[[row]] for row in alignable_rows]
        fits.append(grounding_overlaps(predicted_spans, true_spans))
    statistics: dict[str, Statistic] = {}
    if all(prediction.seconds is not None for prediction in predictions.values()):
        statistics["R@1"] = ratio(hits, alignable)
    if predictions and all(prediction.spans is not None for prediction in predictions.values()):
        statistics |= overlap_statistics(fits, alignable)
    if convention == "tan":
        labels = {id: truth.alignable for id, truth in scored.items()}
        ranking, ranking_notes = _ranking(predictions, labels, "alignable")
        notes += ranking_notes
        if ranking is not None:
            statistics["ROC-AUC alignable"] = roc_auc_statistic(*ranking)
    columns = {"hits": hits, "alignable": alignable}
    # predictions of videos that are left out are not extra
    scored_or_extra = [id for id in nodes if id in scored or id not in truths]
    return scoring.scores(
        statistics,
        columns,
        items=alignable.sum(),
        reference_ids=scored,
        predicted_ids=scored_or_extra,
        notes=notes,
    )


def score_narration(scoring: ScoringTask) -> Scores:
    """Return ROC-AUC and average precision of narration detection.

    Raises DatasetError unless every video has `shown`: the best score over the video would be
    alignability's.
    """
    truths = _annotations(scoring)
    nodes = entries_by_id(scoring.predictions)
    transcript = read_transcript(scoring.reference)
    notes = []
    if not transcript:
        notes.append(
            "no transcript with the annotations: alignable sentences are taken as said when shown"
        )
    # labels and predictions of the predicted videos
    labels = {}
    predictions = {}
    for id, truth in truths.items():
        if id in nodes:
            speech = spoken_times(transcript, id)
            labels[id] = narration_labels(truth, speech)
            predictions[id] = _read_prediction(nodes[id], truth, "shown")
    for id, prediction in predictions.items():
        if prediction.ranking is None:
            cure = 'give {"shown": [a score for each sentence]}'
            raise DatasetError(f"{nodes[id].location}: no `shown`; {cure}")
    # all sentences ranked together
    statistics: dict[str, Statistic] = {}
    ranking, ranking_notes = _ranking(predictions, labels, "shown")
    if ranking is not None:
        statistics["ROC-AUC shown"] = roc_auc_statistic(*ranking)
        statistics["AP shown"] = average_precision_statistic(*ranking)
    sentences = np.array([float(len(flags)) for flags in labels.values()])
    return scoring.scores(
        statistics,
        {"sentences": sentences},
        items=sentences.sum(),
        reference_ids=truths,
        predicted_ids=nodes,
        handling=SKIP_MISSING,
        notes=[*notes, *ranking_notes],
    )


def _annotations(scoring: ScoringTask) -> dict[str, Annotation]:
    annotations = {}
    for id, rows in read_rows(scoring.reference):
        annotations[id] = Annotation.from_rows(rows, f"{scoring.reference}: {id}")
    return annotations


def _read_prediction(
    node: Node,
    truth: Annotation,
    ranking_key: str,
    prepare: Callable[[Floats, Annotation], Floats] | None = None,
) -> _Prediction:
    """Return the parts of a prediction.

    ranking_key: of its scores of sentences.
    prepare: changes a matrix of scores first. Without it a matrix ranks nothing.
    """
    if isinstance(node.value, dict):
        parts = {key: part for key, part in node.entries() if part.value is not None}
    elif is_matrix_node(node):
        parts = {"scores": node}
    else:
        parts = {"seconds": node}
    count = len(truth)
    seconds = None
    spans = None
    ranking = None
    # what is stated later in this list wins
    if "spans" in parts:
        spans = read_spans(parts["spans"], count, "sentences")
        seconds = span_centers(spans)
    if "scores" in parts:
        scores = read_matrix(parts["scores"])
        require_length(parts["scores"], scores, count, "sentences")
        if prepare is not None:
            scores = prepare(scores, truth)
            ranking = scores.max(axis=1)
        seconds = best_seconds(scores)
    if "seconds" in parts:
        seconds = read_numbers(parts["seconds"], count, "sentences")
    if ranking_key in parts:
        ranking = read_numbers(parts[ranking_key], count, "sentences")
    return _Prediction(seconds, spans, ranking)


def _ranking(
    predictions: Mapping[str, _Prediction], labels: Mapping[str, Flags], what: str
) -> tuple[tuple[Floats, Floats, Integers, int] | None, list[str]]:
    """Return labels, scores and video index of all sentences and the number of videos, and what to
    note. The first is None unless every predicted video gives scores."""
    no_ranking = f"no ROC-AUC: the predictions give no score of {what} for every video"
    # scores, labels and video index of the predicted videos
    rankings = []
    flags = []
    indexes = []
    for index, (id, video_labels) in enumerate(labels.items()):
        if id not in predictions:
            continue
        ranking = predictions[id].ranking
        if ranking is None:
            return None, [no_ranking]
        rankings.append(ranking)
        flags.append(video_labels)
        indexes.append(np.full(len(video_labels), index))
    if not rankings:
        return None, [no_ranking]
    ranked = np.concatenate(rankings).astype(np.float64)
    if np.isnan(ranked).any():
        fault = f"a score of {what} is null"
        raise DatasetError(f"{fault}; a ranking needs a number for every sentence")
    truth = np.concatenate(flags).astype(np.float64)
    video = np.concatenate(indexes)
    notes = []
    if len(rankings) < len(labels):
        notes.append("ROC-AUC is over the videos with predictions only")
    return (truth, ranked, video, len(labels)), notes


def read_transcript(reference: Path) -> dict[str, Node]:
    """Return the videos of the sentencified transcript next to the annotations in a folder, or {}
    where there is no such file."""
    if not reference.is_dir():
        return {}
    file = find_file(reference, *TRANSCRIPT_FILES)
    return {} if file is None else dict(read_node(file).entries())


def spoken_times(transcript: Mapping[str, Node], id: str) -> Floats | None:
    """Return (K, 2) seconds in which a video's sentences are spoken, or None without a transcript
    at all.

    Raises DatasetError where the transcript lacks the video.
    """
    if not transcript:
        return None
    if id not in transcript:
        fault = f"{id}: not in the transcript next to the annotations"
        raise DatasetError(f"{fault}; give the transcript of all videos")
    starts = read_numbers(transcript[id]["start"])
    ends = read_numbers(transcript[id]["end"])
    return np.stack([starts, ends], axis=1)
