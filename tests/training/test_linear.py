import pytest
import torch
from torch.testing import assert_close

from stepline.training import layers as linear
from stepline.training.layers import Linear, affine


@pytest.mark.parametrize("least", [0, 2**60])
def test_it_is_the_linear_layer_with_its_gradients(monkeypatch, least):
    monkeypatch.setattr(linear, "LARGE", least)
    torch.manual_seed(0)
    rows, weight, bias = torch.randn(2, 7, 12), torch.randn(5, 12), torch.randn(5)
    given = [part.requires_grad_() for part in (rows, weight, bias)]
    upstream = torch.randn(2, 7, 5)
    found, expected = affine(*given), torch.nn.functional.linear(*given)
    assert_close(found, expected)
    gradients = (torch.autograd.grad((out * upstream).sum(), given) for out in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)


def test_other_types_and_autocast_go_pytorchs_own_way(monkeypatch):
    monkeypatch.setattr(linear, "LARGE", 0)
    layer, rows = Linear(4, 3), torch.ones(2, 4)
    assert layer.double()(rows.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.float()(rows).dtype == torch.bfloat16


def test_no_rows_give_no_rows(monkeypatch):
    monkeypatch.setattr(linear, "LARGE", 1)
    assert Linear(4, 3)(torch.ones(0, 4)).shape == (0, 3)
