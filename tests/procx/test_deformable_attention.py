import json
import math

import plain_deformable as plain
import pytest
import torch
from torch.testing import assert_close

from stepline.models.procx.deformable_attention import (
    DeformableAttention,
    deformable_attention,
    key_aware_attention,
)
from stepline.models.procx.settings import AttentionSettings

LENGTHS = {"ordinary": (8, 4, 2), "unequal": (5, 11, 3), "of one": (6, 1, 1), "empty": (0, 7, 0)}
FORMS = ("vanilla", "key-aware")


def line(*values):
    """One video, one head, one number a position: (1, M, 1, 1)."""
    return torch.tensor(values)[None, :, None, None]


def points(*locations):
    """One video, one query, one head, one level: (1, 1, 1, 1, P)."""
    return torch.tensor(locations)[None, None, None, None]


def read(value, locations, lengths=None):
    """What each point alone reads."""
    eye = torch.eye(locations.shape[-1])
    lengths = lengths or (value.shape[1],)
    return [
        deformable_attention(value, locations, weights.view(1, 1, 1, 1, -1), lengths).item()
        for weights in eye
    ]


def inputs(lengths, *, dtype=torch.float32, heads=2, width=4, queries=5, count=3):
    chance = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=chance, dtype=dtype).requires_grad_()

    total, shape = sum(lengths), (2, queries, heads, len(lengths), count)
    # some outside
    locations = (0.5 + 0.7 * torch.randn(*shape, generator=chance, dtype=dtype)).requires_grad_()
    query, key, value = (draw(2, rows, heads, width) for rows in (queries, total, total))
    return query, key, value, locations, shape


def both_ways(form, lengths, dtype=torch.float32):
    """Outputs and gradients of the fast form and of the sampling one."""
    query, key, value, locations, shape = inputs(lengths, dtype=dtype)
    if form == "vanilla":
        weights = query.flatten(3)[..., :1, None] * torch.ones(shape, dtype=dtype)
        given = (value, locations, weights.detach().requires_grad_())
        ways = (deformable_attention, plain.deformable)
    else:
        given = (query, key, value, locations)
        ways = (key_aware_attention, plain.key_aware)
    back = torch.linspace(-1, 1, query.numel(), dtype=dtype).view_as(query)
    found = []
    for way in ways:
        mixed = way(*given, lengths)
        found.append((mixed, *torch.autograd.grad(mixed, given, back)))
    return found


def layer(form="key-aware", **changes):
    torch.manual_seed(0)
    sizes = {"width": 16, "heads": 4, "levels": 3, "points": 2} | changes
    made = DeformableAttention(AttentionSettings(form=form, **sizes))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def rows(count, width=16):
    return torch.randn(2, count, width, generator=torch.Generator().manual_seed(count))


def test_a_centre_reads_its_position_and_between_two_it_is_linear():
    # centres of 4 positions: 1/8, 3/8, 5/8, 7/8; 0.4 is 0.1 of a step past 3/8
    found = read(line(10.0, 20.0, 40.0, 80.0), points(0.125, 0.5, 0.4))
    assert found == pytest.approx([10, 30, 22])


def test_beyond_the_ends_values_fade_to_zero():
    # centres 1/4, 3/4; 0.0 is half a step before
    value, where = line(10.0, 80.0), points(0.0, -0.25, -3.0, 1.0, 1.5)
    assert read(value, where) == pytest.approx([5, 0, 0, 40, 0])


def test_each_level_of_attention_reads_its_own_rows():
    value = line(1.0, 2.0, 30.0)  # a level of two positions and one of one
    locations = torch.tensor([0.75, 0.5]).view(1, 1, 1, 2, 1)
    for weights, wanted in (([1.0, 0.0], 2.0), ([0.0, 1.0], 30.0)):
        weights = torch.tensor(weights).view(1, 1, 1, 2, 1)
        mixed = deformable_attention(value, locations, weights, (2, 1))
        assert mixed.item() == pytest.approx(wanted)


