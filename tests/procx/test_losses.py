"""The losses by recorded values and by hand, and their sum over a batch."""

import json
import math

import pytest
import torch
from small_network import PDVC_LOSSES as PDVC
from small_network import SENTENCES, VOCABULARY, made, network, sample, three, tiny
from torch import nn
from torch.testing import assert_close

from stepline.errors import ShapeError
from stepline.models.procx.inference import generate
from stepline.models.procx.losses import (
    caption_loss,
    compute_batch_losses,
    compute_localization_losses,
    compute_weighted_losses,
    contrastive_loss,
    count_frequencies,
    count_loss,
    focal_loss,
    info_nce,
    positive_mask,
    varifocal_loss,
)
from stepline.models.procx.matcher import (
    QueryIndex,
    boxes_to_spans,
    build_targets,
    giou,
    hungarian_match,
)
from stepline.models.procx.model import Predictions, Temperature
from stepline.models.procx.settings import LossSettings


@pytest.fixture(scope="module")
def cases(shared):
    return json.loads((shared / "metric_cases" / "pdvc_losses.json").read_text())


def test_focal_is_pdvcs(cases):
    case = cases["focal"]
    logits, targets = (torch.tensor(case[name])[..., 0] for name in ("logits", "targets"))
    losses = focal_loss(logits, targets > 0)
    used = losses.sum().item() / case["num_boxes"]
    assert used == pytest.approx(case["loss_ce_as_used"], abs=1e-6)
    official = case["loss(sigmoid_focal_loss, mean over queries,sum over batch,/num_boxes)"]
    assert losses.mean(dim=1).sum().item() / case["num_boxes"] == pytest.approx(official, abs=1e-6)


def test_varifocal_is_the_mended_equation(cases):
    case = next(value for name, value in cases.items() if name.startswith("varifocal"))
    logits = torch.tensor(case["p"]).logit()
    losses = varifocal_loss(logits, torch.tensor(case["q"]))
    assert_close(losses, torch.tensor(case["loss"]), atol=1e-6, rtol=0)


def test_a_query_without_a_step_learns_to_be_unsure():
    logits = torch.tensor([2.0], requires_grad=True)
    varifocal_loss(logits, torch.zeros(1)).sum().backward()
    assert logits.grad.item() > 0.1  # as printed, equation 13 gives exactly 0


def test_the_quality_is_a_target_and_learns_nothing():
    quality = torch.tensor([0.4], requires_grad=True)
    assert not varifocal_loss(torch.zeros(1), quality).requires_grad


@pytest.mark.parametrize("form", ["focal", "varifocal"])
def test_extreme_confidence_has_finite_gradients(form):
    logits = torch.tensor([-200.0, 200.0, -200.0, 200.0], requires_grad=True)
    if form == "focal":
        losses = focal_loss(logits, torch.tensor([True, True, False, False]))
    else:
        losses = varifocal_loss(logits, torch.tensor([0.7, 0.7, 0.0, 0.0]))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert torch.isfinite(logits.grad).all()


def test_the_count_loss_is_pdvcs(cases):
    case = cases["count"]
    logits, rates = torch.tensor(case["logits"]), torch.tensor(case["class_rate_first6"])
    soft = count_loss(logits, torch.tensor([3]), rates=rates)
    assert soft.mean().item() == pytest.approx(case["loss_gau_mask1_beta1"], abs=1e-6)


def test_the_plain_count_loss_is_a_cross_entropy():
    loss = count_loss(torch.zeros(2, 1, 4), torch.tensor([2]), "cross_entropy")
    assert_close(loss, torch.full((2, 1), math.log(4)))


@pytest.mark.parametrize("form", ["pdvc", "cross_entropy"])
def test_more_steps_than_counts_are_the_greatest_count(form):
    logits = torch.tensor([[0.3, -1.0, 0.5]])
    many, most = (count_loss(logits, torch.tensor([count]), form) for count in (100, 2))
    assert_close(many, most)


def test_rates_are_shares_of_the_training_videos():
    assert count_frequencies([1, 1, 2, 100], 4).tolist() == [0, 0.5, 0.25, 0.25]
    with pytest.raises(ShapeError, match="no video"):
        count_frequencies([], 4)


def test_infonce_by_hand():
    """Two orthogonal pairs at temperature 1: each surprise is log(e + 1) - 1."""
    same = torch.eye(2)
    found = info_nce(same, same, same.bool(), torch.tensor(1.0)).item()
    assert found == pytest.approx(2 * (math.log(math.e + 1) - 1), abs=1e-6)


