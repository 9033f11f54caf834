"""GRACE: steps or chapters scored many to one, so that a coarser or finer cut of the same video is
not a fault.

Both sides are split, in their order, into pairs of groups. Of each pair one side is a single event.
The split is that with the greatest sum of IoU over the pairs of events in its groups, found by
dynamic programming. A pair of groups is worth its mean IoU times the likeness of its texts, each
side's joined to one.

Source: Pu et al. 2025 (ARC-Chapter), section 4.3, read in a transcript: its equations are pictures
there. Differs: likeness is METEOR, and the paper's BERTScore needs a network. A video's score is
the mean over its pairs of groups, where the paper is read as a plain sum. So values compare with
each other, not with published ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from stepline.datasets import read_predictions
from stepline.evaluate.bootstrap import Floats, Ratio, Statistic
from stepline.evaluate.dense_captioning import read_reference
from stepline.evaluate.events import Event, EventTokenizer, Matrix, segment_iou, times
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import ScoringTask, match_ids, prediction_notes
from stepline.evaluate.soda import PairScorer

METRIC_NAMES = ("GRACE", "GRACE time", "GRACE text")


@dataclass(frozen=True)
class GroupPair:
    """Neighbouring reference events (rows) and neighbouring predictions (columns) that go
    together."""

    rows: range
    columns: range


def best_groups(overlaps: Matrix) -> list[GroupPair]:
    """Return the split with the greatest sum of overlaps, in order.

    overlaps: (N, M) IoU of reference and prediction, N and M at least 1. Every event is in one
    group. Ties take the smaller group at the end.
    """
    sizes = _last_group_sizes(overlaps)
    pairs = []
    row, column = overlaps.shape
    while row and column:
        rows, columns = sizes[row, column].tolist()
        first_row = row - rows
        first_column = column - columns
        row_range = range(first_row, row)
        column_range = range(first_column, column)
        pairs.append(GroupPair(row_range, column_range))
        row = first_row
        column = first_column
    pairs.reverse()
    return pairs


def _last_group_sizes(overlaps: Matrix) -> npt.NDArray[np.int64]:
    """Return (N + 1, M + 1, 2): the size of the last group of each side in the best split of the
    first events of both."""
    count, width = overlaps.shape
    # Running sums down and across: the overlap of a group is one difference.
    zero_row = np.zeros((1, width))
    row_sums = np.cumsum(overlaps, axis=0)
    down = np.vstack([zero_row, row_sums])  # (N + 1, M)
    zero_column = np.zeros((count, 1))
    column_sums = np.cumsum(overlaps, axis=1)
    across = np.hstack([zero_column, column_sums])  # (N, M + 1)
    shape = (count + 1, width + 1)
    best = np.full(shape, -np.inf)
    best[0, 0] = 0.0
    sizes = np.zeros((*shape, 2), dtype=np.int64)
    for row in range(1, count + 1):
        for column in range(1, width + 1):
            # several reference events to this prediction, and the other way round
            above = down[:, column - 1]
            many_rows = best[:row, column - 1] + above[row] - above[:row]
            before = across[row - 1]
            many_columns = best[row - 1, :column] + before[column] - before[:column]
            rows = row - _last_best(many_rows)
            columns = column - _last_best(many_columns)
            most_by_rows = many_rows[row - rows]
            most_by_columns = many_columns[column - columns]
            if most_by_columns > most_by_rows:
                best[row, column] = most_by_columns
                sizes[row, column] = 1, columns
            else:
                best[row, column] = most_by_rows
                sizes[row, column] = rows, 1
    return sizes


def _last_best(values: Floats) -> int:
    """Return the last index of the greatest value."""
    last_index = len(values) - 1
    # The last split that is best has the smallest group behind it.
    from_end = np.argmax(values[::-1])
    return last_index - int(from_end)


class GraceScorer:
    """Scores single videos. meteor: by default METEOR in Python."""

    def __init__(self, meteor: PairScorer | None = None) -> None:
        if meteor is None:
            meteor = Meteor()
        self._meteor: PairScorer = meteor
        self._tokenizer = EventTokenizer()

    def score(
        self, reference: Sequence[Event], predictions: Sequence[Event]
    ) -> tuple[float, float, float]:
        """Return GRACE of a video, the mean IoU of its groups, and the mean likeness of their
        texts. They are 0 without predictions."""
        if not predictions:
            return 0.0, 0.0, 0.0
        # the groups that go together
        truth = sorted(reference, key=itemgetter(0))
        events = sorted(predictions, key=itemgetter(0))
        overlaps = segment_iou(times(truth), times(events))  # (N, M)
        references = self._tokenizer.tokens(truth)
        hypotheses = self._tokenizer.tokens(events)
        group_overlaps = []
        texts = []
        for pair in best_groups(overlaps):
            block = overlaps[np.ix_(pair.rows, pair.columns)]
            group_overlaps.append(float(block.mean()))
            group_references = [references[row] for row in pair.rows]
            group_hypotheses = [hypotheses[column] for column in pair.columns]
            reference_text = " ".join(group_references)
            predicted_text = " ".join(group_hypotheses)
            pair_texts = ((reference_text,), predicted_text)
            texts.append(pair_texts)
        # what each pair of groups is worth
        comparison = self._meteor.compare(texts)
        likeness = np.array(comparison.segments)
        in_time = np.array(group_overlaps)
        grace = float((in_time * likeness).mean())
        return grace, float(in_time.mean()), float(likeness.mean())


def score(scoring: ScoringTask) -> Scores:
    """Return GRACE and its two factors, each a mean over the reference's videos."""
    reference = read_reference(scoring)
    predictions = read_predictions(scoring.predictions)
    segments = match_ids(predictions.segments, reference)
    scorer = GraceScorer()
    event_count = 0
    rows = []
    for id, events in reference.items():
        event_count += len(events)
        video_segments = segments.get(id, ())
        predicted = [segment[:3] for segment in video_segments]
        rows.append(scorer.score(events, predicted))
    # means over videos
    columns: dict[str, Floats] = {}
    statistics: dict[str, Statistic] = {}
    if rows:
        values = np.array(rows, dtype=np.float64)  # (videos, metrics)
        ones = np.ones(len(rows))
        for number, name in enumerate(METRIC_NAMES):
            columns[name] = values[:, number]
            statistics[name] = Ratio(columns[name], ones)
    return scoring.scores(
        statistics,
        columns,
        items=event_count,
        reference_ids=reference,
        predicted_ids=segments,
        notes=prediction_notes(predictions),
    )
