"""Which proposals are steps: the surest by count, or the surest set that does not overlap."""

import itertools

import numpy as np
import pytest

from stepline.procx.inference import Proposals, cut_overlaps, select_non_overlapping, select_proposals
from stepline.procx.settings import DescribeSettings

BOXES = np.array([[10.0, 20.0], [0.0, 8.0], [11.0, 19.0], [30.0, 40.0], [50.0, 50.01]])
SURE = np.array([0.9, 0.5, 0.8, 0.2, 0.99])


def proposals(count=3, likelihood=None):
    return Proposals(60.0, SURE, BOXES, np.eye(6)[count], likelihood)


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({}, [1, 0, 2]),  # as many as are counted, in the order of time; the one of no length is none
        ({"count": 1}, [0]),
        ({"count": 0}, []),
        ({"count": 100}, [1, 0, 2, 3]),
        ({"floor": 0.6}, [0, 2]),
        ({"floor": 1.0}, []),
        ({"choose": "apart"}, [1, 0, 3]),
        ({"choose": "apart", "count": 2}, [1, 0]),
    ],
)
def test_the_settings_decide(settings, chosen):
    assert select_proposals(proposals(), DescribeSettings(**settings)) == chosen


def test_a_count_of_none_gives_the_least():
    assert select_proposals(proposals(0), DescribeSettings()) == [0]
    assert select_proposals(proposals(0), DescribeSettings(least=0)) == []


def test_captions_have_a_say_where_their_likelihood_is_known():
    ranked = proposals(1, np.array([-0.5, 0.0, 0.0, 0.0, 0.0]))
    assert select_proposals(ranked, DescribeSettings()) == [2]


def best_by_hand(boxes, scores, most):
    """The greatest sum of a set without overlap, by trying all."""
    best = 0.0
    for size in range(1, most + 1):
        for chosen in itertools.combinations(range(len(boxes)), size):
            rows = sorted(chosen, key=lambda one: boxes[one, 0])
            if all(boxes[a, 1] <= boxes[b, 0] for a, b in itertools.pairwise(rows)):
                best = max(best, float(scores[list(chosen)].sum()))
    return best


def test_the_surest_set_without_overlap_is_the_best_of_all_sets():
    chance = np.random.default_rng(0)
    for most in (1, 2, 4):
        for _ in range(15):
            starts = chance.uniform(0, 50, 8)
            boxes = np.stack([starts, starts + chance.uniform(2, 20, 8)], axis=1)
            scores = chance.uniform(0.05, 1.0, 8)
            chosen = select_non_overlapping(boxes, scores, most)
            assert len(chosen) <= most
            assert scores[chosen].sum() == pytest.approx(best_by_hand(boxes, scores, most))
            assert all(boxes[a, 1] <= boxes[b, 0] for a, b in itertools.pairwise(chosen))


def test_a_share_of_the_shorter_may_overlap_and_is_parted_in_its_middle():
    boxes, scores = np.array([[0.0, 10.0], [8.0, 18.0]]), np.array([0.5, 0.4])
    assert select_non_overlapping(boxes, scores, 2) == [0]
    assert select_non_overlapping(boxes, scores, 2, overlap=0.2) == [0, 1]
    assert cut_overlaps(boxes).tolist() == [[0.0, 9.0], [9.0, 18.0]]
    inside = np.array([[0.0, 10.0], [8.0, 9.9]])
    assert select_non_overlapping(inside, scores, 2, overlap=0.5) == [0]


def test_nothing_to_choose_from_is_no_step():
    assert select_non_overlapping(np.zeros((0, 2)), np.zeros(0), 3) == []
    assert select_non_overlapping(BOXES, -SURE, 3) == []
    assert select_non_overlapping(BOXES, SURE, 0) == []
    assert cut_overlaps(np.zeros((0, 2))).shape == (0, 2)
