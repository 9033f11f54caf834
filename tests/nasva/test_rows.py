import pytest
import torch
from aligner_samples import batch, sample, tiny
from torch.testing import assert_close

from stepline.nasva import model as rows
from stepline.nasva.model import Aligner, PackedRows

PAD = torch.tensor([[False, False, True], [False, True, True], [True, True, True]])


def test_padding_is_left_out_and_comes_back_as_zeros():
    layout = PackedRows.of(PAD, never_none=False)
    values = torch.arange(1, 10.0).view(3, 3, 1)
    packed = layout.pack(values)
    assert layout.lengths == (2, 1, 0)
    assert packed[:, 0].tolist() == [1, 2, 4]
    assert layout.unpack(packed)[..., 0].tolist() == [[1, 2, 0], [4, 0, 0], [0, 0, 0]]
    assert layout.unpack(packed.expand(2, -1, -1)).shape == (2, 3, 3, 1)


def test_a_video_of_nothing_but_padding_can_keep_all_of_it():
    assert PackedRows.of(PAD, never_none=True).lengths == (2, 1, 3)


def test_no_padding_needs_no_mask():
    layout = PackedRows.of(torch.zeros(2, 3, dtype=torch.bool), never_none=True)
    assert layout.even
    assert layout.key_keep is None


def test_little_padding_is_masked(monkeypatch):
    monkeypatch.setattr(rows, "PACKING_PAYS", 1)
    layout = PackedRows.of(PAD, never_none=True)
    assert layout.even
    assert layout.key_keep[:, 0, 0].tolist() == [[True, True, False], [True, False, False], [True, True, True]]
    assert layout.unpack(layout.pack(torch.ones(3, 3, 1))).sum() == 9


def test_gradients_reach_what_was_left_in():
    values = torch.ones(3, 3, 1, requires_grad=True)
    layout = PackedRows.of(PAD, never_none=False)
    layout.unpack(layout.pack(values) * 2).sum().backward()
    assert values.grad[..., 0].tolist() == [[2, 2, 0], [2, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(("seconds", "texts"), [(14, 6), (27, 2), (14, 2), (27, 6)])
def test_scores_are_the_same_whichever_padding_is_left_out(monkeypatch, seconds, texts):
    torch.manual_seed(0)
    data, model = batch(sample(1, seconds=28, texts=6), sample(2, seconds=seconds, texts=texts)), Aligner(tiny()).eval()
    found = []
    for least in (0.1, 1):
        monkeypatch.setattr(rows, "PACKING_PAYS", least)
        with torch.inference_mode():
            found.append(model(data).scores[~(data.text_pad[:, :, None] | data.video_pad[:, None])])
    assert_close(*found, atol=2e-6, rtol=0)
