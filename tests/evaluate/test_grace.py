"""GRACE: which events go together, and what a finer or coarser cut is worth."""

import itertools

import numpy as np
import pytest

from stepline.evaluate.events import segment_iou, times
from stepline.evaluate.grace import GraceScorer, best_groups
from stepline.evaluate.meteor import MeteorScores

TRUTH = [(0.0, 10.0, "peel the potato"), (10.0, 20.0, "fry it in oil and salt it")]
FINER = [(0.0, 10.0, "peel the potato"), (10.0, 15.0, "fry it in oil"), (15.0, 20.0, "and salt it")]


class SameWords:
    """A stand-in for METEOR: 1 for equal texts, else 0."""

    def compare(self, pairs):
        scores = tuple(float(text in references) for references, text in pairs)
        return MeteorScores(scores, float(np.mean(scores)))


def groups(overlaps):
    return [(list(pair.rows), list(pair.columns)) for pair in best_groups(np.array(overlaps))]


def test_a_finer_cut_goes_with_the_one_step_that_it_cuts():
    overlaps = segment_iou(times(TRUTH), times(FINER))
    assert groups(overlaps) == [([0], [0]), ([1], [1, 2])]
    assert groups(overlaps.T) == [([0], [0]), ([1, 2], [1])]


def test_a_finer_cut_pays_in_time_alone_and_its_joined_text_is_the_whole():
    scorer = GraceScorer(SameWords())
    assert scorer.score(TRUTH, FINER) == pytest.approx((0.75, 0.75, 1.0))
    assert scorer.score(FINER, TRUTH) == pytest.approx((0.75, 0.75, 1.0))
    assert scorer.score(TRUTH, TRUTH) == pytest.approx((1.0, 1.0, 1.0))
    assert scorer.score(TRUTH, []) == (0.0, 0.0, 0.0)


def every_split(rows, columns):
    """All ways to cut rows and columns into pairs of groups with one single side, by brute
    force."""
    if not rows and not columns:
        yield []
        return
    for a, b in itertools.product(range(1, rows + 1), range(1, columns + 1)):
        if 1 in (a, b):
            for rest in every_split(rows - a, columns - b):
                yield [*rest, (range(rows - a, rows), range(columns - b, columns))]


@pytest.mark.parametrize("seed", range(5))
def test_the_split_has_the_greatest_sum_of_all_splits(seed):
    rng = np.random.default_rng(seed)
    overlaps = rng.random(tuple(rng.integers(1, 6, 2))) * (rng.random() < 0.8)
    splits = every_split(*overlaps.shape)
    best = max(sum(overlaps[np.ix_(*pair)].sum() for pair in split) for split in splits)
    chosen = best_groups(overlaps)
    assert sum(overlaps[np.ix_(p.rows, p.columns)].sum() for p in chosen) == pytest.approx(best)
    assert all(1 in (len(pair.rows), len(pair.columns)) for pair in chosen)
    assert [row for pair in chosen for row in pair.rows] == list(range(len(overlaps)))
    assert [c for pair in chosen for c in pair.columns] == list(range(overlaps.shape[1]))


def test_the_order_in_the_file_does_not_count():
    scorer = GraceScorer(SameWords())
    assert scorer.score(TRUTH[::-1], FINER[::-1]) == scorer.score(TRUTH, FINER)
