"""Captions from a captioner: the most likely token each time, or a beam of hypotheses ranked by
their length.

Letters: M captions, k hypotheses per caption, V vocabulary, W tokens so far.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.models.procx.caption_context import CaptionContext
from stepline.models.procx.settings import SearchSettings
from stepline.models.procx.vocabulary import BEGIN_TOKEN, END_TOKEN, PAD_TOKEN

IMPOSSIBLE_LOG_P = float("-inf")  # of what may not be said


class Selectable(Protocol):
    """The state of captions under way."""

    def take(self, rows: Tensor) -> None:
        """Go on with these rows."""


State = TypeVar("State", bound=Selectable)


class StepwiseDecoder(Protocol[State]):
    """A captioner that can write word by word."""

    longest: int

    def begin(self, context: CaptionContext) -> State:
        """Return the state from which captions are written."""

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Return the logits (R, V) of what comes after the tokens (R,)."""


@dataclass(frozen=True)
class Caption:
    """A caption: its tokens without marks, its log P with the end mark, and whether it came to its
    end."""

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool

    @property
    def length(self) -> int:
        """How many tokens it has, its end mark included."""
        return len(self.tokens) + self.ended


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def generate(
    decoder: StepwiseDecoder[State], context: CaptionContext, settings: SearchSettings | None = None
) -> list[Caption]:
    """Return a caption for each of the context's M queries. One that reaches the most tokens is cut
    there.

    Other captions of the batch never change one. The decoder should be at rest (eval), or dropout
    speaks too.
    """
    settings = settings or SearchSettings()
    if not len(context.queries):
        return []
    longest = settings.longest or decoder.longest
    longest = min(decoder.longest, longest)
    if settings.beam == 1:
        return greedy_search(decoder, context, longest, settings)
    return beam_search(decoder, context, longest, settings)


def greedy_search(
    decoder: StepwiseDecoder[State], context: CaptionContext, longest: int, settings: SearchSettings
) -> list[Caption]:
    """Return captions of the most likely next tokens."""
    state = decoder.begin(context)
    count = len(context.queries)
    device = context.queries.device
    last = torch.full((count,), BEGIN_TOKEN, device=device)  # (M,)
    total = torch.zeros(count, device=device)
    ended = torch.zeros(count, dtype=torch.bool, device=device)
    tokens: list[Tensor] = []
    for length in range(longest):
        logits = decoder.step(last, state)
        scores = _log_probability(logits, length, settings)  # (M, V)
        best, last = scores.max(dim=1)  # (M,) each
        # A caption that has ended gains neither words nor log P.
        total = torch.where(ended, total, total + best)
        last = torch.where(ended, PAD_TOKEN, last)
        tokens.append(last)
        ended = ended | (last == END_TOKEN)
        if bool(ended.all()):
            break
    return _captions_of(torch.stack(tokens, dim=1), total, ended)


def beam_search(
    decoder: StepwiseDecoder[State], context: CaptionContext, longest: int, settings: SearchSettings
) -> list[Caption]:
    """Return the captions that rank best by log P / tokens^penalty, one that is cut for its length
    among them.

    Each step keeps the k most likely hypotheses that go on. One that ends is remembered if it is
    among the k most likely of all and beats the best before it. The search stops when no hypothesis
    can rank above those, however it goes on.
    """
    k = settings.beam
    captions = len(context.queries)
    device = context.queries.device
    most_divisor = longest**settings.length_penalty
    # The beam: log P and tokens of each hypothesis so far.
    state = decoder.begin(context)
    total = torch.full((captions, k), IMPOSSIBLE_LOG_P, device=device)
    total[:, 0] = 0.0  # all k begin alike: one of them counts
    tokens = torch.full((captions, k, longest), PAD_TOKEN, device=device)
    last = torch.full((captions, k), BEGIN_TOKEN, device=device)
    best = _BestEnded.none(captions, longest, device)
    first = torch.arange(captions, device=device)[:, None]  # (M, 1)
    beam = 1  # hypotheses of a caption so far
    for length in range(longest):
        logits = decoder.step(last[:, :beam].flatten(), state)
        scores = _log_probability(logits, length, settings)  # (M beam, V)
        scores = scores.view(captions, beam, -1)
        scores = scores + total[:, :beam, None]  # (M, beam, V)

        # the 2 k most likely next tokens, k of them go on: (M, 2 k)
        vocabulary = scores.shape[2]
        count = min(2 * k, beam * vocabulary)
        # At most k of them are ends, one per hypothesis, so that k can always go on.
        top, index = scores.flatten(1).topk(count, dim=1)
        # Only an end that is among the k most likely counts.
        parent = index // vocabulary
        token = index % vocabulary
        ending = top[:, :k].masked_fill(~(token == END_TOKEN)[:, :k], IMPOSSIBLE_LOG_P)
        best.offer(ending, tokens, parent[:, :k], length, settings.length_penalty)

        # What goes on takes over the tokens and the state of its parent.
        total, parent, last = _continuing(top, parent, token, k)
        tokens = tokens[first, parent]
        tokens[:, :, length] = last
        state.take((first * beam + parent).flatten())
        beam = k
        # An upper bound: log P only falls, and the greatest length divides it by most.
        highest_ranks = total[:, 0] / most_divisor
        if bool((highest_ranks <= best.rank).all()):
            break

    # a caption that is cut at the most tokens competes with those that ended
    longest_total = total[:, 0]
    ended = best.rank >= longest_total / most_divisor
    tokens = torch.where(ended[:, None], best.tokens, tokens[:, 0])
    total = torch.where(ended, best.total, longest_total)
    return _captions_of(tokens, total, ended)


