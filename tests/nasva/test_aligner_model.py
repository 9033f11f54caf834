from dataclasses import replace

import numpy as np
import pytest
import torch
from aligner_samples import batch, sample, tiny
from torch.testing import assert_close

from stepline.errors import ShapeError
from stepline.models.nasva import model as rows
from stepline.models.nasva.loss import grounding_loss
from stepline.models.nasva.model import Aligner, PackedRows, compute_dot_products
from stepline.models.nasva.settings import AlignerLossSettings, AlignerNetworkSettings
from stepline.models.training.batches import Sample, collate

FORMS = ["released", "paper"]


def fresh(seed=0, **changes):
    torch.manual_seed(seed)
    return Aligner(tiny(**changes)).eval()


def train(model, data, steps, rate, *, autocast=False):
    """Return the loss before each of some steps of AdamW on one batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    model.train()
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = grounding_loss(model(data), data).mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("form", FORMS)
def test_padding_never_changes_a_score(form):
    model, long = fresh(form=form), sample(2, seconds=31, texts=6)
    short = sample(1, seconds=14, texts=3, ordered=True)
    with torch.inference_mode():
        alone = model(collate([short])).scores[0]
        padded = model(collate([short, long])).scores[0, :3, :14]
    assert_close(padded, alone, atol=2e-6, rtol=0)


def test_what_stands_in_the_padding_never_matters():
    model, data = fresh(), batch()
    noisy = replace(
        data,
        video=data.video + 50 * data.video_pad[..., None],
        text=data.text - 50 * data.text_pad[..., None],
    )
    with torch.inference_mode():
        there, here = model(noisy).scores[1, :3, :14], model(data).scores[1, :3, :14]
    assert_close(there, here, atol=2e-6, rtol=0)


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_texts_matters_only_where_they_are_in_order(form):
    model, given = fresh(form=form), sample(3)
    torch.nn.init.normal_(model.text_place.weight)
    turned = Sample(
        "turned", given.video, given.text[::-1].copy(), given.positive[::-1].copy(), ordered=False
    )
    with torch.inference_mode():
        steps = [model(collate([one])).scores[0] for one in (given, turned)]
        told = [model(collate([replace(one, ordered=True)])).scores[0] for one in (given, turned)]
    assert_close(steps[1].flip(0), steps[0], atol=2e-6, rtol=0)
    assert (told[1].flip(0) - told[0]).abs().max() > 1e-2


def test_order_is_each_videos_own():
    model, told, untold = fresh(), sample(1, ordered=True), sample(2)
    torch.nn.init.normal_(model.text_place.weight)
    with torch.inference_mode():
        both = model(collate([told, untold])).scores
        alone = [model(collate([one])).scores[0] for one in (told, untold)]
    assert_close(both, torch.stack(alone), atol=2e-6, rtol=0)


def test_the_time_of_a_second_matters_in_both_forms():
    given = sample(4)
    turned = replace(given, video=given.video[::-1].copy())
    for form in FORMS:
        model = fresh(form=form)
        with torch.inference_mode():
            there, back = (model(collate([one])).scores[0] for one in (given, turned))
        assert (back.flip(1) - there).abs().max() > 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_one_batch_can_be_overfitted(form):
    data, model = batch(), fresh(form=form)
    losses = train(model, data, 80, 3e-3)
    assert losses[0] > 1.0
    assert losses[-1] < 0.05
    with torch.inference_mode():
        best = model.eval()(data).scores.masked_fill(data.video_pad[:, None], -1).argmax(dim=2)
    hits = data.positive.gather(2, best[..., None]).squeeze(2)
    assert bool((hits | data.text_pad).all())


def loss_of_each_form(aligned, data):
    settings = [AlignerLossSettings(form=form) for form in ("paper", "release")]
    return [grounding_loss(aligned, data, form).mean.item() for form in settings]


def test_it_learns_under_bf16_with_scores_kept_in_float32():
    data, model = batch(), fresh()
    losses = train(model, data, 60, 3e-3, autocast=True)
    assert losses[-1] < 0.3 * losses[0]
    aligned = model.eval()(data)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(data).text.dtype == torch.float32
        # autocast does reach the network
        there, here = (
            compute_dot_products(one.text[-2:], one.video) for one in (aligned, model(data))
        )
        assert not torch.equal(there, here)
        scores, losses = aligned.scores, loss_of_each_form(aligned, data)
    assert torch.equal(scores, aligned.scores)
    assert losses == loss_of_each_form(aligned, data)


def test_unit_variance_makes_the_length_of_a_row_not_matter():
    data = batch()
    louder = replace(data, video=data.video * 0.01, text=data.text * 7)
    with torch.inference_mode():
        scaled, raw = fresh(), fresh(feature_scale="none")
        assert_close(scaled(louder).scores, scaled(data).scores, atol=1e-5, rtol=0)
        assert (raw(louder).scores - raw(data).scores).abs().max() > 1e-3


def test_attention_dropout_is_off_unless_asked_for():
    data = batch()
    for share, same in ((0.0, True), (0.5, False)):
        model = fresh(attention_dropout=share).train()
        assert torch.equal(model(data).scores, model(data).scores) is same


def test_each_decoder_layer_gives_a_matrix_of_cosines():
    model, data = fresh(), batch()
    aligned = model(data)
    assert compute_dot_products(aligned.text[-2:], aligned.video).shape == (2, 2, 4, 20)
    assert torch.equal(compute_dot_products(aligned.text[-1:], aligned.video)[0], aligned.scores)
    assert aligned.scores.abs().max() <= 1 + 1e-6
    assert aligned.alignability_logits is None
    assert fresh(alignability=True)(data).alignability_logits.shape == (2, 4)


def test_the_default_has_the_released_size():
    with torch.device("meta"):
        model = Aligner(AlignerNetworkSettings())
    # less its unused heads
    assert sum(weight.numel() for weight in model.parameters()) == 9_421_827 - 514 - 49_537


def test_every_weight_is_used_and_gets_a_gradient():
    model = fresh(alignability=True)
    aligned = model(batch())
    (grounding_loss(aligned, batch()).mean + aligned.alignability_logits.sum()).backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


def test_inputs_that_do_not_fit_are_refused():
    model = fresh()
    with pytest.raises(ShapeError, match="video features have width 12, the model takes 5"):
        fresh(video_width=5)(batch())
    with pytest.raises(ShapeError, match="17 texts in order are more than the 16 positions"):
        model(collate([sample(seconds=80, texts=17, ordered=True)]))
    with pytest.raises(ShapeError, match="at least one feature row"):
        empty = batch()
        model(replace(empty, video=empty.video[:, :0], video_pad=empty.video_pad[:, :0]))
    assert model(collate([sample(seconds=80, texts=17)])).scores.shape == (1, 17, 80)


def test_settings_that_no_network_can_have_are_refused():
    with pytest.raises(ValueError, match="width 30 must be even and a multiple of heads 4"):
        tiny(width=30)


def test_no_texts_or_only_padding_give_finite_scores():
    model = fresh()
    nothing = Sample(
        "n", sample().video, np.zeros((0, 12), np.float32), np.zeros((0, 20), bool), ordered=True
    )
    assert model(collate([nothing])).scores.shape == (1, 0, 20)
    assert bool(model(collate([nothing, sample()])).scores.isfinite().all())


PAD = torch.tensor([[False, False, True], [False, True, True], [True, True, True]])


def test_padding_is_left_out_and_comes_back_as_zeros():
    layout = PackedRows.from_padding_mask(PAD, keep_fully_padded=False)
    values = torch.arange(1, 10.0).view(3, 3, 1)
    packed = layout.pack(values)
    assert layout.lengths == (2, 1, 0)
    assert packed[:, 0].tolist() == [1, 2, 4]
    assert layout.unpack(packed)[..., 0].tolist() == [[1, 2, 0], [4, 0, 0], [0, 0, 0]]
    assert layout.unpack(packed.expand(2, -1, -1)).shape == (2, 3, 3, 1)


def test_a_video_of_nothing_but_padding_can_keep_all_of_it():
    assert PackedRows.from_padding_mask(PAD, keep_fully_padded=True).lengths == (2, 1, 3)
    whole = PackedRows.from_padding_mask(torch.zeros_like(PAD), keep_fully_padded=True)
    assert (whole.has_padding_rows, whole.key_keep) == (True, None)


def test_little_padding_is_masked(monkeypatch):
    monkeypatch.setattr(rows, "PACKING_PAYS", 1)
    layout = PackedRows.from_padding_mask(PAD, keep_fully_padded=True)
    assert layout.has_padding_rows
    assert layout.key_keep[:, 0, 0].int().tolist() == [[1, 1, 0], [1, 0, 0], [1, 1, 1]]
    assert layout.unpack(layout.pack(torch.ones(3, 3, 1))).sum() == 9


def test_gradients_reach_what_was_left_in():
    values = torch.ones(3, 3, 1, requires_grad=True)
    layout = PackedRows.from_padding_mask(PAD, keep_fully_padded=False)
    layout.unpack(layout.pack(values) * 2).sum().backward()
    assert values.grad[..., 0].tolist() == [[2, 2, 0], [2, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(("seconds", "texts"), [(14, 6), (27, 2), (14, 2), (27, 6)])
def test_scores_are_the_same_whichever_padding_is_left_out(monkeypatch, seconds, texts):
    data = batch(sample(1, seconds=28, texts=6), sample(2, seconds=seconds, texts=texts))
    model = fresh()
    found = []
    for least in (0.1, 1):
        monkeypatch.setattr(rows, "PACKING_PAYS", least)
        with torch.inference_mode():
            found.append(model(data).scores[~(data.text_pad[:, :, None] | data.video_pad[:, None])])
    assert_close(*found, atol=2e-6, rtol=0)
