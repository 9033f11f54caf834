import json

import pytest
import torch
from torch.testing import assert_close

from stepline.procx.matcher import boxes_to_spans, giou, iou, spans_to_boxes


def test_center_and_length_are_edges_and_back():
    boxes = torch.tensor([[0.5, 0.2], [0.1, 0.0], [0.9, 0.4]])
    assert_close(boxes_to_spans(boxes), torch.tensor([[0.4, 0.6], [0.1, 0.1], [0.7, 1.1]]))
    assert_close(spans_to_boxes(boxes_to_spans(boxes)), boxes)


def test_the_official_values_are_met(shared):
    case = json.loads((shared / "metric_cases" / "pdvc_losses.json").read_text())["box_1d"]
    first, second = torch.tensor(case["A_xy"])[:, None], torch.tensor(case["B_xy"])[None]
    assert_close(iou(first, second), torch.tensor(case["iou"]), atol=1e-6, rtol=0)
    assert_close(giou(first, second), torch.tensor(case["giou"]), atol=1e-6, rtol=0)
    assert_close(0.5 * (1 + giou(first, second)), torch.tensor(case["g_scaled=0.5*(1+giou)"]), atol=1e-6, rtol=0)


def test_giou_by_hand():
    apart = giou(torch.tensor([0.0, 0.2]), torch.tensor([0.6, 1.0])).item()  # a gap of 0.4 in a hull of 1
    assert apart == pytest.approx(-0.4, abs=1e-4)
    assert giou(torch.tensor([0.0, 0.5]), torch.tensor([0.25, 0.75])).item() == pytest.approx(1 / 3, abs=1e-4)


@pytest.mark.parametrize("spans", [[[0.3, 0.3], [0.3, 0.3]], [[0.3, 0.3], [0.7, 0.7]], [[0.0, 1.0], [0.5, 0.5]]])
def test_boxes_without_length_have_finite_values_and_gradients(spans):
    first = torch.tensor(spans[0], requires_grad=True)
    value = giou(first, torch.tensor(spans[1]))
    value.backward()
    assert -1 < value.item() <= 0
    assert torch.isfinite(first.grad).all()
