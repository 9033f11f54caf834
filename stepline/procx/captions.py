"""Sentences as padded token tensors: what the captioner reads and what it is to say next.

Letters: M captions, W tokens of the longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stepline.procx.tokens import BEGIN, END, PAD, Vocabulary


@dataclass(frozen=True)
class Captions:
    """tokens (M, W): the begin mark and the words; wanted (M, W): the words and the end mark; token_pad (M, W).

    cut: how many were longer than W, and so have no end mark.
    """

    tokens: Tensor
    wanted: Tensor
    token_pad: Tensor
    cut: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: str | torch.device) -> "Captions":
        """Return the captions on another device."""
        return Captions(self.tokens.to(device), self.wanted.to(device), self.token_pad.to(device), self.cut)

    def take(self, rows: Tensor) -> "Captions":
        """Return the captions of these rows, (M',) indices, in their order; `cut` stays that of all."""
        return Captions(self.tokens[rows], self.wanted[rows], self.token_pad[rows], self.cut)


def captions(sentences: Sequence[str], vocabulary: Vocabulary, longest: int) -> Captions:
    """Return the sentences as tensors, cut after `longest` tokens, the end mark counted; a blank one is that alone."""
    return captions_of([vocabulary.encode(sentence) for sentence in sentences], longest)


def captions_of(rows: Sequence[Sequence[int]], longest: int) -> Captions:
    """Return rows of tokens without marks as `captions` does sentences."""
    wanted = [[*row, END] for row in rows]
    cut = sum(len(row) > longest for row in wanted)
    wanted = [row[:longest] for row in wanted]
    tokens = [[BEGIN, *row[:-1]] for row in wanted]
    padded, token_pad = padded_tokens(wanted)
    return Captions(padded_tokens(tokens)[0], padded, token_pad, cut)


def padded_tokens(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return token rows as (M, W) with PAD after each, and where it stands."""
    width = max(map(len, rows), default=0)
    filled = [[*row, *[PAD] * (width - len(row))] for row in rows]
    padded = torch.tensor(filled, dtype=torch.int64).view(len(rows), width)  # (M, W)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    return padded, torch.arange(width) >= lengths[:, None]
