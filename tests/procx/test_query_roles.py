"""Queries by role: a second set for words, which reads at the boxes of the first and moves none."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from small_network import PDVC_LOSSES, SENTENCES, VOCABULARY, made, network, sample, three, tiny
from torch.testing import assert_close

from stepline.models.procx.checkpoint import TrainingFeatures, load_model, write_model
from stepline.models.procx.inference import generate
from stepline.models.procx.losses import (
    caption_loss,
    compute_batch_losses,
    compute_localization_losses,
    compute_weighted_losses,
)
from stepline.models.procx.matcher import QueryIndex
from stepline.models.procx.settings import LossSettings

OLD_FILE = Path(__file__).parents[1] / "golden" / "inputs" / "networks" / "procx.safetensors"
SYSTEMS = [("key-aware", "transformer", LossSettings()), ("vanilla", "lstm", PDVC_LOSSES)]
# parts of the network that say where a step is, and how sure that is
PLACE_PARTS = ("queries.", "query_places.", "reference.", "decoder.", "heads.")


def by_role(form="key-aware", kind="transformer"):
    return tiny(form, kind, query_form="roles")


def look(model, samples, settings):
    with torch.no_grad():
        return model.eval()(made(samples, settings).videos)


def gradient_sizes(model):
    """Return the sum of the sizes of each weight's gradient, 0 without one."""
    sizes = {}
    for name, weight in model.named_parameters():
        sizes[name] = 0.0 if weight.grad is None else float(weight.grad.abs().sum())
    return sizes


def test_words_have_queries_of_the_same_shape_and_shared_ones_are_the_same():
    output = look(network(by_role()), three(), by_role())
    assert output.word_queries.shape == output.queries.shape == (2, 3, 8, 32)
    assert not torch.equal(output.word_queries, output.queries)
    shared = look(network(), three(), tiny())
    assert shared.word_queries is shared.queries


@pytest.mark.parametrize(("form", "kind", "settings"), SYSTEMS)
def test_a_second_set_changes_no_place(form, kind, settings):
    shared = network(tiny(form, kind), stirred=True)
    model = network(by_role(form, kind), seed=1)
    model.load_state_dict(shared.state_dict(), strict=False)
    before = look(shared, three(), tiny(form, kind)).predictions
    after = look(model, three(), by_role(form, kind)).predictions
    for name in ("logits", "boxes", "counts"):
        assert torch.equal(getattr(before, name), getattr(after, name))


@pytest.mark.parametrize(("form", "kind", "settings"), SYSTEMS)
def test_no_gradient_of_words_reaches_what_places_them(form, kind, settings):
    made_of = by_role(form, kind)
    model, batch = network(made_of, stirred=True), made(three(), made_of)
    losses = compute_batch_losses(model, batch, settings)
    words = {"caption", "contrast"} & set(losses)
    sum(losses[name].mean for name in words).backward()
    sizes = gradient_sizes(model)
    assert all(not size for name, size in sizes.items() if name.startswith(PLACE_PARTS))
    for name, size in sizes.items():
        if name.startswith(("word_", "encoder.")):
            assert size > 0, name


@pytest.mark.parametrize(("form", "kind", "settings"), SYSTEMS)
def test_gradients_of_all_losses_reach_every_weight(form, kind, settings):
    made_of = by_role(form, kind)
    model, batch = network(made_of, stirred=True), made([sample(), *three()], made_of)
    changes = {"text_layers": "every"}
    losses = compute_weighted_losses(model, batch, settings.model_copy(update=changes))
    sum(loss.mean for loss in losses).backward()
    without = {name for name, size in gradient_sizes(model).items() if not size}
    assert without <= {"temperature.logarithm"}  # PDVC contrasts nothing


@pytest.mark.parametrize(("form", "kind", "settings"), SYSTEMS)
def test_words_are_read_at_the_boxes_and_other_videos_change_nothing(form, kind, settings):
    made_of = by_role(form, kind)
    model = network(made_of, stirred=True).eval()
    together = look(model, [*three(), sample("none", rows=0, steps=0)], made_of)
    alone = look(model, three()[1:2], made_of)
    assert torch.isfinite(together.word_queries).all()
    assert_close(together.word_queries[:, 1:2], alone.word_queries, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        boxes = alone.predictions.boxes
        moved = model._decode_words((boxes + 0.3) % 1, alone.levels, alone.lengths, None)
    assert (moved - alone.word_queries).abs().max() > 1e-3


def test_a_network_with_roles_is_read_back_as_it_was_written(tmp_path):
    model = network(by_role(), stirred=True).eval()
    write_model(model, VOCABULARY, tmp_path / "procx.safetensors", TrainingFeatures("drawn"))
    loaded = load_model(tmp_path)
    assert loaded.model.settings == by_role()
    before, after = (look(each, three(), by_role()) for each in (model, loaded.model))
    assert torch.equal(before.word_queries, after.word_queries)
    assert torch.equal(before.predictions.boxes, after.predictions.boxes)


def test_an_older_file_is_read_with_shared_queries_and_its_own_positions():
    with safe_open(OLD_FILE, framework="pt") as file:
        settings = json.loads(file.metadata()["stepline"])["settings"]
    assert {"query_form", "position_form"}.isdisjoint(settings)
    loaded = load_model(OLD_FILE).model
    assert loaded.settings.query_form == "shared"
    assert loaded.settings.position_form == "end"
    assert loaded.places.offset == 1.0


@pytest.mark.slow
def test_one_batch_is_learnt_word_for_word():
    made_of = by_role()
    model, batch = network(made_of), made(three(), made_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
    for step in range(160):
        optimizer.param_groups[0]["lr"] = 1e-2 * min(1.0, (step + 1) / 10, 2 * (1 - step / 160))
        loss = sum(part.mean for part in compute_weighted_losses(model, batch))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    output = look(model, three(), made_of)
    losses, matches = compute_localization_losses(output.predictions, batch.targets)
    assert float(losses["giou"].mean) < 0.4  # over both layers
    last = matches.select_layer(1)
    context = model.caption_context(output, QueryIndex.last_layer(last.video, last.query))
    captions = generate(model.captioner, context)
    rows = batch.caption_rows(last.video, last.step).tolist()
    sentences = [VOCABULARY.decode(caption.tokens) for caption in captions]
    assert sentences == [SENTENCES[row] for row in rows]


def test_a_mean_over_captions_by_hand():
    """Uniform over 4 tokens but for one caption's single token, which is certain: (log 4 + 0) / 2."""
    token_pad = torch.tensor([[False, False, False], [False, True, True]])
    logits = torch.zeros(2, 3, 4)
    logits[1, 0, 0] = 100.0
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    by_caption = caption_loss(logits, tokens, token_pad, 0.0, average="captions")
    assert int(by_caption.count) == 2
    assert by_caption.mean.item() == pytest.approx(math.log(4) / 2)
    by_token = caption_loss(logits, tokens, token_pad, 0.0)
    assert by_token.mean.item() == pytest.approx(3 * math.log(4) / 4)
