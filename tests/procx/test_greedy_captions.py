import math

import pytest
import torch
from test_captioner import everything, made

from stepline.models.procx.captioner import CaptionContext
from stepline.models.procx.inference import generate
from stepline.models.procx.vocabulary import BEGIN_TOKEN, END_TOKEN, PAD_TOKEN

A, B = 3, 4


class Chain:
    """A writer whose next token depends on the last one alone: P by rows of a table; 5 tokens."""

    longest = 6

    def __init__(self, table):
        self.table = torch.full((5, 5), 1e-9)
        for last, row in table.items():
            for token, probability in row.items():
                self.table[last, token] = probability

    def begin(self, context):
        return self

    def step(self, tokens, writing):
        return self.table[tokens].log()


def one(count=1, width=8):
    return CaptionContext(torch.zeros(count, width), torch.zeros(count, dtype=torch.int64))


def alone(context, caption):
    """The context of one of its captions."""
    own = (context.queries[[caption]], context.video[[caption]])
    return CaptionContext(*own, context.features, context.feature_pad)


TRAP = Chain(
    {BEGIN_TOKEN: {A: 0.6, B: 0.4}, A: {A: 0.3, B: 0.3, END_TOKEN: 0.4}, B: {END_TOKEN: 1.0}}
)


def test_greedy_takes_the_most_likely_token_each_time():
    (written,) = generate(TRAP, one())
    assert written.tokens == (A,)
    assert written.log_probability == pytest.approx(math.log(0.6), abs=1e-5)  # of A


def test_a_caption_that_never_ends_is_cut():
    writer = Chain({BEGIN_TOKEN: {A: 1.0}, A: {A: 1.0}})
    writer.longest = 4
    (written,) = generate(writer, one())
    assert written.tokens == (A,) * 4
    assert written.log_probability == pytest.approx(0, abs=1e-4)


def test_the_end_does_not_come_too_soon_and_marks_are_never_said():
    first = {END_TOKEN: 0.5, PAD_TOKEN: 0.3, BEGIN_TOKEN: 0.1, A: 0.1}
    writer = Chain({BEGIN_TOKEN: first, A: {END_TOKEN: 1.0}})
    assert generate(writer, one())[0].tokens == (A,)


def test_no_query_gives_no_caption():
    assert generate(TRAP, one(0)) == []
    assert generate(made(), one(0, 32)) == []


def test_other_captions_of_the_batch_change_none():
    """Some end at once, some late: what has ended stays as it was."""
    network, context = made(), everything()
    network.longest = 10
    whole = generate(network, context)
    for caption in range(4):
        (written,) = generate(network, alone(context, caption))
        assert written.tokens == whole[caption].tokens
        assert written.log_probability == pytest.approx(whole[caption].log_probability, abs=1e-4)


def test_the_reported_probability_is_that_of_the_tokens():
    network, context = made(), everything()
    network.longest = 8
    for caption, written in enumerate(generate(network, context)):
        wanted = torch.tensor([written.tokens])
        tokens = torch.cat([torch.tensor([[BEGIN_TOKEN]]), wanted[:, :-1]], dim=1)
        pad, own = torch.zeros_like(tokens).bool(), alone(context, caption)
        with torch.no_grad():
            scores = network(tokens, pad, own).logits.log_softmax(-1)
        total = scores.gather(2, wanted[..., None]).sum().item()
        assert written.log_probability == pytest.approx(total, abs=1e-3)
