"""The chain of grounding/line_model.py with gradients, over batches, for
lab/fit_line_model.py."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stepline.grounding.line_model import FEATURE_NAMES, LineWeights

PRICE_NAMES = ("stay", "direct", "enter", "skip", "skip_more", "again", "back", "back_more", "end")
FIRST_EVIDENCE = {"cosine": 8.0, "contrast": 4.0, "context": 4.0, "words": 4.0, "near_words": 1.0}
FIRST_BIAS = -6.0
FIRST_PRICES = (1.0, 0.5, 0.0, -1.0, -0.5, -2.0, -3.0, -0.5, -0.5)
SAID_WEIGHT = 0.15
MIN_SHARE = 0.02  # of a posterior, in the logarithm
MIN_CHANCE = 1e-6


@dataclass(frozen=True)
class Batch:
    """Lists padded to one size. features: (B, K, S, F). hits: (B, K, S). True where there is one:
    lines (B, K), sentences (B, S). strange: (B, K), True for a line of another dish."""

    features: Tensor
    lines: Tensor
    sentences: Tensor
    hits: Tensor
    strange: Tensor

    @property
    def placed(self) -> Tensor:
        """(B, K): whether some sentence is right."""
        return self.hits.sum(2) > 0


class TrainedChain(torch.nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The sums of `StepTextHmm`, of a batch, with gradients."""

    def __init__(self, used: Sequence[bool]) -> None:
        super().__init__()
        evidence = [FIRST_EVIDENCE.get(name, 0.0) for name in FEATURE_NAMES]
        self.used = torch.tensor(used, dtype=torch.float64)
        self.evidence = torch.nn.Parameter(torch.tensor(evidence, dtype=torch.float64))
        self.bias = torch.nn.Parameter(torch.tensor(FIRST_BIAS, dtype=torch.float64))
        self.prices = torch.nn.Parameter(torch.tensor(FIRST_PRICES, dtype=torch.float64))

    def price(self, name: str) -> Tensor:
        """Return the logarithm of a price."""
        return self.prices[PRICE_NAMES.index(name)]

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        weights = self._evidence(batch)
        total, posterior = self._sums(weights, batch, with_posterior=True)
        shares = posterior / (posterior.sum(2, keepdim=True) + MIN_CHANCE)
        in_span = torch.log((shares * batch.hits).sum(2) + MIN_SHARE)
        loss = torch.zeros((), dtype=torch.float64)
        if batch.placed.any():
            loss = -in_span[batch.placed].mean()
        never = self._log_never(weights, batch, total)
        said_losses = -torch.log(1 - torch.exp(never) + MIN_CHANCE)[batch.placed]
        strange_losses = -never[batch.strange]
        line_count = len(said_losses) + len(strange_losses)
        said_loss = (said_losses.sum() + strange_losses.sum()) / line_count
        return loss + SAID_WEIGHT * said_loss

    def numbers(self) -> LineWeights:
        """Return the fitted numbers, without those of P(said)."""
        evidence = tuple((self.evidence * self.used).detach().tolist())
        prices = dict(zip(PRICE_NAMES, self.prices.detach().tolist(), strict=True))
        return LineWeights(
            evidence=evidence,
            bias=self.bias.item(),
            stay=prices["stay"],
            direct=prices["direct"],
            enter=prices["enter"],
            skip=prices["skip"],
            skip_more=prices["skip_more"],
            again=prices["again"],
            back=prices["back"],
            back_more=prices["back_more"],
            end=prices["end"],
            said_weights=(),
            said_bias=0.0,
            said_so_far=(),
            said_so_far_bias=0.0,
        )

    def _evidence(self, batch: Batch) -> Tensor:
        evidence = self.evidence * self.used
        exponents = batch.features @ evidence + self.bias
        weights = torch.exp(exponents.clamp(max=30.0))
        return weights * batch.lines[:, :, None]  # (B, K, S)

    def _jumps(self, lines: int) -> tuple[Tensor, Tensor]:
        """Return the weights from position 0 to K to each line, from a line and from a pause."""
        positions = torch.arange(lines + 1)
        distance = positions[1:] - positions[:, None]
        steps = distance.to(torch.float64)
        skip = self.price("skip") + self.price("skip_more") * (steps - 2)
        back = self.price("back") + self.price("back_more") * (-steps - 1)
        jumps = torch.where(distance >= 2, skip, back)
        jumps = torch.where(distance == 1, torch.zeros(()), jumps)
        jumps = torch.where(distance == 0, self.price("again"), jumps)
        direct_jumps = jumps + self.price("direct")
        from_line = torch.where(distance == 0, self.price("stay"), direct_jumps)
        return torch.exp(from_line), torch.exp(jumps + self.price("enter"))

    def _sums(
        self, weights: Tensor, batch: Batch, *, with_posterior: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the logarithm of the sum over all paths, (B,), and P(line at sentence), (B, K, S).

        Forward sums are divided by their total after each sentence.
        """
        lists, lines, sentences = weights.shape
        from_line, from_pause = self._jumps(lines)
        line_counts = batch.lines.sum(1)[:, None]
        lines_left = (line_counts - torch.arange(lines + 1)).clamp(min=0)
        ending = torch.exp(self.price("end") * lines_left)  # (B, K + 1)
        # Forward sums: in a line, and in a pause after it
        line = torch.zeros(lists, lines + 1, dtype=torch.float64)
        pause = torch.zeros(lists, lines + 1, dtype=torch.float64)
        pause[:, 0] = 1
        total = torch.zeros(lists, dtype=torch.float64)
        past = []
        for s in range(sentences):
            is_there = batch.sentences[:, s][:, None]
            arriving = (line @ from_line + pause @ from_pause) * weights[:, :, s]
            arriving = torch.nn.functional.pad(arriving, (1, 0))
            pause = torch.where(is_there, pause + line, pause)
            line = torch.where(is_there, arriving, line)
            scale = (line + pause).sum(1, keepdim=True)
            line = line / scale
            pause = pause / scale
            total = total + torch.log(scale[:, 0])
            past.append((line, scale))
        end = ((line + pause) * ending).sum(1, keepdim=True)
        total = total + torch.log(end[:, 0])
        if not with_posterior:
            return total, torch.zeros(0)
        # Backward sums, and P(line at sentence)
        line_future = ending / end
        pause_future = ending / end
        rows = []
        for s in range(sentences - 1, -1, -1):
            is_there = batch.sentences[:, s][:, None]
            line, scale = past[s]
            rows.append((line * line_future * is_there)[:, 1:])
            arriving = weights[:, :, s] * line_future[:, 1:]
            earlier_line = arriving @ from_line.T + pause_future
            earlier_pause = arriving @ from_pause.T + pause_future
            line_future = torch.where(is_there, earlier_line, line_future) / scale
            pause_future = torch.where(is_there, earlier_pause, pause_future) / scale
        return total, torch.stack(rows[::-1], dim=2)

    def _log_never(self, weights: Tensor, batch: Batch, total: Tensor) -> Tensor:
        """Return the logarithm of P(line k is said nowhere), (B, K)."""
        lists, lines, sentences = weights.shape
        others = 1 - torch.eye(lines, dtype=torch.float64)  # (K left out, K)
        cases = weights[:, None] * others[None, :, :, None]  # (B, K, K, S)
        repeated = replace(
            batch,
            lines=batch.lines.repeat_interleave(lines, 0),
            sentences=batch.sentences.repeat_interleave(lines, 0),
        )
        flat = cases.reshape(lists * lines, lines, sentences)
        without, _ = self._sums(flat, repeated, with_posterior=False)
        return (without.reshape(lists, lines) - total[:, None]).clamp(max=-1e-9)
