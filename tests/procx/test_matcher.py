"""Boxes and their IoU, targets, and the Hungarian matching."""

import json
from itertools import permutations

import pytest
import torch
from torch.testing import assert_close

from stepline.errors import ShapeError
from stepline.models.procx.matcher import (
    Targets,
    boxes_to_spans,
    build_targets,
    giou,
    hungarian_match,
    match_costs,
    spans_to_boxes,
)


def test_center_and_length_are_edges_and_back():
    boxes = torch.tensor([[0.5, 0.2], [0.1, 0.0], [0.9, 0.4]])
    assert_close(boxes_to_spans(boxes), torch.tensor([[0.4, 0.6], [0.1, 0.1], [0.7, 1.1]]))
    assert_close(spans_to_boxes(boxes_to_spans(boxes)), boxes)


def test_the_official_values_are_met(shared):
    case = json.loads((shared / "metric_cases" / "pdvc_losses.json").read_text())["box_1d"]
    first, second = torch.tensor(case["A_xy"])[:, None], torch.tensor(case["B_xy"])[None]
    assert_close(giou(first, second), torch.tensor(case["giou"]), atol=1e-6, rtol=0)
    scaled = torch.tensor(case["g_scaled=0.5*(1+giou)"])
    assert_close(0.5 * (1 + giou(first, second)), scaled, atol=1e-6, rtol=0)


def test_giou_by_hand():
    # a gap of 0.4 in a hull of 1
    apart = giou(torch.tensor([0.0, 0.2]), torch.tensor([0.6, 1.0])).item()
    assert apart == pytest.approx(-0.4, abs=1e-4)
    across = giou(torch.tensor([0.0, 0.5]), torch.tensor([0.25, 0.75])).item()
    assert across == pytest.approx(1 / 3, abs=1e-4)


@pytest.mark.parametrize(
    "spans", [[[0.3, 0.3], [0.3, 0.3]], [[0.3, 0.3], [0.7, 0.7]], [[0.0, 1.0], [0.5, 0.5]]]
)
def test_boxes_without_length_have_finite_values_and_gradients(spans):
    first = torch.tensor(spans[0], requires_grad=True)
    value = giou(first, torch.tensor(spans[1]))
    value.backward()
    assert -1 < value.item() <= 0
    assert torch.isfinite(first.grad).all()


def drawn(layers=2, videos=3, queries=5, counts=(2, 0, 4), seed=0):
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randn(layers, videos, queries, generator=chance)
    boxes = torch.rand(layers, videos, queries, 2, generator=chance) * 0.5 + 0.1
    starts = [(torch.rand(count, generator=chance) * 50).tolist() for count in counts]
    spans = [[(start, start + 20) for start in each] for each in starts]
    return logits, boxes, build_targets(spans, [100.0] * videos)


def test_the_official_pairs_are_met(shared):
    case = json.loads((shared / "metric_cases" / "pdvc_losses.json").read_text())["matcher"]
    logits = torch.tensor(case["logits"])[None, ..., 0]  # (1, 1, 4)
    wanted = Targets(torch.tensor([case["targets_cl"]]), torch.zeros(1, 2, dtype=torch.bool))
    pairs = hungarian_match(logits, torch.tensor(case["boxes_cl"])[None], wanted)
    found = torch.stack([pairs.query, pairs.step], dim=1).tolist()
    assert found == case["indices(query,target)"]


def test_no_other_pairing_is_cheaper():
    logits, boxes, wanted = drawn()
    pairs = hungarian_match(logits, boxes, wanted)
    costs = match_costs(logits, boxes, wanted)
    for layer in range(2):
        for video, count in enumerate([2, 0, 4]):
            mine = (pairs.layer == layer) & (pairs.video == video)
            got = costs[layer, video, pairs.query[mine], pairs.step[mine]].sum()
            ways = permutations(range(5), count)
            best = min(costs[layer, video, list(way), list(range(count))].sum() for way in ways)
            assert got.item() == pytest.approx(best.item(), abs=1e-5)


def test_each_query_and_each_step_comes_once_and_padding_never():
    logits, boxes, wanted = drawn()
    pairs = hungarian_match(logits, boxes, wanted)
    assert len(pairs) == 2 * 6
    for row in (pairs.query, pairs.step):
        assert len(torch.stack([pairs.layer, pairs.video, row]).unique(dim=1).T) == 12
    assert not wanted.box_pad[pairs.video, pairs.step].any()


def test_steps_past_the_queries_are_left_out():
    pairs = hungarian_match(*drawn(layers=2, videos=1, queries=3, counts=(10,)))
    assert len(pairs) == 6


def test_padding_in_the_middle_does_no_harm():
    logits, boxes, wanted = drawn(videos=1, counts=(3,))
    holed = Targets(wanted.boxes[:, [0, 0, 1, 2]], torch.tensor([[False, True, False, False]]))
    moved = [[0, 2, 3][step] for step in hungarian_match(logits, boxes, wanted).step.tolist()]
    assert hungarian_match(logits, boxes, holed).step.tolist() == moved


def test_no_steps_give_no_pairs():
    pairs = hungarian_match(*drawn(counts=(0, 0, 0)))
    assert len(pairs) == 0
    assert pairs.select_layer(1).query.shape == (0,)


def test_ties_are_settled_the_same_way_each_time():
    logits, boxes = torch.zeros(1, 1, 6), torch.full((1, 1, 6, 2), 0.5)
    wanted = build_targets([[(0.0, 10.0), (0.0, 10.0)]], [100.0])
    pairs = [hungarian_match(logits, boxes, wanted) for _ in range(3)]
    assert len({(tuple(p.query.tolist()), tuple(p.step.tolist())) for p in pairs}) == 1


def test_a_network_that_has_come_apart_is_an_error():
    logits, boxes, wanted = drawn()
    logits[0, 0, 0] = float("nan")
    with pytest.raises(ShapeError, match="NaN"):
        hungarian_match(logits, boxes, wanted)


def test_targets_are_fractions_and_no_step_is_dropped():
    made = build_targets([[(10.0, 30.0), (90.0, 120.0)], []], [100.0, 5.0])
    assert made.boxes[0].flatten().tolist() == pytest.approx([0.2, 0.2, 0.95, 0.1])
    assert made.counts.tolist() == [2, 0]
    many = build_targets([[(float(i), i + 1.0) for i in range(100)]], [100.0])
    assert many.counts.tolist() == [100]


@pytest.mark.parametrize("span", [(30.0, 20.0), (110.0, 120.0), (float("nan"), 3.0)])
def test_a_step_that_no_video_can_have_is_an_error(span):
    with pytest.raises(ShapeError, match="is not in"):
        build_targets([[span]], [100.0])
