"""Captions from a captioner: the likeliest token each time, or a beam of hypotheses ranked by their
length.

Letters: M captions, k hypotheses per caption, V vocabulary, W tokens so far.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.procx.captioner import CaptionContext
from stepline.procx.settings import SearchSettings
from stepline.procx.vocabulary import BEGIN_TOKEN, END_TOKEN, PAD_TOKEN

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
    """Return a caption for each of the context's M queries; one that reaches the most tokens is cut
    there.

    Other captions of the batch never change one. The decoder should be at rest (eval), or dropout
    speaks too.
    """
    settings = settings or SearchSettings()
    if not len(context.queries):
        return []
    longest = min(decoder.longest, settings.longest or decoder.longest)
    search = greedy_search if settings.beam == 1 else beam_search
    return search(decoder, context, longest, settings)


def greedy_search(
    decoder: StepwiseDecoder[State], context: CaptionContext, longest: int, settings: SearchSettings
) -> list[Caption]:
    """Return captions of the likeliest next tokens."""
    state = decoder.begin(context)
    count, device = len(context.queries), context.queries.device
    last = torch.full((count,), BEGIN_TOKEN, device=device)  # (M,)
    total = torch.zeros(count, device=device)
    ended = torch.zeros(count, dtype=torch.bool, device=device)
    tokens: list[Tensor] = []
    for length in range(longest):
        # (M,) each
        best, last = _log_probability(decoder.step(last, state), length, settings).max(dim=1)
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

    Each step keeps the k likeliest hypotheses that go on; one that ends is remembered if it is
    among the k likeliest of all and beats the best before it. The search stops when no hypothesis
    can rank above those, however it goes on.
    """
    k, penalty = settings.beam, settings.length_penalty
    captions, device = len(context.queries), context.queries.device
    state = decoder.begin(context)
    total = torch.full((captions, k), IMPOSSIBLE_LOG_P, device=device)
    total[:, 0] = 0.0  # all k begin alike: one of them counts
    tokens = torch.full((captions, k, longest), PAD_TOKEN, device=device)
    last = torch.full((captions, k), BEGIN_TOKEN, device=device)
    best = _BestEnded.none(captions, longest, device)
    first = torch.arange(captions, device=device)[:, None]  # (M, 1)
    for length in range(longest):
        beam = 1 if length == 0 else k  # hypotheses of a caption so far
        logits = decoder.step(last[:, :beam].flatten(), state)
        scores = _log_probability(logits, length, settings)  # (M beam, V)
        scores = scores.view(captions, beam, -1) + total[:, :beam, None]  # (M, beam, V)

        # the 2 k likeliest next tokens, of which k go on: (M, 2 k)
        top, index = scores.flatten(1).topk(min(2 * k, scores[0].numel()), dim=1)
        parent, token = index // scores.shape[2], index % scores.shape[2]
        ends = token == END_TOKEN
        ending = top[:, :k].masked_fill(~ends[:, :k], IMPOSSIBLE_LOG_P)
        best.offer(ending, tokens, parent[:, :k], length, penalty)

        # those that go on first, in their order; a vocabulary may have fewer tokens than the beam
        going = ends.int().argsort(dim=1, stable=True)[:, :k]
        missing = (0, k - going.shape[1])
        total = top.masked_fill(ends, IMPOSSIBLE_LOG_P).gather(1, going)
        total = F.pad(total, missing, value=IMPOSSIBLE_LOG_P)  # (M, k)
        parent = F.pad(parent.gather(1, going), missing)
        last = F.pad(token.gather(1, going), missing, value=PAD_TOKEN)
        tokens = tokens[first, parent]
        tokens[:, :, length] = last
        state.take((first * beam + parent).flatten())
        if bool((total[:, 0] / longest**penalty <= best.rank).all()):
            break
    ended = best.rank >= total[:, 0] / longest**penalty
    tokens = torch.where(ended[:, None], best.tokens, tokens[:, 0])
    return _captions_of(tokens, torch.where(ended, best.total, total[:, 0]), ended)


@dataclass
class _BestEnded:
    """The best ended hypothesis of each caption: rank and total (M,), tokens (M, longest)."""

    rank: Tensor
    total: Tensor
    tokens: Tensor

    @staticmethod
    def none(captions: int, longest: int, device: torch.device) -> "_BestEnded":
        never = torch.full((captions,), IMPOSSIBLE_LOG_P, device=device)
        return _BestEnded(never, never, torch.full((captions, longest), PAD_TOKEN, device=device))

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
    """Return log P of each next token, (R, V) float32; marks other than the end are never said, nor
    is the end too soon."""
    scores = logits.float().log_softmax(dim=-1)
    scores[:, [PAD_TOKEN, BEGIN_TOKEN]] = IMPOSSIBLE_LOG_P
    if length < settings.shortest:
        scores[:, END_TOKEN] = IMPOSSIBLE_LOG_P
    return scores


def _captions_of(tokens: Tensor, total: Tensor, ended: Tensor) -> list[Caption]:
    """Return rows of tokens (M, W) as captions without marks; what follows the end mark is left
    out."""
    captions = []
    for row, log_p, has_end in zip(tokens.tolist(), total.tolist(), ended.tolist(), strict=True):
        words = [token for token in row if token not in (PAD_TOKEN, BEGIN_TOKEN, END_TOKEN)]
        captions.append(Caption(tuple(words), log_p, has_end))
    return captions