def test_an_empty_level_is_zero():
    locations = torch.tensor([0.5, 0.5, 0.5]).view(1, 1, 1, 3, 1)
    mixed = deformable_attention(line(5.0), locations, torch.ones(1, 1, 1, 3, 1), (0, 1, 0))
    assert mixed.item() == pytest.approx(5.0)


def test_key_aware_weights_are_the_softmax_of_scaled_products():
    # width 4, so products are halved: query ln 9 meets keys 1 and 0: exp(ln 9 / 2) = 3 against 1
    query = torch.tensor([math.log(9), 0, 0, 0]).view(1, 1, 1, 4)
    key = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]).view(1, 2, 1, 4)
    value = torch.tensor([[8.0, 0, 0, 0], [0, 4, 0, 0]]).view(1, 2, 1, 4)
    mixed = key_aware_attention(query, key, value, points(0.25, 0.75), (2,))
    assert_close(mixed.flatten(), torch.tensor([6.0, 1, 0, 0]))


def test_a_point_in_padding_takes_part_in_the_softmax():
    ones = torch.ones(1, 1, 1, 1)
    mixed = key_aware_attention(math.log(3) * ones, ones, ones, points(0.5, 9.0), (1,))
    assert mixed.item() == pytest.approx(0.75)  # exp(ln 3) of 3 + exp(0)


