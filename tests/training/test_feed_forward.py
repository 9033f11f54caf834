import pytest
import torch
from torch.testing import assert_close

from stepline.training import layers as feed_forward
from stepline.training.layers import FeedForward


@pytest.fixture(autouse=True)
def blocks_of_eight(monkeypatch):
    monkeypatch.setattr(feed_forward, "BLOCK", 8)


def by_layers(feed, rows, kept):
    """Return what PyTorch's own layers give, with the given elements kept."""
    return feed.narrow(torch.relu(feed.wide(rows)) * kept)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_blocks_give_what_the_layers_give_with_the_same_gradients(monkeypatch, share):
    torch.manual_seed(0)
    feed, rows, upstream = FeedForward(6, 20, share), torch.randn(21, 6, requires_grad=True), torch.randn(21, 6)
    stays = torch.rand(21, 20) >= share
    blocks = iter(stays.split(8))
    monkeypatch.setattr(feed_forward, "thin", lambda inner, share: inner.mul_(next(blocks)))
    given = [rows, *feed.parameters()]
    found, expected = feed(rows), by_layers(feed, rows, stays / (1 - share))
    assert_close(found, expected)
    gradients = (torch.autograd.grad((out * upstream).sum(), given) for out in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)


def test_the_share_is_dropped_in_training_and_nothing_at_rest():
    torch.manual_seed(0)
    feed, rows = FeedForward(6, 400, 0.25), torch.randn(50, 6)
    with torch.no_grad():
        feed.narrow.weight.fill_(1.0)  # each output is the sum of what is inside
        feed.narrow.bias.zero_()
        assert feed(rows)[:, 0].mean().item() == pytest.approx(feed.eval()(rows)[:, 0].mean().item(), rel=0.02)
        assert torch.equal(feed(rows), feed(rows))
        assert not torch.equal(feed.train()(rows), feed(rows))


def test_no_rows_give_no_rows():
    assert FeedForward(6, 20, 0.1)(torch.ones(0, 6)).shape == (0, 6)
