import pytest
import torch

from stepline.training import layers as dropout
from stepline.training.layers import drop, thin


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_share_is_dropped_and_the_mean_kept(share):
    torch.manual_seed(0)
    kept = drop(torch.ones(1000, 401), share, training=True)  # an odd number of elements
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)])
    assert (kept == 0).float().mean().item() == pytest.approx(share, abs=3e-3)  # 4 standard errors
    lanes = kept.flatten()[: 4 * 100_000].view(-1, 4)  # elements that share one random number
    assert torch.corrcoef((lanes.T == 0).float()).sub(torch.eye(4)).abs().max() < 0.015


def test_what_is_dropped_passes_no_gradient_and_the_rest_is_scaled():
    torch.manual_seed(0)
    rows = torch.randn(50, 20, requires_grad=True)
    kept = drop(rows, 0.3, training=True)
    kept.sum().backward()
    torch.testing.assert_close(rows.grad, (kept != 0) / 0.7)


def test_the_generator_alone_decides():
    rows = torch.ones(100)
    torch.manual_seed(5)
    first = drop(rows, 0.5, training=True)
    assert not torch.equal(drop(rows, 0.5, training=True), first)
    torch.manual_seed(5)
    assert torch.equal(drop(rows, 0.5, training=True), first)


def test_at_rest_or_without_a_share_nothing_is_dropped():
    rows = torch.randn(4, 4)
    assert drop(rows, 0.5, training=False) is rows
    assert drop(rows, 0.0, training=True) is rows
    assert drop(rows[:0], 0.5, training=True).shape == (0, 4)


def test_thinning_draws_chunk_by_chunk_and_leaves_the_rest_as_it_is(monkeypatch):
    monkeypatch.setattr(dropout, "CHUNK", 10)
    torch.manual_seed(0)
    rows = torch.full((99, 101), 3.0)  # the last chunk is of 9
    thin(rows, 0.3)
    assert set(rows.unique().tolist()) == {0.0, 3.0}
    assert (rows == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)  # 4 standard errors
    chunks = rows.view(-1)[:9990].view(-1, 10)
    assert len(chunks.unique(dim=0)) > 100  # no chunk repeats another's numbers
