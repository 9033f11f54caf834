"""Captions from a captioner: the likeliest token each time, or a beam of hypotheses ranked by their
length.

Letters: M captions, k hypotheses a caption, V vocabulary, W tokens said so far.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.procx.captioner import CaptionContext
from stepline.procx.settings import SearchSettings
from stepline.procx.vocabulary import BEGIN, END, PAD

IMPOSSIBLE = float("-inf")  # log P of what may not be said


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
    last = torch.full((len(context.queries),), BEGIN, device=context.queries.device)  # (M,)
    total, done = (
        context.queries.new_zeros(len(last), dtype=torch.float32),
        torch.zeros_like(last, dtype=torch.bool),
    )
    said: list[Tensor] = []
    for length in range(longest):
        # (M,) each
        best, last = _log_probability(decoder.step(last, state), length, settings).max(dim=1)
        total = torch.where(done, total, total + best)
        last = torch.where(done, PAD, last)
        said.append(last)
        done = done | (last == END)
        if bool(done.all()):
            break
    return _captions_of(torch.stack(said, dim=1), total, done)


def beam_search(
    decoder: StepwiseDecoder[State], context: CaptionContext, longest: int, settings: SearchSettings
) -> list[Caption]:
    """Return the captions that rank best by log P / tokens^penalty, one that is cut for its length
    among them.

    Each step keeps the k likeliest hypotheses that go on; one that ends is remembered if it is
    among the k likeliest of all and beats the best before it. The search stops when no hypothesis
    can rank above those, however it goes on.
    """
    captions, k, device = len(context.queries), settings.beam, context.queries.device
    state = decoder.begin(context)
    total = torch.full((captions, k), IMPOSSIBLE, device=device)
    total[:, 0] = 0.0  # all k begin alike: one of them counts
    said = torch.full((captions, k, longest), PAD, device=device)
    last = torch.full((captions, k), BEGIN, device=device)
    best = _BestEnded.none(captions, longest, device)
    first = torch.arange(captions, device=device)[:, None]  # (M, 1)
    for length in range(longest):
        tokens = last[:, 0] if length == 0 else last.flatten()
        scores = _log_probability(decoder.step(tokens, state), length, settings)  # (M or M k, V)
        scores = (
            scores.view(captions, -1, scores.shape[-1]) + total[:, : 1 if length == 0 else k, None]
        )
        # (M, 2 k), of which k go on
        top, index = scores.flatten(1).topk(min(2 * k, scores[0].numel()), dim=1)
        parent, token = index // scores.shape[2], index % scores.shape[2]
        ends = token == END
        best.offer(
            top[:, :k].masked_fill(~ends[:, :k], IMPOSSIBLE),
            said,
            parent[:, :k],
            length,
            settings.length_penalty,
        )
        # those that go on first, in their order
        going = ends.int().argsort(dim=1, stable=True)[:, :k]
        total = top.masked_fill(ends, IMPOSSIBLE).gather(1, going)
        parent, last = parent.gather(1, going), token.gather(1, going)  # (M, k) each
        # a vocabulary may have fewer tokens than the beam
        fills = ((total, IMPOSSIBLE), (parent, 0), (last, PAD))
        # (M, k) each
        total, parent, last = (
            F.pad(part, (0, k - part.shape[1]), value=fill) for part, fill in fills
        )
        said = said[first, parent]
        said[:, :, length] = last
        state.take((first * (1 if length == 0 else k) + parent).flatten())
        if bool((total[:, 0] / longest**settings.length_penalty <= best.rank).all()):
            break
    ended = best.rank >= total[:, 0] / longest**settings.length_penalty
    said = torch.where(ended[:, None], best.said, said[:, 0])
    return _captions_of(said, torch.where(ended, best.total, total[:, 0]), ended)


@dataclass
class _BestEnded:
    """The best ended hypothesis of each caption: rank and total (M,), said (M, longest)."""

    rank: Tensor
    total: Tensor
    said: Tensor

    @staticmethod
    def none(captions: int, longest: int, device: torch.device) -> "_BestEnded":
        never = torch.full((captions,), IMPOSSIBLE, device=device)
        return _BestEnded(never, never.clone(), torch.full((captions, longest), PAD, device=device))

    def offer(
        self, total: Tensor, said: Tensor, parent: Tensor, length: int, penalty: float
    ) -> None:
        """Take hypotheses that end here where they rank higher. total: (M, k), NEVER for those that
        do not end."""
        value, which = total.max(dim=1)  # all are of one length
        rank = value / (length + 1) ** penalty
        better = rank > self.rank
        rows = torch.arange(len(rank), device=rank.device)
        ended = said[rows, parent[rows, which]]
        ended[:, length] = END
        self.rank, self.total = (
            torch.where(better, rank, self.rank),
            torch.where(better, value, self.total),
        )
        self.said = torch.where(better[:, None], ended, self.said)


def _log_probability(logits: Tensor, length: int, settings: SearchSettings) -> Tensor:
    """Return log P of each next token, (R, V) float32; marks other than the end are never said, nor
    it too soon."""
    scores = logits.float().log_softmax(dim=-1)
    scores[:, [PAD, BEGIN]] = IMPOSSIBLE
    if length < settings.shortest:
        scores[:, END] = IMPOSSIBLE
    return scores


def _captions_of(said: Tensor, total: Tensor, ended: Tensor) -> list[Caption]:
    """Return rows of tokens (M, W) as captions; what follows the end mark is not of them."""
    marks = (PAD, BEGIN, END)
    rows = [tuple(token for token in row if token not in marks) for row in said.tolist()]
    return [Caption(*caption) for caption in zip(rows, total.tolist(), ended.tolist(), strict=True)]
