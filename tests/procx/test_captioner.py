"""The captioners: what they see, and that they learn sentences by heart."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from stepline.models.procx.captioner import (
    CaptionContext,
    Captioner,
    CaptionSlots,
    KeyValueCache,
    VideoKeyValues,
)
from stepline.models.procx.inference import generate
from stepline.models.procx.losses import caption_loss
from stepline.models.procx.lstm_captioner import LstmCaptioner
from stepline.models.procx.model import Temperature
from stepline.models.procx.settings import CaptionerSettings, VocabularySettings
from stepline.models.procx.vocabulary import tokenize, train_vocabulary

SENTENCES = [
    "cut the onion into thin rings",
    "fry the onion in butter",
    "fry the onion in oil, then add garlic",
    "crack 2 eggs into the pan",
    "serve",
    "serve the eggs with toast",
]
VOCABULARY = train_vocabulary(SENTENCES, VocabularySettings(size=300, rare=1))
KINDS = {"transformer": Captioner, "lstm": LstmCaptioner}


def tiny(**changes):
    sizes = {"width": 32, "heads": 4, "text_layers": 1, "joint_layers": 1, "feed_forward": 64}
    sizes |= {"projection": 8, "longest": 16}
    return CaptionerSettings(**sizes, dropout=0.0).model_copy(update=changes)


def made(kind="transformer", seed=0, **changes):
    torch.manual_seed(seed)
    network = KINDS[kind](tiny(**changes), len(VOCABULARY)).eval()
    with torch.no_grad():  # fresh embeddings are so faint that all words would be alike
        network.words.weight.mul_(20)
    return network


def everything(count=4, seed=0):
    """Context of `count` captions of two videos, their features padded."""
    chance = torch.Generator().manual_seed(seed)
    pad = torch.arange(5) >= torch.tensor([[5], [3]])
    return CaptionContext(
        queries=torch.randn(count, 32, generator=chance),
        features=torch.randn(2, 5, 32, generator=chance),
        video=torch.tensor([0, 0, 1, 1])[:count],
        feature_pad=pad,
    )


def assert_finite_gradients(network):
    for weight in network.parameters():
        assert weight.grad is None or torch.isfinite(weight.grad).all()


def batch(count=4):
    return tokenize(SENTENCES[:count], VOCABULARY, 16)


def test_a_word_never_sees_those_after_it():
    network, data = made(), batch()
    changed = data.tokens.clone()
    changed[:, 3:] = torch.randint(3, len(VOCABULARY), changed[:, 3:].shape)
    with torch.no_grad():
        first = network(data.tokens, data.token_pad, everything())
        second = network(changed, data.token_pad, everything())
    assert_close(first.logits[:, :3], second.logits[:, :3])
    assert (first.logits[:, 3] - second.logits[:, 3]).abs().max() > 0.01
    assert (first.text_vectors - second.text_vectors).abs().max() > 0.01  # CLS sees them all


@pytest.mark.parametrize("kind", KINDS)
def test_padding_of_words_and_features_changes_nothing(kind):
    network, data, context = made(kind), batch(), everything()
    wide = replace(
        context,
        features=torch.cat([context.features, torch.full((2, 3, 32), 9.0)], dim=1),
        feature_pad=torch.cat([context.feature_pad, torch.ones(2, 3, dtype=torch.bool)], dim=1),
    )
    tokens = torch.cat([data.tokens, torch.full((4, 3), 7)], dim=1)
    pad = torch.cat([data.token_pad, torch.ones(4, 3, dtype=torch.bool)], dim=1)
    with torch.no_grad():
        first, second = network(data.tokens, data.token_pad, context), network(tokens, pad, wide)
    assert_close(first.logits, second.logits[:, : data.tokens.shape[1]], atol=1e-5, rtol=0)
    if first.text_vectors is not None:
        assert_close(first.text_vectors, second.text_vectors, atol=1e-5, rtol=0)


@pytest.mark.parametrize("part", ["queries", "features"])
def test_every_part_of_the_context_is_heard(part):
    network, data, context = made(), batch(), everything()
    other = replace(context, **{part: everything(seed=1).__getattribute__(part)})
    with torch.no_grad():
        first, second = (
            network(data.tokens, data.token_pad, about).logits for about in (context, other)
        )
    assert (first - second)[3].abs().max() > 1e-3


def test_videos_share_their_features_but_captions_see_their_own():
    network, data, context = made(), batch(), everything()
    with torch.no_grad():
        together = network(data.tokens, data.token_pad, context).logits
        alone = CaptionContext(
            context.queries[2:3], torch.tensor([0]), context.features[1:], context.feature_pad[1:]
        )
        found = network(data.tokens[2:3], data.token_pad[2:3], alone).logits
    assert_close(together[2:3], found, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_writing_word_by_word_equals_reading_in_one_pass(kind):
    network, data, context = made(kind), batch(), everything()
    with torch.no_grad():
        at_once = network(data.tokens, data.token_pad, context).logits  # (M, W, V)
        writing = network.begin(context)
        one_by_one = torch.stack([network.step(column, writing) for column in data.tokens.T], dim=1)
    assert_close(one_by_one[~data.token_pad], at_once[~data.token_pad], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_caption_gives_no_row_and_a_zero_gradient(kind):
    network = made(kind)
    none = torch.zeros(0, 5, dtype=torch.int64)
    told = network(none, none.bool(), CaptionContext(torch.zeros(0, 32), none[:, 0]))
    assert told.logits.shape == (0, 5, len(VOCABULARY))
    loss = caption_loss(told.logits, none, none.bool()).mean
    loss.backward()
    assert loss == 0
    assert_finite_gradients(network)


def test_gradients_are_finite():
    network, data = made().train(), batch()
    told = network(data.tokens, data.token_pad, everything())
    loss = caption_loss(told.logits, data.targets, data.token_pad).mean
    (loss + told.text_vectors.sum()).backward()
    assert_finite_gradients(network)


@pytest.mark.parametrize("kind", KINDS)
def test_one_batch_is_learnt_word_for_word(kind):
    torch.manual_seed(0)
    network = KINDS[kind](tiny(), len(VOCABULARY))
    temperature, data = Temperature(), tokenize(SENTENCES, VOCABULARY, 16)
    context = CaptionContext(torch.randn(6, 32), torch.zeros(6, dtype=torch.int64))
    optimizer = torch.optim.AdamW([*network.parameters(), *temperature.parameters()], lr=5e-3)
    for _ in range(120):
        told = network(data.tokens, data.token_pad, context)
        loss = caption_loss(told.logits, data.targets, data.token_pad, 0.2).mean
        if told.text_vectors is not None:
            similarity = network.query_vectors(context.queries) @ told.text_vectors.T
            right = torch.arange(6)
            loss = loss + torch.nn.functional.cross_entropy(similarity / temperature(), right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    written = generate(network, context)
    assert [VOCABULARY.decode(one.tokens) for one in written] == SENTENCES
    assert all(len(one.tokens) < network.longest for one in written)  # the end came
    if kind == "transformer":
        text = network(data.tokens, data.token_pad, context).text_vectors
        likeness = network.query_vectors(context.queries) @ text.T
        assert likeness.argmax(dim=1).tolist() == list(range(6))


def memory(count, places, seed=0):
    chance = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, count, 2, places, 3, generator=chance)
    return KeyValueCache(keys.requires_grad_(), values.requires_grad_())


def test_seats_are_in_the_order_of_captions():
    seats = CaptionSlots.from_videos(torch.tensor([2, 0, 2, 2]), 3)
    assert seats.slot.tolist() == [0, 0, 1, 2]
    assert seats.slot_count == 3
    table = seats.scatter(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert table.tolist() == [[2, 0, 0], [0, 0, 0], [1, 3, 4]]
    assert seats.gather(table).tolist() == [1, 2, 3, 4]


def one_alone(query, shared, own, keep, video, row):
    """What one caption reads of its query and its video's real rows."""
    real = slice(None) if keep is None else keep[video[row]]
    keys, values = (
        torch.cat((mine[[row]], theirs[video[row]][None, :, real]), dim=2)
        for mine, theirs in ((own.keys, shared.keys), (own.values, shared.values))
    )
    return KeyValueCache(keys, values).attend(query[[row]])


@pytest.mark.parametrize("padded", [False, True])
def test_together_captions_read_what_each_alone_would_with_its_gradients(padded):
    video = torch.tensor([1, 0, 1, 1])
    keep = torch.arange(5) < torch.tensor([[5], [3]]) if padded else None
    shared, own = memory(2, 5), memory(4, 1, seed=1)
    query = torch.randn(4, 2, 6, 3, generator=torch.Generator().manual_seed(2)).requires_grad_()
    together = VideoKeyValues(shared, own, keep, CaptionSlots.from_videos(video, 2)).attend(query)
    alone = torch.cat([one_alone(query, shared, own, keep, video, row) for row in range(4)])
    assert_close(together, alone)
    wanted = (query, shared.keys, shared.values, own.keys, own.values)
    back = torch.randn(alone.shape, generator=torch.Generator().manual_seed(3))
    gradients = (torch.autograd.grad(out, wanted, back) for out in (together, alone))
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)
