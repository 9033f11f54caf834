"""S3D-G: clips to vectors, with the weights' own names, for training and as what the fast form must equal.

Letters: B clips, T frames, H and W pixels, C channels. Sources: Xie et al. 2018 (S3D-G); Miech et al. 2020 (MIL-NCE,
HowTo100M), whose released form differs from the first: space to depth before the first convolution, and a gate on
the stem and on each branch of each block.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError

STEM = 192  # channels that reach the first block
POOLED = 1024  # of the last block: what HowTo100M's feature files hold
JOINT = 512  # of the space shared with texts


class Widths(NamedTuple):
    """Output channels of a block's branches; middle_* are those between its 1x1x1 and its separable convolution."""

    plain: int
    middle_a: int
    a: int
    middle_b: int
    b: int
    pooled: int

    @property
    def out(self) -> int:
        """Channels of the block."""
        return self.plain + self.a + self.b + self.pooled


BLOCKS = {
    "mixed_3b": Widths(64, 96, 128, 16, 32, 32),
    "mixed_3c": Widths(128, 128, 192, 32, 96, 64),
    "mixed_4b": Widths(192, 96, 208, 16, 48, 64),
    "mixed_4c": Widths(160, 112, 224, 24, 64, 64),
    "mixed_4d": Widths(128, 128, 256, 24, 64, 64),
    "mixed_4e": Widths(112, 144, 288, 32, 64, 64),
    "mixed_4f": Widths(256, 160, 320, 32, 128, 128),
    "mixed_5b": Widths(256, 160, 320, 32, 128, 128),
    "mixed_5c": Widths(384, 192, 384, 48, 128, 128),
}


class Shrink(NamedTuple):
    """A max pool between blocks: time and side are both its kernel's; the stride is 2 wherever the kernel is not 1."""

    time: int
    side: int


# What is shrunk before the block or convolution of that name.
SHRINKS = {"conv_2b": Shrink(1, 3), "mixed_3b": Shrink(1, 3), "mixed_4b": Shrink(3, 3), "mixed_5b": Shrink(2, 2)}
SHRINK_NAMES = {"conv_2b": "maxpool_2a", "mixed_3b": "maxpool_3a", "mixed_4b": "maxpool_4a", "mixed_5b": "maxpool_5a"}


class Unit(nn.Module):  # type: ignore[misc]
    """A convolution, its norm and a ReLU; a separable one does it twice, first over space, then over time."""

    def __init__(self, inputs: int, outputs: int, kernel: tuple[int, int, int], *, separable: bool = False) -> None:
        super().__init__()
        first = (1, *kernel[1:]) if separable else kernel
        self.conv1 = nn.Conv3d(inputs, outputs, first, padding=_same(first), bias=False)
        self.bn1 = nn.BatchNorm3d(outputs)
        if separable:
            second = (kernel[0], 1, 1)
            self.conv2 = nn.Conv3d(outputs, outputs, second, padding=_same(second), bias=False)
            self.bn2 = nn.BatchNorm3d(outputs)
        self.separable = separable

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (B, outputs, T, H, W)."""
        hidden = F.relu(self.bn1(self.conv1(hidden)))
        return F.relu(self.bn2(self.conv2(hidden))) if self.separable else hidden


class Gate(nn.Module):  # type: ignore[misc]
    """Weighs each channel by what all channels mean over the clip."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the weighed channels, (B, C, T, H, W) as given."""
        weights = torch.sigmoid(self.fc(hidden.mean((2, 3, 4))))  # (B, C)
        return hidden * weights[:, :, None, None, None]


