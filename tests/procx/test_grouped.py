import pytest
import torch
from torch.testing import assert_close

from stepline.procx.captioner import KeyValueCache, VideoKeyValues, VideoSlots


def memory(count, places, keep=None, seed=0):
    chance = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, count, 2, places, 3, generator=chance)
    return KeyValueCache(keys.requires_grad_(), values.requires_grad_(), keep)


def test_seats_are_in_the_order_of_captions():
    seats = VideoSlots.of(torch.tensor([2, 0, 2, 2]), 3)
    assert seats.slot.tolist() == [0, 0, 1, 2]
    assert seats.slots == 3
    table = seats.scatter(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert table.tolist() == [[2, 0, 0], [0, 0, 0], [1, 3, 4]]
    assert seats.gather(table).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("padded", [False, True])
def test_together_captions_read_what_each_alone_would_with_its_gradients(padded):
    video = torch.tensor([1, 0, 1, 1])
    keep = torch.arange(5) < torch.tensor([[[[5]]], [[[3]]]]) if padded else None
    shared, own = memory(2, 5, keep), memory(4, 1, seed=1)
    query = torch.randn(4, 2, 6, 3, generator=torch.Generator().manual_seed(2)).requires_grad_()
    together = VideoKeyValues(shared, own, VideoSlots.of(video, 2)).attend(query)
    alone = own.concat(shared.take(video)).attend(query)
    assert_close(together, alone)
    wanted = (query, shared.keys, shared.values, own.keys, own.values)
    back = torch.randn(alone.shape, generator=torch.Generator().manual_seed(3))
    for one, other in zip(*(torch.autograd.grad(out, wanted, back) for out in (together, alone)), strict=True):
        assert_close(one, other)
