"""Features at several temporal scales, where in the video each position stands, and all scales as one.

Letters: B videos, R rows, C width of a feature row, D width, L levels, P positions of all levels one after the other.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.procx.model_settings import ModelSettings

GROUPED = 16  # channels normalised together: the 32 groups of PDVC's width 512; a lone one would lose its level
PERIOD = 10_000  # of the slowest sine; PDVC's code


def standardised(values: Tensor) -> Tensor:
    """Return features (B, R, C) scaled so that the numbers of each video are 1 on average; zero stays zero.

    Unit rows have numbers near 1 / sqrt(C), which the convolutions' biases outgrow before the contents are learned.
    """
    size = values.float().square().mean(dim=(1, 2), keepdim=True).sqrt()  # (B, 1, 1)
    return values / size.clamp(min=1e-12)


class Pyramid(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Levels of half the length each: a linear map of the rows, then strided convolutions. Source: PDVC's code."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width, levels = settings.attention.width, settings.attention.levels
        given = [settings.features if level <= 1 else width for level in range(levels)]
        self.steps = nn.ModuleList(_step(wide, width, level) for level, wide in enumerate(given))

    def forward(self, values: Tensor) -> list[Tensor]:
        """Return each level of rows (B, R, C), the finest first: (B, R / 2^level, D), halves rounded up."""
        rows = values.transpose(1, 2)  # (B, C, R)
        levels = [self.steps[0](rows)]
        for step in self.steps[1:]:  # the second level is made of the features, as PDVC's code has it
            rows = step(rows)  # (B, D, R / 2^level)
            levels.append(rows)
        return [level.transpose(1, 2) for level in levels]


def _step(width_in: int, width: int, level: int) -> nn.Sequential:
    kernel = {"kernel_size": 1} if level == 0 else {"kernel_size": 3, "stride": 2, "padding": 1}
    convolution = nn.Conv1d(width_in, width, **kernel)
    nn.init.xavier_uniform_(convolution.weight)
    nn.init.zeros_(convolution.bias)
    return nn.Sequential(convolution, nn.GroupNorm(width // math.gcd(GROUPED, width), width))


class Places(nn.Module):  # type: ignore[misc]
    """What is added to say where a position stands, how long the video is, and which level it is of.

    Half of the width are sines of the share of the video that has passed, half a linear map of the duration as a row
    of ones; PDVC's code. With `longest_duration` 0 all are sines.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width, self.longest = settings.attention.width, settings.longest_duration
        self.sines = width // 2 if self.longest else width
        self.duration = nn.Linear(self.longest, width - self.sines) if self.longest else None
        self.level = nn.Parameter(torch.randn(settings.attention.levels, width))

    def forward(self, lengths: Sequence[int], durations: Tensor) -> Tensor:
        """Return the places of all levels' positions, (B, P, D) float32. durations: (B,) seconds."""
        device = durations.device
        share = torch.cat([(torch.arange(length, device=device) + 1) / (length + EPSILON) for length in lengths])
        sines = sine_positions(share, self.sines).expand(len(durations), -1, -1)  # (B, P, D / 2)
        if self.duration is not None:
            passed = torch.arange(self.longest, device=device) < durations[:, None].floor()  # (B, 256)
            long = self.duration(passed.to(self.level.dtype))[:, None]  # (B, 1, D / 2)
            sines = torch.cat((sines, long.expand(-1, sines.shape[1], -1)), dim=-1)
        return sines + torch.repeat_interleave(self.level, torch.tensor(lengths, device=device), dim=0)


EPSILON = 1e-6  # PDVC's code


def sine_positions(share: Tensor, width: int) -> Tensor:
    """Return sines and cosines in turn, of `width` in all, for shares (P,) of a video: (P, width)."""
    slow = torch.arange(width, device=share.device) // 2 * 2 / width  # (width,)
    angle = share[:, None] * (2 * math.pi) / PERIOD**slow  # (P, width)
    return torch.stack((angle[:, 0::2].sin(), angle[:, 1::2].cos()), dim=2).flatten(1)


def fused(levels: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return all levels (B, P, D) stretched to the finest and added up, (B, R, D): appendix D, Multi-Scale Fusion."""
    finest, *coarser = levels.split(list(lengths), dim=1)
    total = finest
    for level in coarser:
        stretched = F.interpolate(level.transpose(1, 2), size=lengths[0], mode="linear", align_corners=False)
        total = total + stretched.transpose(1, 2)
    return total


def middles(lengths: Sequence[int], like: Tensor) -> Tensor:
    """Return the share of the video that has passed at the middle of each position, (P,)."""
    return torch.cat([(torch.arange(length, device=like.device) + 0.5) / length for length in lengths])
