import pytest
import torch
from small_network import SENTENCES, VOCABULARY, made, network, sample, three, tiny
from torch import nn

from stepline.procx.beam_search import generate
from stepline.procx.losses import batch_losses, training_losses
from stepline.procx.matcher import QueryIndex, boxes_to_spans, hungarian_match, iou
from stepline.procx.settings import PDVC_LOSSES as PDVC
from stepline.procx.settings import LossSettings

SYSTEMS = [("key-aware", "transformer", LossSettings()), ("vanilla", "lstm", PDVC)]


def total(model, batch, settings=None):
    return sum(part.mean for part in training_losses(model, batch, settings))


def broken(model):
    """Names of the parameters without a finite gradient, and of those with a gradient of zeros."""
    none = [name for name, one in model.named_parameters() if one.grad is None or not one.grad.abs().sum()]
    odd = [name for name, one in model.named_parameters() if one.grad is not None and not one.grad.isfinite().all()]
    return none, odd


def test_gradients_reach_every_weight():
    model = network(stirred=True)
    batch = made([sample(said=True), sample("b", steps=2, said=True, seed=1)])
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
    parts = batch_losses(model, made(samples, tiny(form, kind)), settings)
    sum(part.mean for part in parts.values()).backward()
    assert all(part.mean.isfinite() for part in parts.values())
    assert broken(model)[1] == []
    if not any(one.spans for one in samples):
        assert float(parts["caption"].mean.detach()) == 0
        assert float(parts["giou"].mean.detach()) == 0
        assert float(parts["confidence"].mean.detach()) > 0


def test_parts_are_weighted_as_the_paper_has_them():
    model, batch = network(), made(three())
    parts = batch_losses(model, batch)
    weights = {"giou": 4.0, "l1": 0.5, "confidence": 2.0, "count": 0.5, "caption": 5.0, "contrast": 0.8}
    assert set(parts) == set(weights)
    expected = sum(weight * float(parts[name].mean.detach()) for name, weight in weights.items())
    assert float(total(model, batch).detach()) == pytest.approx(expected, rel=1e-5)


def test_the_baseline_captions_every_layer_and_counts_each():
    settings = tiny("vanilla", "lstm")
    model, batch = network(settings), made(three(), settings)
    last = batch_losses(model, batch, PDVC.model_copy(update={"text_layers": "last"}))["caption"]
    every = batch_losses(model, batch, PDVC)["caption"]
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
    pairs = hungarian_match(said.logits, said.boxes, batch.targets).of_layer(1)
    assert (
        iou(boxes_to_spans(pairs.of_queries(said.boxes)), boxes_to_spans(pairs.of_steps(batch.targets.boxes))).min()
        > 0.9
    )
    assert said.counts[-1].argmax(dim=-1).tolist() == [3, 2, 0]
    found = []
    for video, count in enumerate((3, 2, 0)):
        surest = said.logits[-1, video].topk(count).indices
        queries = surest[said.boxes[-1, video, surest, 0].argsort()]  # in time
        context = model.context(seen, QueryIndex.last_layer(torch.full_like(queries, video), queries))
        found += [VOCABULARY.decode(one.tokens) for one in generate(model.captioner, context)]
    assert found == list(SENTENCES)
    assert (said.logits[-1, 2] < 0).all()  # no step: sure of nothing