def test_more_positives_are_a_share_in_the_logarithm():
    """One query, texts with products 1, 0, -1; the first two are right."""
    query, texts = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    right = torch.tensor([[True, True, False]])
    to_text = math.log(math.e + 1 + 1 / math.e) - math.log(math.e + 1)
    found = info_nce(query, texts, right, torch.tensor(1.0)).item()
    assert found == pytest.approx(0.5 * to_text, abs=1e-6)


def test_the_surprise_falls_as_learning_goes_right():
    eye, cold = torch.eye(2), torch.tensor(0.1)
    assert info_nce(eye.flip(0), eye, eye.bool(), cold) > info_nce(eye, eye, eye.bool(), cold)


def test_the_temperature_begins_at_cocas_and_never_vanishes():
    temperature = Temperature()
    assert temperature().item() == pytest.approx(0.07)
    temperature.logarithm.data.fill_(-50.0)
    assert temperature().item() == pytest.approx(0.01)


def drawn_outputs(layers=2, counts=(2, 0, 3), queries=6, classes=5, seed=0):
    chance = torch.Generator().manual_seed(seed)
    shapes = ((queries,), (queries, 2), (classes,))
    raw = []
    for shape in shapes:
        drawn = torch.randn(layers, len(counts), *shape, generator=chance)
        raw.append(drawn.requires_grad_())
    spans = [[(i * 90.0 / n, (i + 0.6) * 90.0 / n) for i in range(n)] for n in counts]
    predictions = Predictions(raw[0], raw[1].sigmoid(), raw[2])
    return raw, predictions, build_targets(spans, [90.0] * len(counts))


def units(count, seed=0):
    drawn = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
    return nn.functional.normalize(drawn, dim=1)


COUNTS = {"one empty": (2, 0, 3), "no steps": (0, 0), "100 steps": (100, 1), "too many": (7, 20)}


@pytest.mark.parametrize(
    "settings", [LossSettings(), LossSettings(count="cross_entropy", text_layers="every"), PDVC]
)
@pytest.mark.parametrize("case", COUNTS)
def test_every_case_is_finite_with_finite_gradients(case, settings):
    raw, proposed, wanted = drawn_outputs(counts=COUNTS[case])
    losses, _ = compute_localization_losses(proposed, wanted, settings)
    sum(loss.mean for loss in losses.values()).backward()
    for values in raw:
        assert torch.isfinite(values.grad).all()
    assert raw[0].grad.abs().max() > 0  # without steps too: queries learn to be unsure
    assert raw[2].grad.abs().max() > 0
    if case == "no steps":
        assert losses["giou"].mean == losses["l1"].mean == 0


def test_the_parts_are_sums_over_layers_divided_by_steps():
    _, proposed, wanted = drawn_outputs()
    whole, pairs = compute_localization_losses(proposed, wanted)
    assert len(pairs) == 10
    single = []
    for layer in range(2):
        parts = (proposed.logits[[layer]], proposed.boxes[[layer]], proposed.counts[[layer]])
        single.append(compute_localization_losses(Predictions(*parts), wanted)[0])
    for name, loss in whole.items():
        assert_close(loss.mean, single[0][name].mean + single[1][name].mean)
    assert whole["giou"].count == 5
    assert whole["count"].count == 3


@pytest.mark.parametrize(
    ("box", "logit", "expected"),
    # a perfect box teaches full confidence, one that overlaps by a third two thirds of it
    [((0.2, 0.2), 9.0, (0, 0, 0)), ((0.3, 0.2), 0.0, (2 / 3, 0.1, 2 / 3 * math.log(2)))],
)
def test_a_box_is_as_confident_as_it_fits(box, logit, expected):
    wanted = build_targets([[(10.0, 30.0)]], [100.0])
    proposed = torch.full((1, 1, 1), logit), torch.tensor([[[box]]]), torch.zeros(1, 1, 3)
    losses, _ = compute_localization_losses(Predictions(*proposed), wanted)
    found = [losses[name].mean.item() for name in ("giou", "l1", "confidence")]
    assert found == pytest.approx(expected, abs=1e-3)


def test_padding_of_targets_changes_nothing():
    _, proposed, wanted = drawn_outputs()
    more = build_targets([[(0.0, 1.0)] * 9], [90.0])
    wide = type(wanted)(
        torch.cat([wanted.boxes, more.boxes[:, :4].expand(3, -1, -1)], 1),
        torch.cat([wanted.box_pad, torch.ones(3, 4, dtype=torch.bool)], 1),
    )
    for name, loss in compute_localization_losses(proposed, wide)[0].items():
        assert_close(loss.mean, compute_localization_losses(proposed, wanted)[0][name].mean)


