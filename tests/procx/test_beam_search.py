from itertools import pairwise, product

import pytest
import torch
from test_captioner import everything, made, silent_of

from stepline.models.procx.beam_search import beam_search, generate, greedy_search
from stepline.models.procx.caption_context import CaptionContext
from stepline.models.procx.settings import SearchSettings
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

    def take(self, rows):
        pass

    def step(self, tokens, writing):
        return self.table[tokens].log()


def one(count=1):
    return CaptionContext(torch.zeros(count, 8))


TRAP = Chain(
    {BEGIN_TOKEN: {A: 0.6, B: 0.4}, A: {A: 0.3, B: 0.3, END_TOKEN: 0.4}, B: {END_TOKEN: 1.0}}
)


def test_greedy_takes_the_most_likely_token_each_time():
    (written,) = generate(TRAP, one())
    assert written.tokens == (A,)
    assert written.log_probability == pytest.approx(torch.tensor(0.6 * 0.4).log().item(), abs=1e-5)
    assert written.ended


def test_a_beam_finds_what_greedy_passes_by():
    (written,) = generate(TRAP, one(), SearchSettings(beam=2, length_penalty=0.0))
    assert written.tokens == (B,)
    assert written.log_probability == pytest.approx(torch.tensor(0.4).log().item(), abs=1e-5)


def test_the_penalty_prefers_longer_ones():
    """B END: log .5 over 2 tokens is -.347; A A A END: log .32 over 4 is -.285, less over 2^0 and
    4^0."""
    writer = Chain(
        {BEGIN_TOKEN: {B: 0.5, A: 0.5}, B: {END_TOKEN: 1.0}, A: {A: 0.8, END_TOKEN: 0.2}}
    )
    writer.longest = 20
    assert generate(writer, one(), SearchSettings(beam=3, length_penalty=0.0))[0].tokens == (B,)
    assert len(generate(writer, one(), SearchSettings(beam=3, length_penalty=1.0))[0].tokens) > 3


@pytest.mark.parametrize("size", [1, 3])
def test_a_caption_that_never_ends_is_cut_and_says_so(size):
    writer = Chain({BEGIN_TOKEN: {A: 1.0}, A: {A: 1.0}})
    (written,) = generate(writer, one(), SearchSettings(beam=size, longest=4))
    assert written.tokens == (A,) * 4
    assert not written.ended
    assert written.log_probability == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("size", [1, 3])
def test_the_end_does_not_come_too_soon_and_marks_are_never_said(size):
    writer = Chain(
        {
            BEGIN_TOKEN: {END_TOKEN: 0.5, PAD_TOKEN: 0.3, BEGIN_TOKEN: 0.1, A: 0.1},
            A: {END_TOKEN: 1.0},
        }
    )
    assert generate(writer, one(), SearchSettings(beam=size))[0].tokens == (A,)
    assert generate(writer, one(), SearchSettings(beam=size, shortest=0))[0].tokens == ()


def test_no_query_gives_no_caption():
    assert generate(TRAP, one(0)) == []
    assert generate(made(), CaptionContext(torch.zeros(0, 32)), SearchSettings(beam=3)) == []


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_of_one_without_penalty_is_greedy(kind, penalty):
    network, context, settings = made(kind), everything(), SearchSettings(length_penalty=0.0)
    first, second = (
        search(network, context, 12, settings) for search in (greedy_search, beam_search)
    )
    assert [w.tokens for w in first] == [w.tokens for w in second]
    assert [w.log_probability for w in first] == pytest.approx(
        [w.log_probability for w in second], abs=1e-4
    )
    settings = SearchSettings(beam=1, length_penalty=penalty, longest=12)
    assert generate(network, context, settings) == first


def test_a_wide_beam_finds_the_best_of_all():
    """Every caption of up to three tokens, two of which are words, ranked one by one."""
    chance = torch.Generator().manual_seed(3)
    for penalty in (0.0, 0.7, 1.5):
        writer = Chain({})
        writer.table = torch.rand(5, 5, generator=chance)
        writer.table /= writer.table.sum(dim=1, keepdim=True)
        ranks = {}
        for words in (
            *product((A, B), repeat=1),
            *product((A, B), repeat=2),
            *product((A, B), repeat=3),
        ):
            path = [BEGIN_TOKEN, *words, END_TOKEN][:4]  # three words are cut before their end
            total = sum(writer.table[a, b].log().item() for a, b in pairwise(path))
            ranks[words] = total / (len(path) - 1) ** penalty
        (written,) = generate(
            writer, one(), SearchSettings(beam=30, length_penalty=penalty, longest=3)
        )
        assert written.tokens == max(ranks, key=ranks.get)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_other_captions_of_the_batch_change_none(size):
    """Some end at once, some late: what has ended stays as it was."""
    network, context = made(), silent_of(everything())
    settings = SearchSettings(beam=size, longest=10)
    whole = generate(network, context, settings)
    for caption in range(4):
        alone = CaptionContext(
            context.queries[[caption]],
            context.features,
            context.video[[caption]],
            context.feature_pad,
        )
        (written,) = generate(network, alone, settings)
        assert written.tokens == whole[caption].tokens
        assert written.log_probability == pytest.approx(whole[caption].log_probability, abs=1e-4)


@pytest.mark.parametrize("size", [2, 4])
def test_the_reported_probability_is_that_of_the_tokens(size):
    network, context = made(), silent_of(everything())
    for caption, written in enumerate(
        generate(network, context, SearchSettings(beam=size, longest=8))
    ):
        wanted = torch.tensor([[*written.tokens, *([END_TOKEN] if written.ended else [])]])
        tokens = torch.cat([torch.tensor([[BEGIN_TOKEN]]), wanted[:, :-1]], dim=1)
        alone = CaptionContext(
            context.queries[[caption]],
            context.features,
            context.video[[caption]],
            context.feature_pad,
        )
        with torch.no_grad():
            scores = network(tokens, torch.zeros_like(tokens).bool(), alone).logits.log_softmax(-1)
        total = scores.gather(2, wanted[..., None]).sum().item()
        assert written.log_probability == pytest.approx(total, abs=1e-3)
