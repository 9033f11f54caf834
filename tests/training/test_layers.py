"""Each CPU kernel is beside the plain form of PyTorch that it equals."""

import pytest
import torch
from torch.testing import assert_close

from stepline.models.training import layers
from stepline.models.training.layers import FeedForward, Linear, dropout, dropout_in_place, linear


@pytest.mark.parametrize("least", [0, 2**60])
def test_linear_is_pytorchs_with_its_gradients(monkeypatch, least):
    monkeypatch.setattr(layers, "MIN_ONEDNN_PRODUCTS", least)
    torch.manual_seed(0)
    rows, weight, bias = torch.randn(2, 7, 12), torch.randn(5, 12), torch.randn(5)
    given = [part.requires_grad_() for part in (rows, weight, bias)]
    upstream = torch.randn(2, 7, 5)
    found, expected = linear(*given), torch.nn.functional.linear(*given)
    assert_close(found, expected)
    gradients = (torch.autograd.grad((out * upstream).sum(), given) for out in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)


def test_linear_of_other_types_and_autocast_go_pytorchs_own_way(monkeypatch):
    monkeypatch.setattr(layers, "MIN_ONEDNN_PRODUCTS", 0)
    layer, rows = Linear(4, 3), torch.ones(2, 4)
    assert layer.double()(rows.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.float()(rows).dtype == torch.bfloat16


def test_linear_of_no_rows_is_no_rows(monkeypatch):
    monkeypatch.setattr(layers, "MIN_ONEDNN_PRODUCTS", 1)
    assert Linear(4, 3)(torch.ones(0, 4)).shape == (0, 3)


@pytest.fixture
def blocks_of_eight(monkeypatch):
    monkeypatch.setattr(layers, "ROWS_PER_BLOCK", 8)


def by_layers(feed, rows, kept):
    """Return what PyTorch's own layers give, with the given elements kept."""
    return feed.narrow(torch.relu(feed.wide(rows)) * kept)


@pytest.mark.usefixtures("blocks_of_eight")
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_feed_forward_in_blocks_is_that_of_the_layers_with_its_gradients(monkeypatch, share):
    torch.manual_seed(0)
    feed = FeedForward(6, 20, share)
    rows, upstream = torch.randn(21, 6, requires_grad=True), torch.randn(21, 6)
    stays = torch.rand(21, 20) >= share
    blocks = iter(stays.split(8))
    monkeypatch.setattr(layers, "dropout_in_place", lambda inner, share: inner.mul_(next(blocks)))
    given = [rows, *feed.parameters()]
    found, expected = feed(rows), by_layers(feed, rows, stays / (1 - share))
    assert_close(found, expected)
    gradients = (torch.autograd.grad((out * upstream).sum(), given) for out in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)


@pytest.mark.usefixtures("blocks_of_eight")
def test_feed_forward_drops_in_training_and_nothing_at_rest():
    torch.manual_seed(0)
    feed, rows = FeedForward(6, 400, 0.25), torch.randn(50, 6)
    with torch.no_grad():
        feed.narrow.weight.fill_(1.0)  # each output is the sum of what is inside
        feed.narrow.bias.zero_()
        assert feed(rows)[:, 0].mean().item() == pytest.approx(
            feed.eval()(rows)[:, 0].mean().item(), rel=0.02
        )
        assert torch.equal(feed(rows), feed(rows))
        assert not torch.equal(feed.train()(rows), feed(rows))


@pytest.mark.usefixtures("blocks_of_eight")
def test_feed_forward_of_no_rows_is_no_rows():
    assert FeedForward(6, 20, 0.1)(torch.ones(0, 6)).shape == (0, 6)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_share_is_dropped_and_the_mean_kept(share):
    torch.manual_seed(0)
    kept = dropout(torch.ones(1000, 401), share, training=True)  # an odd number of elements
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)])
    assert (kept == 0).float().mean().item() == pytest.approx(share, abs=3e-3)  # 4 standard errors
    lanes = kept.flatten()[: 4 * 100_000].view(-1, 4)  # elements that share one random number
    assert torch.corrcoef((lanes.T == 0).float()).sub(torch.eye(4)).abs().max() < 0.015


def test_what_is_dropped_passes_no_gradient_and_the_rest_is_scaled():
    torch.manual_seed(0)
    rows = torch.randn(50, 20, requires_grad=True)
    kept = dropout(rows, 0.3, training=True)
    kept.sum().backward()
    torch.testing.assert_close(rows.grad, (kept != 0) / 0.7)


def test_the_generator_alone_decides():
    rows = torch.ones(100)
    torch.manual_seed(5)
    first = dropout(rows, 0.5, training=True)
    assert not torch.equal(dropout(rows, 0.5, training=True), first)
    torch.manual_seed(5)
    assert torch.equal(dropout(rows, 0.5, training=True), first)


def test_at_rest_or_without_a_share_nothing_is_dropped():
    rows = torch.randn(4, 4)
    assert dropout(rows, 0.5, training=False) is rows
    assert dropout(rows, 0.0, training=True) is rows
    assert dropout(rows[:0], 0.5, training=True).shape == (0, 4)


def test_thinning_draws_chunk_by_chunk_and_leaves_the_rest_as_it_is(monkeypatch):
    monkeypatch.setattr(layers, "ELEMENTS_PER_CHUNK", 10)
    torch.manual_seed(0)
    rows = torch.full((99, 101), 3.0)  # the last chunk is of 9
    dropout_in_place(rows, 0.3)
    assert set(rows.unique().tolist()) == {0.0, 3.0}
    assert (rows == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)  # 4 standard errors
    chunks = rows.view(-1)[:9990].view(-1, 10)
    assert len(chunks.unique(dim=0)) > 100  # no chunk repeats another's numbers