def test_caption_loss_by_hand():
    """Uniform over 4 tokens: log 4 a token however much is smoothed; a padded token counts
    nothing."""
    token_pad = torch.tensor([[False, False, False], [False, True, True]])
    loss = caption_loss(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64), token_pad)
    assert loss.count == 4
    assert loss.mean.item() == pytest.approx(math.log(4))


def test_smoothing_spreads_a_fifth_over_all_tokens():
    logits = torch.tensor([[[2.0, 0.0]]])
    low, high = math.log(1 + math.exp(-2)), math.log(1 + math.exp(-2)) + 2
    loss = caption_loss(logits, torch.tensor([[0]]), torch.tensor([[False]]), 0.2)
    assert loss.mean.item() == pytest.approx(0.9 * low + 0.1 * high, abs=1e-6)


@pytest.mark.parametrize("captions", [0, 2])
def test_no_caption_or_only_padding_gives_no_loss(captions):
    logits = torch.randn(captions, 3, 7, requires_grad=True)
    targets = torch.zeros(captions, 3, dtype=torch.int64)
    loss = caption_loss(logits, targets, torch.ones_like(targets, dtype=torch.bool))
    loss.mean.backward()
    assert loss.mean == 0
    assert (logits.grad == 0).all()


def test_neighbours_are_right_in_the_same_video_alone():
    _, proposed, wanted = drawn_outputs(layers=1)
    pairs = hungarian_match(proposed.logits, proposed.boxes, wanted)
    right = positive_mask(pairs, neighbours=1)
    for i in range(5):
        for j in range(5):
            near = abs(int(pairs.step[i]) - int(pairs.step[j])) <= 1
            assert right[i, j] == (near and bool(pairs.video[i] == pairs.video[j]))
    assert_close(positive_mask(pairs), torch.eye(5, dtype=torch.bool))


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (2, 3)])
@pytest.mark.parametrize("form", ["pair", "multiple"])
def test_contrast_is_finite_for_any_number_of_pairs(counts, form):
    settings = LossSettings(contrast=form)
    _, proposed, wanted = drawn_outputs(counts=counts)
    pairs = hungarian_match(proposed.logits, proposed.boxes, wanted).select_layer(1)
    assert len(pairs) == sum(counts)
    query = units(len(pairs)).requires_grad_()
    loss = contrastive_loss(query, units(len(pairs), seed=1), pairs, torch.tensor(0.01), settings)
    loss.mean.backward()
    assert torch.isfinite(query.grad).all()
    assert (loss.mean == 0) == (sum(counts) < 2)


def test_layers_are_contrasted_apart_and_summed():
    settings = LossSettings(text_layers="every")
    _, proposed, wanted = drawn_outputs()
    pairs = hungarian_match(proposed.logits, proposed.boxes, wanted)
    vectors = units(len(pairs))
    temperature = torch.tensor(0.1)
    whole = contrastive_loss(vectors, vectors, pairs, temperature, settings).mean
    apart = 0
    for n in range(2):
        own = vectors[pairs.layer == n]
        apart += contrastive_loss(own, own, pairs.select_layer(n), temperature, settings).mean
    assert_close(whole, apart)


WEIGHTS = {"giou": 4, "l1": 0.5, "confidence": 2, "count": 0.5, "caption": 5, "contrast": 0.8}


def test_weights_are_those_of_section_e2():
    for name, weight in WEIGHTS.items():
        assert getattr(LossSettings(), f"{name}_weight") == weight
    # PDVC leaves l1 and the contrast out
    settings = tiny("vanilla", "lstm")
    assert len(compute_weighted_losses(network(settings), made(three(), settings), PDVC)) == 4


SYSTEMS = [("key-aware", "transformer", LossSettings()), ("vanilla", "lstm", PDVC)]


def total(model, batch, settings=LossSettings()):
    return sum(part.mean for part in compute_weighted_losses(model, batch, settings))


def broken(model):
    """Names of the parameters without a finite gradient, and of those with a gradient of zeros."""
    none, odd = [], []
    for name, one in model.named_parameters():
        if one.grad is None or not one.grad.abs().sum():
            none.append(name)
        elif not one.grad.isfinite().all():
            odd.append(name)
    return none, odd


