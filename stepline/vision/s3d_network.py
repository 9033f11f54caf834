"""S3D-G, clips to vectors: `S3D` with the weights' own names, to train, and `FoldedS3D`, the same
function, to run.

Letters: B clips, T frames, H and W pixels, C channels.
Sources: Xie et al. 2018 (S3D-G), Miech et al. 2020 (MIL-NCE, HowTo100M). Differs from the first, as
the second's released form does: space to depth before the first convolution. The stem and each
branch of each block have a gate.

`FoldedS3D` is twice as fast and equal to 1e-5 (tested). Every norm is folded into the convolution
before it. Activations stay in one order in memory, (B, T, H, W, C). Seen as (B T, C, H, W) each
spatial convolution is a two-dimensional one. Seen as (B, C, T, H W) so is each temporal one. Both
are channels-last, so that nothing is ever copied from one order to another.
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError

STEM_WIDTH = 192  # channels that reach the first block
POOLED_WIDTH = 1024  # of the last block: what HowTo100M's feature files hold
JOINT_WIDTH = 512  # of the space shared with texts

# time, height and width
POINT_KERNEL = (1, 1, 1)
CUBE_KERNEL = (3, 3, 3)


class BlockWidths(NamedTuple):
    """Output channels of a block's branches. middle_* are those between its 1x1x1 and its separable
    convolution."""

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


BLOCK_WIDTHS = {
    "mixed_3b": BlockWidths(64, 96, 128, 16, 32, 32),
    "mixed_3c": BlockWidths(128, 128, 192, 32, 96, 64),
    "mixed_4b": BlockWidths(192, 96, 208, 16, 48, 64),
    "mixed_4c": BlockWidths(160, 112, 224, 24, 64, 64),
    "mixed_4d": BlockWidths(128, 128, 256, 24, 64, 64),
    "mixed_4e": BlockWidths(112, 144, 288, 32, 64, 64),
    "mixed_4f": BlockWidths(256, 160, 320, 32, 128, 128),
    "mixed_5b": BlockWidths(256, 160, 320, 32, 128, 128),
    "mixed_5c": BlockWidths(384, 192, 384, 48, 128, 128),
}


class MaxPool(NamedTuple):
    """A max pool between blocks: time and side are both its kernel's. The stride is 2 wherever the
    kernel is not 1."""

    name: str
    time: int
    side: int


# What is shrunk before the block or convolution of that name.
MAX_POOLS = {
    "conv_2b": MaxPool("maxpool_2a", 1, 3),
    "mixed_3b": MaxPool("maxpool_3a", 1, 3),
    "mixed_4b": MaxPool("maxpool_4a", 3, 3),
    "mixed_5b": MaxPool("maxpool_5a", 2, 2),
}


class ConvNormReLU(nn.Module):  # type: ignore[misc]
    """A convolution, its norm and a ReLU. A separable one does it twice, first over space, then
    over time."""

    def __init__(
        self, inputs: int, outputs: int, kernel: tuple[int, int, int], *, separable: bool = False
    ) -> None:
        super().__init__()
        time, height, width = kernel
        first_kernel = (1, height, width) if separable else kernel
        self.conv1 = _convolution(inputs, outputs, first_kernel)
        self.bn1 = nn.BatchNorm3d(outputs)
        if separable:
            self.conv2 = _convolution(outputs, outputs, (time, 1, 1))
            self.bn2 = nn.BatchNorm3d(outputs)
        self.separable = separable

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (B, outputs, T, H, W)."""
        hidden = self.conv1(hidden)
        hidden = self.bn1(hidden)
        hidden = F.relu(hidden)
        if self.separable:
            hidden = self.conv2(hidden)
            hidden = self.bn2(hidden)
            hidden = F.relu(hidden)
        return hidden


