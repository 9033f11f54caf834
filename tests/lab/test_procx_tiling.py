"""Steps that fill a video: the best of all segmentations, and how many."""

import itertools

import numpy as np
import pytest

from lab.procx.tiling import Segmentation, expected_f1, tile, tile_proposals, tiling_selector
from stepline.models.procx.inference import Proposals


def iou(first, second):
    shared = max(0.0, min(first[1], second[1]) - max(first[0], second[0]))
    return shared / (max(first[1], second[1]) - min(first[0], second[0]))


def best_by_hand(boxes, scores, duration, count, cost):
    """The greatest worth of so many segments, by trying all proposals in order and all pairs of
    ends."""
    ends = sorted({0.0, duration, *boxes.ravel().tolist()})
    order = np.argsort(boxes.sum(axis=1), kind="stable").tolist()
    best = -np.inf
    for chosen in itertools.combinations(order, count):
        for cuts in itertools.combinations_with_replacement(ends, 2 * count):
            segments = list(zip(cuts[::2], cuts[1::2], strict=True))
            if all(start < end for start, end in segments):
                found = sum(
                    scores[one] * iou(span, boxes[one])
                    for one, span in zip(chosen, segments, strict=True)
                )
                best = max(
                    best, found - cost * (duration - sum(end - start for start, end in segments))
                )
    return best


@pytest.mark.parametrize("cost", [0.0, 0.02, 0.2])
def test_a_tiling_of_every_count_is_the_best_of_all(cost):
    chance = np.random.default_rng(0)
    for _ in range(4):
        starts = chance.uniform(0, 15, 4)
        boxes = np.stack([starts, starts + chance.uniform(2, 5, 4)], axis=1)
        scores = chance.uniform(0.05, 1.0, 4)
        found = tile(boxes, scores, 20.0, most=2, cost=cost)
        assert [len(one.proposals) for one in found] == [0, 1, 2]
        for one in found:
            assert one.worth == pytest.approx(
                best_by_hand(boxes, scores, 20.0, len(one.proposals), cost)
            )
            own = sum(
                scores[number] * iou(span, boxes[number])
                for number, span in zip(one.proposals, one.spans, strict=True)
            )
            assert own - cost * (20.0 - np.diff(one.spans).sum()) == pytest.approx(one.worth)


BOXES = np.array([[0.0, 9.0], [11.0, 20.0], [1.0, 10.0], [22.0, 30.0]])
SURE = np.array([0.9, 0.8, 0.5, 0.7])


def proposals(count=3):
    return Proposals(30.0, SURE, BOXES, np.where(np.arange(6) == count, 9.0, 0.0))


def test_segments_meet_where_a_gap_costs_and_stay_as_they_are_where_it_does_not():
    (*_, whole) = tile(BOXES, SURE, 30.0, most=3, cost=0.1)
    assert whole.proposals == (0, 1, 3)
    assert whole.spans[0, 0] == 0.0
    assert whole.spans[-1, 1] == 30.0
    np.testing.assert_array_equal(whole.spans[1:, 0], whole.spans[:-1, 1])
    (*_, free) = tile(BOXES, SURE, 30.0, most=3, cost=0.0)
    np.testing.assert_array_equal(free.spans, BOXES[[0, 1, 3]])
    assert free.worth == pytest.approx(2.4)


def test_the_count_weighs_what_is_found_against_what_is_there():
    one, two = (
        Segmentation(tuple(range(count)), np.zeros((count, 2)), worth)
        for count, worth in ((1, 0.9), (2, 1.2))
    )
    sure_of_two = np.array([0.0, 0.0, 1.0])
    assert expected_f1(one, sure_of_two) == pytest.approx(0.9 / 1.5)
    assert expected_f1(two, sure_of_two) == pytest.approx(0.6)


def test_describing_takes_the_tiling_and_its_segments():
    queries, spans = tile_proposals(proposals(), cover=1.0)
    assert queries == tiling_selector(1.0)(0, proposals())[0] == [0, 1, 3]
    assert np.diff(spans).sum() == pytest.approx(30.0)
    assert tile_proposals(proposals(), cover=1.0, count=1)[1].shape == (1, 2)
    assert tile_proposals(proposals(), cover=1.0, count=0)[0] == []
    assert tile_proposals(proposals(0), cover=1.0, floor=0.95)[0] == []


def test_no_proposal_leaves_nothing():
    (none,) = tile(np.zeros((0, 2)), np.zeros(0), 10.0, most=3, cost=1.0)
    assert none.proposals == ()
    assert none.worth == -10.0