def test_gradients_reach_every_weight():
    model = network(stirred=True)
    batch = made([sample(), sample("b", steps=2, seed=1)])
    total(model, batch, LossSettings(contrast="multiple", text_layers="every")).backward()
    assert broken(model) == ([], [])


def test_gradients_reach_every_weight_of_the_baseline():
    model = network(tiny("vanilla", "lstm"), stirred=True)
    total(model, made(three(), tiny("vanilla", "lstm")), PDVC).backward()
    assert broken(model) == (["temperature.logarithm"], [])  # PDVC contrasts nothing


@pytest.mark.parametrize(("form", "kind", "settings"), SYSTEMS)
@pytest.mark.parametrize(
    "samples",
    [
        [sample(steps=0)],
        [sample(rows=0, steps=0)],
        [sample(rows=1, duration=1.0, steps=1), sample(rows=0, steps=2)],
        [sample(steps=100), sample(steps=0)],
    ],
    ids=["no steps", "nothing", "one row", "100 steps"],
)
def test_hard_batches_are_defined(form, kind, settings, samples):
    model = network(tiny(form, kind))
    parts = compute_batch_losses(model, made(samples, tiny(form, kind)), settings)
    sum(part.mean for part in parts.values()).backward()
    assert all(part.mean.isfinite() for part in parts.values())
    assert broken(model)[1] == []
    if not any(one.spans for one in samples):
        assert float(parts["caption"].mean.detach()) == 0
        assert float(parts["giou"].mean.detach()) == 0
        assert float(parts["confidence"].mean.detach()) > 0


def test_parts_are_weighted_as_the_paper_has_them():
    model, batch = network(), made(three())
    parts = compute_batch_losses(model, batch)
    assert set(parts) == set(WEIGHTS)
    expected = sum(weight * float(parts[name].mean.detach()) for name, weight in WEIGHTS.items())
    assert float(total(model, batch).detach()) == pytest.approx(expected, rel=1e-5)


def test_the_baseline_captions_every_layer_and_counts_each():
    settings = tiny("vanilla", "lstm")
    model, batch = network(settings), made(three(), settings)
    only = PDVC.model_copy(update={"text_layers": "last"})
    last, every = (compute_batch_losses(model, batch, form)["caption"] for form in (only, PDVC))
    assert int(every.count) == 2 * int(last.count)
    assert float(every.mean.detach()) > 1.5 * float(last.mean.detach())  # a sum over both layers


@pytest.mark.parametrize(("form", "kind", "settings"), SYSTEMS)
def test_half_precision_is_finite(form, kind, settings):
    model = network(tiny(form, kind), stirred=True)
    batch = made([*three(), sample(rows=0, steps=1)], tiny(form, kind))
    exact = float(total(model, batch, settings).detach())
    with torch.autocast("cpu", torch.bfloat16):
        loss = total(model, batch, settings)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(exact, rel=0.05)
    assert broken(model)[1] == []


@pytest.mark.parametrize(
    ("form", "kind", "settings", "rate", "steps"),
    [
        ("key-aware", "transformer", LossSettings(), 1e-2, 160),
        pytest.param("vanilla", "lstm", PDVC, 5e-3, 300, marks=pytest.mark.slow),
    ],
)
def test_one_batch_is_learnt_word_for_word(form, kind, settings, rate, steps):
    made_of = tiny(form, kind)
    model, batch = network(made_of), made(three(), made_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 10, 2 * (1 - step / steps))
        loss = total(model, batch, settings)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        seen = model(batch.videos)
    said = seen.predictions
    pairs = hungarian_match(said.logits, said.boxes, batch.targets).select_layer(1)
    boxes = pairs.gather_queries(said.boxes), pairs.gather_steps(batch.targets.boxes)
    assert giou(*map(boxes_to_spans, boxes)).min() > 0.9
    assert said.counts[-1].argmax(dim=-1).tolist() == [3, 2, 0]
    found = []
    for video, count in enumerate((3, 2, 0)):
        surest = said.logits[-1, video].topk(count).indices
        queries = surest[said.boxes[-1, video, surest, 0].argsort()]  # in time
        index = QueryIndex.last_layer(torch.full_like(queries, video), queries)
        context = model.caption_context(seen, index)
        found += [VOCABULARY.decode(one.tokens) for one in generate(model.captioner, context)]
    assert found == list(SENTENCES)
    assert (said.logits[-1, 2] < 0).all()  # no step: sure of nothing