def _convolution(inputs: int, outputs: int, kernel: tuple[int, ...]) -> nn.Conv3d:
    padding = tuple(size // 2 for size in kernel)
    return nn.Conv3d(inputs, outputs, kernel, padding=padding, bias=False)


class FeatureGating(nn.Module):  # type: ignore[misc]
    """Weighs each channel by what all channels mean over the clip."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the weighed channels, of the shape (B, C, T, H, W) that comes in."""
        means = hidden.mean((2, 3, 4))  # (B, C)
        logits = self.fc(means)
        weights = torch.sigmoid(logits)  # (B, C)
        return hidden * weights[:, :, None, None, None]


class InceptionBlock(nn.Module):  # type: ignore[misc]
    """Four branches of the same input, each gated, side by side."""

    def __init__(self, inputs: int, widths: BlockWidths) -> None:
        super().__init__()
        plain, middle_a, a, middle_b, b, pooled = widths
        self.conv_b0 = ConvNormReLU(inputs, plain, POINT_KERNEL)
        self.conv_b1_a = ConvNormReLU(inputs, middle_a, POINT_KERNEL)
        self.conv_b1_b = ConvNormReLU(middle_a, a, CUBE_KERNEL, separable=True)
        self.conv_b2_a = ConvNormReLU(inputs, middle_b, POINT_KERNEL)
        self.conv_b2_b = ConvNormReLU(middle_b, b, CUBE_KERNEL, separable=True)
        self.conv_b3_b = ConvNormReLU(inputs, pooled, POINT_KERNEL)
        self.gating_b0 = FeatureGating(plain)
        self.gating_b1 = FeatureGating(a)
        self.gating_b2 = FeatureGating(b)
        self.gating_b3 = FeatureGating(pooled)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (B, widths.out, T, H, W)."""
        # the branches, each in a line of its own
        plain = self.conv_b0(hidden)
        a = self.conv_b1_a(hidden)
        a = self.conv_b1_b(a)
        b = self.conv_b2_a(hidden)
        b = self.conv_b2_b(b)
        pooled = self.conv_b3_b(max_pool3d(hidden, (3, 3, 3), stride=(1, 1, 1), padding=1))

        # their gates, and all channels as one
        branches = (
            self.gating_b0(plain),
            self.gating_b1(a),
            self.gating_b2(b),
            self.gating_b3(pooled),
        )
        return torch.cat(branches, dim=1)


class S3D(nn.Module):  # type: ignore[misc]
    """Clips (B, 3, T, H, W) in [0, 1], T, H and W even, to (B, 512) of the space shared with texts,
    not normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = ConvNormReLU(24, 64, (2, 4, 4))
        self.conv_2b = ConvNormReLU(64, 64, POINT_KERNEL)
        self.conv_2c = ConvNormReLU(64, STEM_WIDTH, CUBE_KERNEL, separable=True)
        self.gating = FeatureGating(STEM_WIDTH)
        width = STEM_WIDTH
        for name, widths in BLOCK_WIDTHS.items():
            self.add_module(name, InceptionBlock(width, widths))
            width = widths.out
        self.fc = nn.Linear(POOLED_WIDTH, JOINT_WIDTH)

    def forward(self, clips: Tensor) -> Tensor:
        """Return (B, 512)."""
        pooled = self.pooled(clips)
        joint: Tensor = self.fc(pooled)
        return joint

    def pooled(self, clips: Tensor) -> Tensor:
        """Return (B, 1024), the mean of the last block."""
        for _, hidden in self.stages(clips):
            last = hidden
        return last.mean((2, 3, 4))

    def stages(self, clips: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the output (B, C, T, H, W) of every stage. Raises ShapeError for clips
        of odd sides."""
        hidden = space_to_depth(clips)
        yield "space_to_depth", hidden
        hidden = self.conv1(hidden)
        yield "conv1", hidden
        hidden = hidden[:, :, 1:, 1:, 1:]  # its padding made one too many of each
        yield "conv1_cropped", hidden
        for name in ("conv_2b", "conv_2c", "gating", *BLOCK_WIDTHS):
            if name in MAX_POOLS:
                hidden = max_pool(hidden, MAX_POOLS[name])
                yield MAX_POOLS[name].name, hidden
            hidden = getattr(self, name)(hidden)
            yield name, hidden


def space_to_depth(clips: Tensor) -> Tensor:
    """Return (B, 24, T/2, H/2, W/2): the 2 x 2 x 2 neighbours as channels, colour fastest."""
    shape = tuple(clips.shape)
    is_video = len(shape) == 5 and shape[1] == 3
    are_even = all(side >= 2 and side % 2 == 0 for side in shape[2:])
    if not is_video or not are_even:
        raise ShapeError(f"clips must be (B, 3, T, H, W) with even T, H and W, not {shape}")
    b, c, t, h, w = shape
    half_t = t // 2
    half_h = h // 2
    half_w = w // 2
    cubes = clips.reshape(b, c, half_t, 2, half_h, 2, half_w, 2)
    neighbours_first = cubes.permute(0, 3, 5, 7, 1, 2, 4, 6)
    return neighbours_first.reshape(b, 8 * c, half_t, half_h, half_w)


def max_pool(hidden: Tensor, pool: MaxPool) -> Tensor:
    """Return the max pool. A kernel of 3 is padded at the end, since values are never negative,
    with zeros."""
    time_padding = max(0, pool.time - 2)
    side_padding = max(0, pool.side - 2)
    padded = F.pad(hidden, (0, side_padding, 0, side_padding, 0, time_padding))
    return max_pool3d(padded, (pool.time, pool.side, pool.side), (min(2, pool.time), 2, 2))


def max_pool3d(
    hidden: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int], padding: int = 0
) -> Tensor:
    """Return the max pool over a square and then over a line, which is that over their cube."""
    time, *square = kernel
    over_time, *over_space = stride
    frames = hidden.transpose(1, 2)  # (B, T, C, H, W)
    planes = F.max_pool2d(frames.flatten(0, 1), square, over_space, padding, ceil_mode=True)
    hidden = planes.unflatten(0, frames.shape[:2]).transpose(1, 2)
    if time == 1:
        return hidden
    lines = hidden.flatten(3)  # (B, C, T, H W)
    lines = F.max_pool2d(lines, (time, 1), (over_time, 1), (padding, 0), ceil_mode=True)
    return lines.unflatten(3, hidden.shape[3:])


class FoldedUnit(nn.Module):  # type: ignore[misc]
    """A `ConvNormReLU` at rest: its norms folded into its convolutions, those two-dimensional."""

    def __init__(self, unit: ConvNormReLU) -> None:
        super().__init__()
        weight, bias = _fold(unit.conv1, unit.bn1)  # (out, in, time, height, width)
        # Two neighbouring frames are one picture, of twice the channels.
        self.has_pairs = weight.shape[2] == 2
        planes = torch.cat(weight.unbind(2), dim=1)
        self.over_space = (_channels_last(planes), bias, unit.conv1.padding[1:])
        self.over_time = None
        if unit.separable:
            weight, bias = _fold(unit.conv2, unit.bn2)
            self.over_time = (_channels_last(weight[:, :, :, 0]), bias, (1, 0))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (B, outputs, T, H, W), channels-last in memory."""
        rows = hidden.permute(0, 2, 3, 4, 1).contiguous()  # (B, T, H, W, C)
        if self.has_pairs:
            rows = F.pad(rows, (0, 0, 0, 0, 0, 0, 1, 1))
            rows = torch.cat((rows[:, :-1], rows[:, 1:]), dim=4)
        b, t = rows.shape[:2]
        pictures = _convolve(rows.flatten(0, 1), *self.over_space)  # (B T, H, W, C)
        rows = pictures.unflatten(0, (b, t))
        if self.over_time is not None:
            sides = rows.shape[2:4]
            lines = _convolve(rows.flatten(2, 3), *self.over_time)  # (B, T, H W, C)
            rows = lines.unflatten(2, sides)
        return rows.permute(0, 4, 1, 2, 3)


def _convolve(rows: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int]) -> Tensor:
    """Return the convolution and ReLU of (N, H, W, C), contiguous."""
    planes = rows.permute(0, 3, 1, 2)
    positive = F.relu_(F.conv2d(planes, weight, bias, padding=padding))
    return positive.permute(0, 2, 3, 1).contiguous()


def _channels_last(weight: Tensor) -> Tensor:
    return weight.contiguous(memory_format=torch.channels_last)


def _fold(convolution: nn.Conv3d, norm: nn.BatchNorm3d) -> tuple[Tensor, Tensor]:
    """Return the weight (out, in, T, H, W) and the bias of one convolution that does what it and
    its norm did."""
    # At rest a norm is a gain and a shift of each channel.
    variance = norm.running_var + norm.eps
    gain = norm.weight * torch.rsqrt(variance)
    weight = convolution.weight * gain[:, None, None, None, None]
    bias = norm.bias - norm.running_mean * gain
    return weight.detach(), bias.detach()


class FoldedS3D:
    """A network at rest. Immutable, so that threads may share it."""

    def __init__(self, network: S3D) -> None:
        """network: its weights are copied. Later training does not change this."""
        self._network = copy.deepcopy(network).eval()
        for module in list(self._network.modules()):
            for name, unit in list(module.named_children()):
                if isinstance(unit, ConvNormReLU):
                    setattr(module, name, FoldedUnit(unit))

    def __call__(self, clips: Tensor) -> Tensor:
        """Return (B, 512) for clips (B, 3, T, H, W) in [0, 1] with even T, H and W."""
        with torch.inference_mode():
            joint: Tensor = self._network(clips)
            return joint

    def pooled(self, clips: Tensor) -> Tensor:
        """Return (B, 1024), the mean of the last block."""
        with torch.inference_mode():
            return self._network.pooled(clips)
