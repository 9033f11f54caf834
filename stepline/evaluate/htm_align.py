"""HTM-Align: recall at 1 of alignable sentences, ROC-AUC of alignability, and narration detection.

K sentences, T feature rows of one second each. Two rules differ in what is a hit and in which
videos count:

    tan     floor(start) <= row <= ceil(end), both ends included; every video (TAN, eval_zeroshot_align)
    nasva   start <= row <= end, nothing rounded; videos without an alignable sentence are left out (NaSVA, train.py)

Of equal scores the first row is taken. Both pool the sentences of all videos.

A sentence has two labels, which are not the same:

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
per sentence, null where it was not found. Or it is {"scores": matrix, "seconds": [...],
"alignability": [...], "shown": [...]} with any of these.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from stepline.datasets.files import Node, find_file, read_node
from stepline.datasets.htm_align import FILE_NAME, AlignRow, read_rows
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Flags, Floats, Integers, Statistic, ratio_statistic
from stepline.evaluate.ranking import average_precision_statistic, roc_auc_statistic
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    SKIP_MISSING,
    ScoringTask,
    entries_by_id,
    is_matrix_node,
    read_matrix,
    read_numbers,
    require_length,
)
from stepline.evaluate.span_overlaps import Pairs, span_array

HitRule = Literal["tan", "nasva"]

# TAN's score of a second that scores exactly 0, which means "not scored" there.
UNSCORED_VALUE = -6e4
TRANSCRIPT_FILES = (
    "sentencified_htm_370k.json",
    "sentencified_htm_1200k.json",
    "sentencified_htm.json",
)


@dataclass(frozen=True)
class Annotation:
    """The annotation of the K sentences of one video.

    Attributes:
        alignable: (K,) True for a sentence that some part of the video shows.
        spans: (K, 2) start and end in seconds. The span of an alignable sentence is the part that
            shows it. The span of any other sentence is the time at which it is spoken.
    """

    alignable: Flags
    spans: Floats

    @classmethod
    def from_rows(cls, rows: list[AlignRow], location: str = FILE_NAME) -> "Annotation":
        """Return the annotation of one video from the rows of the benchmark's file.

        Args:
            rows: the rows of the video.
            location: name of the file, for error messages.

        Raises DatasetError for NaN and infinity.
        """
        spans = span_array([(row.start, row.end) for row in rows], location)
        return cls(np.array([row.alignable for row in rows], dtype=bool), spans)


def hits_span(seconds: Floats, spans: Floats, rule: HitRule) -> Flags:
    """Return the mask (K,) of the sentences whose predicted second is inside the annotated span.

    Args:
        seconds: (K,) predicted second of each sentence. NaN (no prediction) is no hit.
        spans: (K, 2) annotated start and end of each sentence in seconds.
        rule: "tan" first rounds the start down and the end up to whole seconds. "nasva" compares
            the exact times.
    """
    starts, ends = spans.T
    if rule == "tan":
        starts, ends = np.floor(starts), np.ceil(ends)
    return np.asarray((starts <= seconds) & (seconds <= ends))


def best_seconds(scores: Floats) -> Floats:
    """Return (K,) the best-scored second of each sentence, the first one among equals.

    scores: (K, T) score of each sentence in each second. Raises DatasetError where T is 0.
    """
    if scores.shape[1] == 0:
        raise DatasetError(
            f"scores of shape {scores.shape}; give (sentences, seconds) with at least one second"
        )
    return np.asarray(scores.argmax(axis=1), dtype=np.float64)


def narration_labels(annotation: Annotation, spoken: Pairs | None = None) -> Flags:
    """Return the mask (K,) of the sentences that are shown while they are spoken.

    Args:
        annotation: alignable sentences and the spans that show them.
        spoken: (K, 2) start and end of each spoken sentence in seconds, from the transcript. None:
            the spans of the annotation are taken.

    Raises DatasetError when there is not one spoken span per sentence.
    """
    if spoken is None:
        return annotation.alignable
    speech = span_array(spoken, "spoken")
    if len(speech) != len(annotation.spans):
        raise DatasetError(
            f"{len(speech)} spoken spans for {len(annotation.spans)} sentences"
            "; give the same transcript"
        )
    start = np.maximum(speech[:, 0], annotation.spans[:, 0])
    overlaps = np.minimum(speech[:, 1], annotation.spans[:, 1]) > start
    return np.asarray(annotation.alignable & overlaps)


# ---------------------------------------------------------------- the score


@dataclass(frozen=True)
class _Prediction:
    """The prediction for a video of K sentences.

    Attributes:
        seconds: (K,) predicted second of each sentence. None: the file gives none.
        ranking: (K,) score by which the sentences are ranked. None: the file gives none.
    """

    seconds: Floats | None = None
    ranking: Floats | None = None


def score(scoring: ScoringTask, *, rule: HitRule = "tan") -> Scores:
    """Return R@1 (one predicted second per sentence), and with TAN's rule also ROC-AUC of
    alignability.

    Args:
        scoring: the files of the evaluation.
        rule: whose rule decides that a second is inside a span, "tan" or "nasva" (see `hits_span`).
    """
    all_annotations = _read_annotations(scoring)
    predictions_file = entries_by_id(scoring.predictions)
    annotations = all_annotations
    notes = []
    if rule == "nasva":
        annotations = {
            id: annotation for id, annotation in annotations.items() if annotation.alignable.any()
        }
    excluded_count = len(all_annotations) - len(annotations)
    if excluded_count:
        notes.append(f"{excluded_count} videos without an alignable sentence left out")
    predictions = {
        id: _read_prediction(predictions_file[id], annotation, "alignability", rule)
        for id, annotation in annotations.items()
        if id in predictions_file
    }
    alignable_counts = np.zeros(len(annotations))
    hits = np.zeros(len(annotations))
    for index, (id, annotation) in enumerate(annotations.items()):
        alignable_counts[index] = annotation.alignable.sum()
        seconds = predictions.get(id, _Prediction()).seconds
        if seconds is not None:
            is_hit = hits_span(seconds, annotation.spans, rule)
            hits[index] = is_hit[annotation.alignable].sum()
    statistics: dict[str, Statistic] = {}
    if all(prediction.seconds is not None for prediction in predictions.values()):
        statistics["R@1"] = ratio_statistic(hits, alignable_counts)
    if rule == "tan":
        labels = {id: annotation.alignable for id, annotation in annotations.items()}
        ranking, ranking_notes = _rank_sentences(predictions, labels, "alignable")
        notes += ranking_notes
        if ranking is not None:
            statistics["ROC-AUC alignable"] = roc_auc_statistic(*ranking)
    return scoring.make_scores(
        statistics,
        {"hits": hits, "alignable": alignable_counts},
        items=alignable_counts.sum(),
        reference_ids=annotations,
        # Predictions of excluded videos are not extra.
        predicted_ids=[
            id for id in predictions_file if id in annotations or id not in all_annotations
        ],
        notes=notes,
    )


def score_narration(scoring: ScoringTask) -> Scores:
    """Return ROC-AUC and average precision of narration detection.

    A positive is a sentence that is shown while it is spoken.

    Raises DatasetError unless the prediction of every video has the key `shown`. The best score of
    a sentence over the video would rank by alignability instead.
    """
    annotations = _read_annotations(scoring)
    predictions_file = entries_by_id(scoring.predictions)
    transcript = read_transcript(scoring.reference)
    notes = []
    if not transcript:
        notes.append(
            "no transcript with the annotations: alignable sentences are taken as said when shown"
        )
    labels = {}
    predictions = {}
    for id, annotation in annotations.items():
        if id in predictions_file:
            labels[id] = narration_labels(annotation, spoken_times(transcript, id))
            predictions[id] = _read_prediction(predictions_file[id], annotation, "shown", None)
    for id, prediction in predictions.items():
        if prediction.ranking is None:
            raise DatasetError(
                f'{predictions_file[id].location}: no `shown`; give {{"shown": [a score for each '
                "sentence]}"
            )
    statistics: dict[str, Statistic] = {}
    ranking, ranking_notes = _rank_sentences(predictions, labels, "shown")
    if ranking is not None:
        statistics["ROC-AUC shown"] = roc_auc_statistic(*ranking)
        statistics["AP shown"] = average_precision_statistic(*ranking)
    sentence_counts = np.array([float(len(flags)) for flags in labels.values()])
    return scoring.make_scores(
        statistics,
        {"sentences": sentence_counts},
        items=sentence_counts.sum(),
        reference_ids=annotations,
        predicted_ids=predictions_file,
        handling=SKIP_MISSING,
        notes=[*notes, *ranking_notes],
    )


def _read_annotations(scoring: ScoringTask) -> dict[str, Annotation]:
    return {
        id: Annotation.from_rows(rows, f"{scoring.reference}: {id}")
        for id, rows in read_rows(scoring.reference)
    }


def _read_prediction(
    node: Node, annotation: Annotation, ranking_key: str, rule: HitRule | None
) -> _Prediction:
    """Return the prediction that a JSON value holds.

    Args:
        node: a matrix (K, T) of scores, a list of K seconds, or an object with any of the known
            keys.
        annotation: annotation of the same video.
        ranking_key: key of the scores by which the sentences are ranked.
        rule: with a rule, a matrix ranks each sentence by its best score. With None, a matrix ranks
            nothing.
    """
    if isinstance(node.value, dict):
        parts = {key: part for key, part in node.entries() if part.value is not None}
    elif is_matrix_node(node):
        parts = {"scores": node}
    else:
        parts = {"seconds": node}
    count = len(annotation.spans)
    seconds = None
    ranking = None
    # What is read later wins.
    if "scores" in parts:
        scores = read_matrix(parts["scores"])
        require_length(parts["scores"], scores, count, "sentences")
        if rule == "tan":
            scores = np.where(scores == 0, UNSCORED_VALUE, scores)
        if rule is not None:
            ranking = scores.max(axis=1)
        seconds = best_seconds(scores)
    if "seconds" in parts:
        seconds = read_numbers(parts["seconds"], count, "sentences")
    if ranking_key in parts:
        ranking = read_numbers(parts[ranking_key], count, "sentences")
    return _Prediction(seconds, ranking)


def _rank_sentences(
    predictions: Mapping[str, _Prediction], labels: Mapping[str, Flags], noun: str
) -> tuple[tuple[Floats, Floats, Integers, int] | None, list[str]]:
    """Return (labels, scores, video index, number of videos) of all sentences, and notes.

    The first part is None unless every predicted video gives scores.

    Args:
        predictions: video id -> prediction.
        labels: video id -> (K,) True for a positive sentence.
        noun: name of what is scored, for messages.
    """
    rankings = {id: predictions[id].ranking for id in labels if id in predictions}
    known = [ranking for ranking in rankings.values() if ranking is not None]
    if not known or len(known) < len(rankings):
        return None, [f"no ROC-AUC: the predictions give no score of {noun} for every video"]
    scores = np.concatenate(known).astype(np.float64)
    if np.isnan(scores).any():
        raise DatasetError(
            f"a score of {noun} is null; a ranking needs a number for every sentence"
        )
    truth = np.concatenate([labels[id] for id in rankings]).astype(np.float64)
    indices = [index for index, id in enumerate(labels) if id in rankings]
    video = np.repeat(indices, list(map(len, known)))
    notes = []
    if len(known) < len(labels):
        notes.append("ROC-AUC is over the videos with predictions only")
    return (truth, scores, video, len(labels)), notes


def read_transcript(reference: Path) -> dict[str, Node]:
    """Return video id -> JSON value of the sentencified transcript next to the annotations.

    The result is {} where `reference` is no folder, or a folder without a transcript file.
    """
    if not reference.is_dir():
        return {}
    file = find_file(reference, *TRANSCRIPT_FILES)
    return {} if file is None else dict(read_node(file).entries())


def spoken_times(transcript: Mapping[str, Node], id: str) -> Floats | None:
    """Return (K, 2) the start and end in seconds of a video's spoken sentences.

    Args:
        transcript: video id -> JSON value, from `read_transcript`. If it is empty, None is
            returned.
        id: id of the video.

    Raises DatasetError where the transcript lacks the video.
    """
    if not transcript:
        return None
    if id not in transcript:
        raise DatasetError(
            f"{id}: not in the transcript next to the annotations"
            "; give the transcript of all videos"
        )
    columns = [read_numbers(transcript[id][key]) for key in ("start", "end")]
    return np.stack(columns, axis=1)
