from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from small_network import made, network, sample, three, tiny
from torch.testing import assert_close

from stepline.models.procx.batch import VideoBatch
from stepline.models.procx.inference import generate
from stepline.models.procx.matcher import QueryIndex
from stepline.models.procx.model import fuse_levels, sinusoidal_encoding, standardise

FORMS = [("key-aware", "transformer"), ("vanilla", "lstm")]


def look(model, samples, settings=None):
    with torch.no_grad():
        return model.eval()(made(samples, settings).videos)


def picked(video, query):
    return QueryIndex.last_layer(torch.tensor(video), torch.tensor(query))


def said(model, seen, video, query):
    """Logits of a fixed sentence's words, of the last layer's queries."""
    tokens = torch.arange(3, 8).expand(len(video), -1)
    with torch.no_grad():
        context = model.caption_context(seen, picked(video, query))
        return model.captioner(tokens, torch.zeros_like(tokens, dtype=torch.bool), context).logits


def test_shapes_are_by_layer_video_and_query():
    seen = look(network(), three())
    assert seen.predictions.logits.shape == (2, 3, 8)
    assert seen.predictions.boxes.shape == (2, 3, 8, 2)
    assert seen.predictions.counts.shape == (2, 3, 7)
    assert seen.queries.shape == (2, 3, 8, 32)
    assert seen.lengths == (32, 16, 8, 4)
    assert seen.fused.shape == (3, 32, 32)


@pytest.mark.parametrize(("form", "kind"), FORMS)
def test_other_videos_of_the_batch_change_nothing(form, kind):
    settings = tiny(form, kind)
    model = network(settings, stirred=True)
    alone, together = look(model, three()[1:2], settings), look(model, three(), settings)
    near = {"atol": 1e-5, "rtol": 1e-5}
    for name in ("logits", "boxes", "counts"):
        whole, own = (getattr(seen.predictions, name) for seen in (together, alone))
        assert_close(whole[:, 1:2], own, **near)
    words = said(model, together, [0, 1], [2, 3])[1:]
    assert_close(words, said(model, alone, [0], [3]), **near)


@pytest.mark.parametrize(("form", "kind"), FORMS)
def test_an_empty_video_is_defined_and_changes_no_other(form, kind):
    settings = tiny(form, kind)
    model = network(settings, stirred=True)
    nothing = [sample("none", rows=0, steps=0)]
    seen, without = look(model, [*three(), *nothing], settings), look(model, three(), settings)
    assert seen.empty.tolist() == [False, False, False, True]
    assert torch.isfinite(seen.predictions.boxes).all()
    assert torch.isfinite(said(model, seen, [3], [0])).all()
    assert_close(seen.predictions.boxes[:, :3], without.predictions.boxes, atol=1e-5, rtol=1e-5)
    context = model.caption_context(look(model, nothing, settings), picked([0], [1]))
    assert len(generate(model.captioner, context)) == 1


@pytest.mark.parametrize(("form", "kind"), FORMS)
def test_a_video_of_one_row_and_a_network_of_one_row_are_defined(form, kind):
    short = [sample(rows=1, duration=1.0, steps=1)]
    for rows in (1, 32):
        settings = tiny(form, kind, rows=rows)
        seen = look(network(settings), short, settings)
        assert torch.isfinite(seen.predictions.boxes).all()
        assert seen.lengths[-1] == max(1, rows // 8)


def test_numbers_of_a_video_are_one_on_average_and_zero_stays_zero():
    # root mean squares 2.5 and 0
    values = torch.tensor([[[3.0, 0.0], [4.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert_close(standardise(values), values / 2.5)


@pytest.mark.parametrize("settings", [tiny(), tiny(standardise=False)])
def test_the_scale_of_features_matters_only_where_they_are_taken_as_given(settings):
    model, one = network(settings, stirred=True), sample()
    small = replace(one, values=one.values / 100)
    told, scaled = (look(model, [each], settings).predictions.boxes for each in (one, small))
    assert torch.allclose(told, scaled, atol=1e-5) == settings.standardise


def test_each_layer_moves_the_boxes_of_the_one_before():
    model = network()
    with torch.no_grad():
        model.heads[1].box[-1].bias.copy_(torch.tensor([1.0, 0.0]))
        first, second = look(model, three()).predictions.boxes
    assert_close(second.logit(), first.logit() + torch.tensor([1.0, 0.0]), atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        start = model.reference(model.query_places.weight).sigmoid()[:, 0]
    assert_close(first[0, :, 0], start)
    assert_close(first[..., 1], torch.full((3, 8), torch.tensor(-2.0).sigmoid().item()))


def test_a_fresh_network_is_unsure_of_every_query():
    sure = look(network(), three()).predictions.logits.sigmoid()
    assert sure.max() < 0.1


def test_durations_beyond_the_longest_look_alike():
    model = network(stirred=True).eval()
    values = made(three()).videos.values[:1].expand(3, -1, -1)
    with torch.no_grad():
        counts = model(VideoBatch(values, torch.tensor([20.0, 64.0, 900.0]))).predictions.counts[-1]
    assert_close(counts[1], counts[2], atol=1e-5, rtol=1e-5)
    assert (counts[0] - counts[1]).abs().max() > 1e-4


def test_levels_are_stretched_and_added():
    """A level of 4 and one of 2 rows: linear between the middles, the ends held."""
    levels = torch.tensor([[1.0, 1, 1, 1, 0, 4]])[..., None]
    assert_close(fuse_levels(levels, (4, 2))[0, :, 0], torch.tensor([1.0, 2.0, 4.0, 5.0]))


def test_positions_are_sines_and_cosines_in_turn():
    """At half of the video and width 4 the angles are pi and pi / 100."""
    found = sinusoidal_encoding(torch.tensor([0.5]), 4)
    wanted = torch.tensor([[0.0, -1.0, np.sin(np.pi / 100), np.cos(np.pi / 100)]])
    assert_close(found, wanted.float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("form", "kind"), FORMS)
def test_its_state_makes_it_again(form, kind):
    settings = tiny(form, kind)
    first, second = network(settings, seed=1), network(settings, seed=2)
    second.load_state_dict(load(save(first.state_dict())))
    one, other = look(first, three(), settings), look(second, three(), settings)
    assert_close(one.predictions.boxes, other.predictions.boxes, atol=0, rtol=0)
    assert_close(said(first, one, [0], [1]), said(second, other, [0], [1]), atol=0, rtol=0)


def test_the_lstm_looks_at_its_own_box_alone():
    """Features far from a caption's box change the video that other captions see, not this one's
    words."""
    settings = tiny("vanilla", "lstm")
    model = network(settings, stirred=True).eval()
    seen = look(model, three()[:1], settings)
    seen.predictions.boxes[-1, 0, 0] = torch.tensor([0.1, 0.1])
    before = said(model, seen, [0], [0])
    seen.levels[:, 28:32] += 5.0  # the end of the finest level
    assert_close(said(model, seen, [0], [0]), before)
    seen.levels[:, 2:5] += 5.0
    assert (said(model, seen, [0], [0]) - before).abs().max() > 1e-3


@pytest.mark.slow
# the compiler's own doing
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("form", ["key-aware", "vanilla"])
def test_compiling_breaks_no_graph_and_changes_nothing(form):
    model, batch = network(tiny(form), stirred=True), made(three())
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    one, other = model(batch.videos), compiled(batch.videos)
    assert_close(other.predictions.boxes, one.predictions.boxes)
    other.queries.square().sum().backward()
    assert model.queries.weight.grad.isfinite().all()