class Block(nn.Module):  # type: ignore[misc]
    """Four branches of the same input, each gated, side by side."""

    def __init__(self, inputs: int, widths: Widths) -> None:
        super().__init__()
        point, cube = (1, 1, 1), (3, 3, 3)
        self.conv_b0 = Unit(inputs, widths.plain, point)
        self.conv_b1_a = Unit(inputs, widths.middle_a, point)
        self.conv_b1_b = Unit(widths.middle_a, widths.a, cube, separable=True)
        self.conv_b2_a = Unit(inputs, widths.middle_b, point)
        self.conv_b2_b = Unit(widths.middle_b, widths.b, cube, separable=True)
        self.conv_b3_b = Unit(inputs, widths.pooled, point)
        self.gating_b0, self.gating_b1 = Gate(widths.plain), Gate(widths.a)
        self.gating_b2, self.gating_b3 = Gate(widths.b), Gate(widths.pooled)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (B, widths.out, T, H, W)."""
        pooled = F.max_pool3d(hidden, 3, stride=1, padding=1)
        branches = (
            self.gating_b0(self.conv_b0(hidden)),
            self.gating_b1(self.conv_b1_b(self.conv_b1_a(hidden))),
            self.gating_b2(self.conv_b2_b(self.conv_b2_a(hidden))),
            self.gating_b3(self.conv_b3_b(pooled)),
        )
        return torch.cat(branches, dim=1)


class S3D(nn.Module):  # type: ignore[misc]
    """Clips (B, 3, T, H, W) in [0, 1], T, H and W even, to (B, 512) of the space shared with texts, not normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = Unit(24, 64, (2, 4, 4))
        self.conv_2b = Unit(64, 64, (1, 1, 1))
        self.conv_2c = Unit(64, STEM, (3, 3, 3), separable=True)
        self.gating = Gate(STEM)
        width = STEM
        for name, widths in BLOCKS.items():
            self.add_module(name, Block(width, widths))
            width = widths.out
        self.fc = nn.Linear(POOLED, JOINT)

    def forward(self, clips: Tensor) -> Tensor:
        """Return (B, 512)."""
        joint: Tensor = self.fc(self.pooled(clips))
        return joint

    def pooled(self, clips: Tensor) -> Tensor:
        """Return (B, 1024), the mean of the last block."""
        *_, (_, last) = self.stages(clips)
        return last.mean((2, 3, 4))

    def stages(self, clips: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the output (B, C, T, H, W) of every stage. Raises ShapeError for clips of odd sides."""
        hidden = space_to_depth(clips)
        yield "space_to_depth", hidden
        hidden = self.conv1(hidden)
        yield "conv1", hidden
        hidden = hidden[:, :, 1:, 1:, 1:]  # its padding made one too many of each
        yield "conv1_cropped", hidden
        for name in ("conv_2b", "conv_2c", "gating", *BLOCKS):
            if name in SHRINKS:
                hidden = shrink(hidden, SHRINKS[name])
                yield SHRINK_NAMES[name], hidden
            hidden = getattr(self, name)(hidden)
            yield name, hidden


def space_to_depth(clips: Tensor) -> Tensor:
    """Return (B, 24, T/2, H/2, W/2): the 2 x 2 x 2 neighbours as channels, colour fastest."""
    if clips.ndim != 5 or clips.shape[1] != 3 or any(side < 2 or side % 2 for side in clips.shape[2:]):
        raise ShapeError(f"clips must be (B, 3, T, H, W) with even T, H and W, not {tuple(clips.shape)}")
    b, c, t, h, w = clips.shape
    parts = clips.reshape(b, c, t // 2, 2, h // 2, 2, w // 2, 2)
    return parts.permute(0, 3, 5, 7, 1, 2, 4, 6).reshape(b, 8 * c, t // 2, h // 2, w // 2)


def shrink(hidden: Tensor, pool: Shrink) -> Tensor:
    """Return the max pool; a kernel of 3 is padded at the end, since values are never negative, with zeros."""
    after = (pool.side - 2 if pool.side > 1 else 0, pool.time - 2 if pool.time > 1 else 0)
    padded = F.pad(hidden, (0, after[0], 0, after[0], 0, after[1]))
    stride = (min(2, pool.time), 2, 2)
    return F.max_pool3d(padded, (pool.time, pool.side, pool.side), stride, ceil_mode=True)


def _same(kernel: tuple[int, int, int]) -> tuple[int, int, int]:
    return kernel[0] // 2, kernel[1] // 2, kernel[2] // 2