def test_attention_over_time_gives_the_recorded_values(shared):
    case = json.loads((shared / "metric_cases" / "deform_attn_1d.json").read_text())
    value, locations = (
        torch.tensor(case[name]) for name in ("value[N,S,M,D]", "sampling_locations[N,Lq,M,L,P]")
    )
    weights, lengths = torch.tensor(case["attention_weights"]), case["temporal_shapes"]
    mixed = deformable_attention(value, locations, weights, lengths)
    recorded = torch.tensor(case["output[N,Lq,M*D]"]).view_as(mixed)
    # PDVC on a CPU reads the border beyond the ends: what lies inside is the same
    margin = 0.5 / torch.tensor(lengths)[:, None]
    inside = ((locations >= margin) & (locations <= 1 - margin)).flatten(3).all(dim=3)
    assert inside.any()
    assert_close(mixed[inside], recorded[inside], rtol=0, atol=1e-6)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_gradients_equal_those_of_sampling(form, lengths):
    for ours, theirs in zip(*both_ways(form, lengths), strict=True):
        largest = max(1.0, float(theirs.detach().abs().max()))
        assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * largest)
    for ours, theirs in zip(*both_ways(form, lengths, torch.float64), strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_finite_differences(form):
    lengths = (4, 1, 0, 2)
    few = {"queries": 2, "width": 2, "count": 2}
    query, key, value, locations, shape = inputs(lengths, dtype=torch.float64, **few)
    if form == "vanilla":
        given = (value, locations, torch.rand(shape, dtype=torch.float64).requires_grad_())
        assert torch.autograd.gradcheck(lambda *some: deformable_attention(*some, lengths), given)
    else:
        given = (query, key, value, locations)
        assert torch.autograd.gradcheck(lambda *some: key_aware_attention(*some, lengths), given)


def test_on_a_centre_the_slope_is_that_to_the_right():
    """Where points start; a slope of zero there would never move them."""
    value, weights = line(10.0, 20.0, 50.0), torch.ones(1, 1, 1, 1, 1)
    for way in (deformable_attention, plain.deformable):
        locations = points(0.5).requires_grad_()
        way(value, locations, weights, (3,)).backward()
        assert locations.grad.item() == pytest.approx(3 * (50 - 20))


@pytest.mark.parametrize("form", FORMS)
def test_padding_is_read_as_zeros(form):
    attend, memory = layer(form), rows(14)
    pad = torch.zeros(2, 14, dtype=torch.bool)
    pad[0, 6:8] = pad[1, 11] = True
    places = torch.rand(2, 5, 3, 2)
    before = attend(rows(5), places, memory, (8, 4, 2), pad)
    filled = memory.masked_fill(pad[..., None], 1e4)
    assert_close(attend(rows(5), places, filled, (8, 4, 2), pad), before)
    assert not torch.allclose(attend(rows(5), places, memory, (8, 4, 2)), before)
    nothing = attend(rows(5), places, memory, (8, 4, 2), torch.ones_like(pad))
    assert_close(nothing, attend.out.bias.expand_as(nothing))


def test_offsets_are_positions_next_to_a_point_and_shares_of_half_a_box():
    attend = layer(width=2, heads=1, levels=2, points=2)
    torch.nn.init.zeros_(attend.offsets.weight)
    with torch.no_grad():
        attend.offsets.bias.copy_(torch.tensor([1.0, -2.0, 1.0, 0.0]))  # two points of each level
    query = torch.zeros(1, 1, 2)
    beside = attend.locations(query, torch.full((1, 1, 2, 1), 0.5), (10, 4))
    assert_close(beside.flatten(), torch.tensor([0.6, 0.3, 0.75, 0.5]))  # 1/10, -2/10, 1/4
    box = torch.tensor([0.5, 0.4]).expand(1, 1, 2, 2)
    within = attend.locations(query, box, (10, 4))
    # 0.4 * 0.5 / 2 = 0.1 an offset
    assert_close(within.flatten(), torch.tensor([0.6, 0.3, 0.6, 0.5]))


def test_points_start_on_both_sides_of_the_reference():
    attend = DeformableAttention(AttentionSettings(width=8, heads=4, levels=1, points=2))
    offsets = attend.locations(torch.randn(1, 1, 8), torch.zeros(1, 1, 1, 1), (1,)).flatten()
    # cosines of quarter turns
    assert_close(offsets, torch.tensor([1.0, 2, 0, 0, -1, -2, 0, 0]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("form", FORMS)
def test_the_layer_equals_its_parts_sampled(form):
    attend, given = layer(form), (rows(5), torch.rand(2, 5, 3, 1), rows(14), (8, 4, 2))
    assert_close(attend(*given), plain.layer(attend, *given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_half_precision_keeps_locations_exact(form):
    # bfloat16 holds 8 bits: at 250 of 256 positions it would miss by one
    attend, memory, query = layer(form, levels=1), rows(256), rows(6)
    places = torch.linspace(0.9, 1.0, 12).view(2, 6, 1, 1)
    exact = attend(query, places, memory, (256,))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attend(query, places, memory, (256,))
        locations = attend.locations(query, places, (256,))
    assert rounded.dtype == torch.bfloat16
    assert locations.dtype == torch.float32
    rounded.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in attend.parameters())
    assert float((rounded - exact).detach().abs().max()) < 0.05 * float(exact.detach().abs().max())


# the compiler's own doing
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("form", FORMS)
def test_compiling_breaks_no_graph_and_changes_nothing(form):
    attend, memory, query, places = layer(form), rows(14), rows(5), torch.rand(2, 5, 3, 2)
    compiled = torch.compile(attend, backend="eager", fullgraph=True)
    found = []
    for way in (attend, compiled):
        attend.zero_grad()
        mixed = way(query, places, memory, (8, 4, 2))
        mixed.square().sum().backward()
        found.append([mixed, *(parameter.grad.clone() for parameter in attend.parameters())])
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_location_that_is_not_a_number_gives_none_and_harms_no_other_query():
    query, key, value, locations, _ = inputs((4, 2))
    with torch.no_grad():
        locations[0, 0] = math.nan
    mixed = key_aware_attention(query, key, value, locations, (4, 2))
    assert mixed[0, 0].isnan().all()
    assert mixed[0, 1:].isfinite().all()
    assert mixed[1].isfinite().all()


def test_no_query_and_no_video_give_none():
    for videos, queries in ((2, 0), (0, 3)):
        value = torch.randn(videos, 6, 2, 4, requires_grad=True)
        mixed = deformable_attention(value, *(torch.rand(2, videos, queries, 2, 1, 3)), (6,))
        mixed.sum().backward()
        assert mixed.shape == (videos, queries, 2, 4)
        assert not value.grad.any()


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="width 10 must be a multiple of heads 4"):
        AttentionSettings(width=10, heads=4)
