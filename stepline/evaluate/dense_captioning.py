"""Dense captioning (YouCook2, Tasty): SODA a to d, and ActivityNet's densevid_eval in its versions.

densevid_eval: at each tIoU every (prediction, reference) pair with IoU >= tIoU becomes an item. So
one prediction may count several times. A prediction without any is compared with a garbage caption.
The metrics run video by video (CIDEr's idf and METEOR's aggregate are that video's). Their means
over videos are reported per tIoU, and the mean over tIoUs after that. Precision and recall of the
segments ask for IoU > tIoU, strictly.

    version      garbage caption                     missing videos      programs
    stepline     one fixed word                      0, and listed       ours, the default
    2018         "abc123!@#", several tokens         0                   PDVC evaluate2018, densevid_eval
    2021         a random word                       0                   PDVC evaluate2021
    vidchapters  a random word                       left out            VidChapters, Vid2Seq in PyTorch

The random word changes nothing (any unknown word scores the same), so it is the fixed one
everywhere. The 2018 garbage does change METEOR. An empty list scores 0, where PDVC stops with an
error if that video comes first.

The reference is the authors' JSON or the flat form. Its segments are taken as they are, also empty
or reversed ones. Predictions are segments with texts, in any form that
`stepline.datasets.read_predictions` reads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from stepline.datasets import read_predictions
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Flags, Floats, Statistic, ratio_statistic
from stepline.evaluate.events import (
    Event,
    EventsByVideo,
    EventTokenizer,
    check_events,
    event_times,
    segment_iou,
)
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    COUNT_MISSING,
    SKIP_MISSING_VIDEOS,
    ScoringTask,
    entries_by_id,
    match_ids,
    prediction_notes,
)
from stepline.evaluate.soda import SodaKind, harmonic_mean, soda

Version = Literal["stepline", "2018", "2021", "vidchapters"]
ScorePerTiou = tuple[float, ...]  # one value per tIoU
ScoresByMetric = dict[str, ScorePerTiou]
CaptionPair = tuple[tuple[str, ...], str]  # references and prediction, tokenized

TIOU_THRESHOLDS = (0.3, 0.5, 0.7, 0.9)
MAX_PREDICTIONS = 1000  # per video; what follows is not scored, as in every version
CAPTION_METRICS = ("METEOR", "CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L")
MEAN_METRICS = (*CAPTION_METRICS, "precision", "recall")  # means over the videos
# What a prediction without overlap is compared with.
GARBAGE_CAPTION = "zxqwvkjhgf"
GARBAGE_CAPTION_2018 = "abc123!@#"


# ---------------------------------------------------------------- densevid_eval


@dataclass(frozen=True)
class DensevidScore:
    """Scores of densevid_eval, in [0, 1] except CIDEr, which is in [0, 10].

    Attributes:
        per_tiou: metric -> one value per temporal-IoU threshold, the mean over videos. The metrics
            are CAPTION_METRICS, precision, recall and F1. F1 is made from the mean precision and
            recall.
        mean: metric -> mean over the thresholds.
        per_video: video id -> metric -> one value per threshold.
    """

    per_tiou: ScoresByMetric
    mean: dict[str, float]
    per_video: dict[str, ScoresByMetric]


def densevid(
    reference: EventsByVideo,
    predictions: EventsByVideo,
    *,
    version: Version = "stepline",
    tious: Sequence[float] = TIOU_THRESHOLDS,
    meteor: Meteor | None = None,
) -> DensevidScore:
    """Return the scores of densevid_eval for predicted events, over the videos of the reference.

    Args:
        reference: video id -> events (start, end, caption) in seconds, at least one per video.
        predictions: video id -> events in the same form. A video without events scores 0.
        version: version of densevid_eval whose garbage caption is used. A prediction that overlaps
            no reference event is compared with the garbage caption.
        tious: temporal-IoU thresholds in [0, 1].
        meteor: scorer whose caches are reused. None: a new one.

    Raises DatasetError for an event that cannot be scored, ModelError without METEOR's tables.
    """
    garbage = GARBAGE_CAPTION_2018 if version == "2018" else GARBAGE_CAPTION
    scorer = _DensevidScorer(garbage, tious, meteor or Meteor())
    per_video = {}
    for video, events in reference.items():
        predicted = predictions.get(video, ())
        check_events(video, events, predicted)
        try:
            per_video[video] = scorer.score(events, predicted[:MAX_PREDICTIONS])
        except DatasetError as error:  # METEOR's and the IoU's do not name the video
            raise DatasetError(f"{video}: {error}") from error
    per_tiou = {}
    for metric in MEAN_METRICS:
        mean = np.mean([rows[metric] for rows in per_video.values()], axis=0)
        per_tiou[metric] = tuple(mean.tolist())
    per_tiou["F1"] = tuple(map(harmonic_mean, per_tiou["precision"], per_tiou["recall"]))
    means = {metric: sum(row) / len(row) for metric, row in per_tiou.items()}
    return DensevidScore(per_tiou, means, per_video)


class _DensevidScorer:
    """Computes the scores of densevid_eval for one video at a time, at every tIoU threshold."""

    def __init__(self, garbage: str, tious: Sequence[float], meteor: Meteor) -> None:
        self._meteor = meteor
        self._tokenizer = EventTokenizer()
        self._garbage = self._tokenizer.caption_tokens(garbage)
        self._tious = tious

    def score(self, reference: Sequence[Event], events: Sequence[Event]) -> ScoresByMetric:
        """Return metric -> one value per tIoU threshold for one video, without F1."""
        if not events:
            return dict.fromkeys(MEAN_METRICS, (0.0,) * len(self._tious))
        iou = segment_iou(event_times(events), event_times(reference))  # (predictions, reference)
        captions = self._tokenizer.tokens(reference)
        texts = self._tokenizer.tokens(events)
        # Neighbouring tIoUs often hold the same pairs.
        scores: dict[tuple[CaptionPair, ...], ScorePerTiou] = {}
        columns = []
        for tiou in self._tious:
            pairs = tuple(self._pair_captions(iou >= tiou, captions, texts))
            if pairs not in scores:
                scores[pairs] = (self._meteor.compare(pairs).aggregate, *caption_scores(pairs))
            # Captions pair at IoU >= tIoU. Detection asks for more than tIoU.
            is_hit = iou > tiou
            precision = float(is_hit.any(axis=1).mean())
            columns.append((*scores[pairs], precision, float(is_hit.any(axis=0).mean())))
        rows = zip(*columns, strict=True)
        return dict(zip(MEAN_METRICS, rows, strict=True))

    def _pair_captions(
        self, is_overlapping: Flags, captions: list[str], texts: list[str]
    ) -> Iterable[CaptionPair]:
        """Yield a caption pair for each predicted caption and each reference event that its event
        overlaps.

        A prediction without any overlap is paired with the garbage caption.

        Args:
            is_overlapping: (N, M) True if reference event n and predicted event m overlap enough.
            captions: captions of the N reference events, tokenized.
            texts: captions of the M predicted events, tokenized.
        """
        for text, row in zip(texts, is_overlapping, strict=True):
            partners = [captions[column] for column in np.flatnonzero(row)]
            for partner in partners or [self._garbage]:
                yield (partner,), text


def caption_scores(pairs: Sequence[CaptionPair]) -> ScorePerTiou:
    """Return CIDEr-D, BLEU-1 to BLEU-4 and ROUGE-L of all caption pairs, by pycocoevalcap.

    CIDEr-D is in [0, 10], and its idf comes from these references: it is 0 for a single pair, even
    for a perfect one. The others are in [0, 1].
    """
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer
    from pycocoevalcap.cider.cider_scorer import CiderScorer
    from pycocoevalcap.rouge.rouge import Rouge

    bleu = BleuScorer()
    cider = CiderScorer()
    for references, caption in pairs:
        bleu += (caption, references)
        cider += (caption, references)
    bleu_scores, _ = bleu.compute_score(option="closest")
    rouge_scores = [Rouge().calc_score([caption], references) for references, caption in pairs]
    # Without any word in the references pycocoevalcap has no idf, and stops.
    has_words = any("".join(references) for references, _ in pairs)
    cider_score = float(cider.compute_score()[0]) if has_words else 0.0
    return (cider_score, *bleu_scores, float(np.mean(rouge_scores)))


# ---------------------------------------------------------------- the benchmark


MIXED_MISSING = (
    "densevid: videos without predictions count 0, as officially; "
    "SODA leaves them out, as officially"
)


def harmonic_mean_statistic(precisions: Floats, recalls: Floats) -> Statistic:
    """Return F1 as a statistic: F1 of the mean precision and recall per tIoU, then the mean over
    tIoUs.

    F1 is 0 where the mean precision and the mean recall are 0.

    Args:
        precisions: (V, number of tIoU thresholds) precision of each video.
        recalls: (V, number of tIoU thresholds) recall of each video.
    """

    def score(weights: Floats) -> Floats:
        # The share of each video in a draw.
        shares = weights / weights.sum(axis=1, keepdims=True)
        precision = shares @ precisions  # (B, tIoUs)
        recall = shares @ recalls
        # F1 of the means at each tIoU, not the mean of F1s.
        sums = precision + recall
        harmonic = np.zeros_like(sums)
        np.divide(2 * precision * recall, sums, out=harmonic, where=sums > 0)
        return np.asarray(harmonic.mean(axis=1))

    return Statistic(score, len(precisions), len(precisions))


def score(scoring: ScoringTask, *, version: Version = "stepline") -> Scores:
    """Return SODA a to d and the metrics of densevid_eval.

    Args:
        scoring: the files of the evaluation.
        version: version of densevid_eval, which decides the garbage caption and how videos without
            predictions are scored.
    """
    all_reference = read_reference(scoring)
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, all_reference)
    reference = all_reference
    handling = COUNT_MISSING
    if version == "vidchapters":
        handling = SKIP_MISSING_VIDEOS
        reference = {id: rows for id, rows in all_reference.items() if id in segments}
    elif version != "stepline":
        handling = MIXED_MISSING
    events = {id: [row[:3] for row in segments.get(id, ())] for id in reference}
    # Of the versions of others SODA leaves missing videos out.
    is_counted = [version == "stepline" or id in segments for id in reference]
    statistics: dict[str, Statistic] = {}
    columns: dict[str, Floats] = {}
    if events:
        counted = np.array(is_counted, dtype=np.float64)
        statistics, columns = _statistics(reference, events, counted, version)
    notes = prediction_notes(predictions)
    long_videos = [id for id, rows in events.items() if len(rows) > MAX_PREDICTIONS]
    if long_videos:
        notes.append(
            f"densevid takes the first {MAX_PREDICTIONS} predictions of a video, SODA all: "
            f"{len(long_videos)} videos have more, such as {long_videos[0]}"
        )
    return scoring.make_scores(
        statistics,
        columns,
        items=sum(map(len, reference.values())),
        reference_ids=all_reference,
        predicted_ids=segments,
        handling=handling,
        notes=notes,
    )


def _statistics(
    reference: EventsByVideo, events: EventsByVideo, counted: Floats, version: Version
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return metric -> statistic over the V videos of the reference, and metric -> (V,) values.

    Args:
        reference: video id -> events.
        events: video id -> predicted events.
        counted: (V,) 1.0 for the videos that SODA counts, else 0.0.
        version: version of densevid_eval.
    """
    meteor = Meteor()
    statistics: dict[str, Statistic] = {}
    columns: dict[str, Floats] = {}
    for kind in get_args(SodaKind):
        per_video = soda(reference, events, kind=kind, meteor=meteor).per_video
        triples = np.array([per_video[id] for id in reference])  # (V, 3)
        columns[f"SODA_{kind}"] = triples[:, 2]
        for column, suffix in enumerate((" precision", " recall", "")):
            statistics[f"SODA_{kind}{suffix}"] = ratio_statistic(
                triples[:, column] * counted, counted
            )
    # A video's number is its mean over tIoUs.
    scores = densevid(reference, events, version=version, meteor=meteor).per_video
    tables = {}
    for name in MEAN_METRICS:
        tables[name] = np.array([scores[id][name] for id in reference])  # (V, tIoUs)
        columns[name] = tables[name].mean(axis=1)
        statistics[name] = ratio_statistic(columns[name], np.ones(len(reference)))
    statistics["F1"] = harmonic_mean_statistic(tables["precision"], tables["recall"])
    return statistics, columns


def read_reference(scoring: ScoringTask) -> dict[str, list[Event]]:
    """Return video id -> reference events, without the videos that have no event.

    Raises DatasetError when the file has an unknown form, or when it holds no video of the subset.
    """
    # The authors' form has all videos under one key.
    videos = entries_by_id(scoring.reference)
    is_author_form = "database" in videos
    if is_author_form:
        videos = dict(videos["database"].entries())
    subset = scoring.subset
    if subset is not None:
        videos = {
            id: video for id, video in videos.items() if video.optional_text("subset") == subset
        }
        if not videos:
            raise DatasetError(
                f"{scoring.reference}: holds no subset {subset!r}; leave --subset out"
            )
    # Events as they are written, also empty or reversed ones.
    reference = {}
    for id, video in videos.items():
        if is_author_form:
            rows = video.optional_rows("annotations")
            pairs = [(row["segment"].pair(), row["sentence"]) for row in rows]
        else:
            pairs = list(video.pairs())
        if pairs:
            reference[id] = [(start, end, sentence.text()) for (start, end), sentence in pairs]
    return reference
