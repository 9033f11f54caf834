"""Positions and first weights equal PDVC's code, its formulas worked out by hand."""

import math

import pytest
import torch
from small_network import network, tiny
from torch.testing import assert_close

from stepline.models.procx.deformable_attention import DeformableAttention
from stepline.models.procx.lstm_captioner import LstmCaptioner
from stepline.models.procx.model import DecoderLayer, PositionalEncoding, reference_points
from stepline.models.procx.settings import AttentionSettings, CaptionerSettings

LENGTHS = (4, 2)


def sines(position_form):
    """Return the position's part of the encoding of levels of 4 and 2 rows, (6, 16)."""
    torch.manual_seed(0)
    attention = AttentionSettings(width=16, heads=2, levels=2)
    made_of = tiny(position_form=position_form, longest_duration=0, attention=attention)
    encoding = PositionalEncoding(made_of)
    with torch.no_grad():
        encoding.level.zero_()
        return encoding(LENGTHS, torch.tensor([20.0]))[0]


def fractions(rows):
    """Return the fraction of the video that the two slowest-turning numbers of width 2 tell."""
    return torch.atan2(rows[:, 0], rows[:, 1]) / (2 * math.pi) % 1.0


def test_a_position_is_the_middle_of_its_row():
    """PDVC: (cumsum - 0.5) / (last + 1e-6) times 2 pi: eighths of 4 rows, quarters of 2."""
    found = sines("middle")
    wanted = torch.tensor([1 / 8, 3 / 8, 5 / 8, 7 / 8, 1 / 4, 3 / 4])
    assert_close(fractions(found), wanted, atol=1e-5, rtol=0)
    assert_close(fractions(found), reference_points(LENGTHS, found), atol=1e-5, rtol=0)
    # the first row's first numbers: sine and cosine of pi/4, then of pi/4 / 10000^(2/16)
    slower = math.pi / 4 / 10_000 ** (2 / 16)
    first = torch.tensor([math.sqrt(0.5), math.sqrt(0.5), math.sin(slower), math.cos(slower)])
    assert_close(found[0, :4], first, atol=1e-5, rtol=0)


def test_older_networks_keep_the_end_of_a_row():
    wanted = torch.tensor([1 / 4, 2 / 4, 3 / 4, 1.0, 1 / 2, 1.0])
    found = fractions(sines("end")) - wanted
    assert_close((found + 0.5) % 1 - 0.5, torch.zeros(6), atol=1e-5, rtol=0)


def test_first_offsets_are_scaled_to_the_larger_axis():
    """Eight directions on a square: 1, 1, 0, -1, -1, -1, 0, 1 along time, times 1 and 2."""
    layer = DeformableAttention(AttentionSettings(width=16, heads=8, levels=1, points=2))
    side = torch.tensor([1.0, 1.0, 0.0, -1.0, -1.0, -1.0, 0.0, 1.0])
    assert_close(layer.offsets.bias.view(8, 2), torch.stack((side, 2 * side), dim=1))
    assert not layer.offsets.weight.any()


def uniform_bound(weight):
    """Return the bound of a uniform distribution by its largest of many numbers."""
    return float(weight.detach().abs().max())


@pytest.mark.parametrize("form", ["key-aware", "vanilla"])
def test_matrices_of_the_transformer_begin_by_xavier(form):
    """Xavier's bound is sqrt(6 / (in + out)); attention among queries is one matrix (3 D, D)."""
    torch.manual_seed(0)
    width, inner = 64, 128
    attention = AttentionSettings(width=width, heads=4, form=form)
    layer = DecoderLayer(tiny(attention=attention, feed_forward=inner))
    square, joint = math.sqrt(6 / (2 * width)), math.sqrt(6 / (4 * width))
    for part in (layer.among.asked, layer.among.value):
        assert uniform_bound(part.weight) == pytest.approx(joint, rel=0.01)
    for part in (layer.among.out, layer.attention.value, layer.attention.out):
        assert uniform_bound(part.weight) == pytest.approx(square, rel=0.01)
    feed = layer.feed.feed
    for part in (feed.wide, feed.narrow):
        assert uniform_bound(part.weight) == pytest.approx(math.sqrt(6 / (width + inner)), rel=0.01)
    among = (layer.among.asked, layer.among.value, layer.among.out)
    assert not any(part.bias.any() for part in among)


def test_the_lstm_begins_as_pdvcs():
    torch.manual_seed(0)
    settings = CaptionerSettings(kind="lstm", width=64, heads=4)
    captioner = LstmCaptioner(settings, 300, AttentionSettings(width=64, heads=4))
    for table in (captioner.words, captioner.out):
        assert uniform_bound(table.weight) == pytest.approx(0.1, rel=0.01)
    assert not captioner.out.bias.any()
    assert not captioner.looking.value.bias.any()
    bound = math.sqrt(6 / 128)
    assert uniform_bound(captioner.looking.value.weight) == pytest.approx(bound, rel=0.01)


def test_pyramid_and_references_begin_as_pdvcs():
    model = network(tiny())
    for step in model.pyramid.steps:
        assert not step[0].bias.any()
    assert not model.reference.bias.any()
    bound = math.sqrt(6 / 33)  # 32 in, 1 out
    assert uniform_bound(model.reference.weight) <= bound