def _continuing(
    total: Tensor, parent: Tensor, token: Tensor, beam: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log P, parent and token of the hypotheses that go on, (M, k) each, of (M, 2 k).

    They keep their order. A vocabulary may have fewer tokens than the beam, which is then padded.
    """
    ends = token == END_TOKEN
    going = ends.int().argsort(dim=1, stable=True)[:, :beam]
    missing = (0, beam - going.shape[1])
    totals = total.masked_fill(ends, IMPOSSIBLE_LOG_P).gather(1, going)
    totals = F.pad(totals, missing, value=IMPOSSIBLE_LOG_P)
    parents = parent.gather(1, going)
    parents = F.pad(parents, missing)
    tokens = token.gather(1, going)
    tokens = F.pad(tokens, missing, value=PAD_TOKEN)
    return totals, parents, tokens


@dataclass
class _BestEnded:
    """The best ended hypothesis of each caption: rank and total (M,), tokens (M, longest)."""

    rank: Tensor
    total: Tensor
    tokens: Tensor

    @staticmethod
    def none(captions: int, longest: int, device: torch.device) -> "_BestEnded":
        never = torch.full((captions,), IMPOSSIBLE_LOG_P, device=device)
        tokens = torch.full((captions, longest), PAD_TOKEN, device=device)
        return _BestEnded(never, never, tokens)

    def offer(
        self, total: Tensor, tokens: Tensor, parent: Tensor, length: int, penalty: float
    ) -> None:
        """Take hypotheses that end here where they rank higher. total: (M, k), IMPOSSIBLE_LOG_P for
        those that do not end."""
        value, which = total.max(dim=1)  # all are of one length
        rank = value / (length + 1) ** penalty
        better = rank > self.rank
        rows = torch.arange(len(rank), device=rank.device)
        ended = tokens[rows, parent[rows, which]]
        ended[:, length] = END_TOKEN
        self.rank = torch.where(better, rank, self.rank)
        self.total = torch.where(better, value, self.total)
        self.tokens = torch.where(better[:, None], ended, self.tokens)


def _log_probability(logits: Tensor, length: int, settings: SearchSettings) -> Tensor:
    """Return log P of each next token, (R, V) float32. Marks other than the end are never said, nor
    is the end too soon."""
    scores = logits.float().log_softmax(dim=-1)
    scores[:, [PAD_TOKEN, BEGIN_TOKEN]] = IMPOSSIBLE_LOG_P
    if length < settings.shortest:
        scores[:, END_TOKEN] = IMPOSSIBLE_LOG_P
    return scores


def _captions_of(tokens: Tensor, total: Tensor, ended: Tensor) -> list[Caption]:
    """Return rows of tokens (M, W) as captions without marks. What follows the end mark is left
    out."""
    marks = {PAD_TOKEN, BEGIN_TOKEN, END_TOKEN}
    captions = []
    totals = total.tolist()
    endings = ended.tolist()
    for row, log_p, has_end in zip(tokens.tolist(), totals, endings, strict=True):
        # What follows an end is padding, and so a mark.
        words = tuple(token for token in row if token not in marks)
        captions.append(Caption(words, log_p, has_end))
    return captions
