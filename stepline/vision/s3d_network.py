"""S3D-G: video clips to vectors, with the weight names of the released checkpoint.

Letters: B clips, T frames, H and W pixels, C channels.
Sources: Xie et al. 2018 (S3D-G), Miech et al. 2020 (MIL-NCE, HowTo100M). Differs from the first, as
the second's released form does: space to depth before the first convolution. The stem and each
branch of each block have a gate.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError

STEM_WIDTH = 192  # channels that reach the first block
POOLED_WIDTH = 1024  # of the last block: the rows of HowTo100M's feature files
JOINT_WIDTH = 512  # of the space shared with texts

# time, height and width
POINT_KERNEL = (1, 1, 1)
CUBE_KERNEL = (3, 3, 3)


class BlockWidths(NamedTuple):
    """Numbers of channels in the four branches of an inception block, in the terms of GoogLeNet's
    table 1.

    Attributes:
        conv1x1: output of the branch with one 1x1x1 convolution.
        reduce_first: output of the 1x1x1 convolution that begins the first separable branch.
        conv_first: output of the first separable branch: a 1x1x1 and a separable convolution.
        reduce_second: output of the 1x1x1 convolution that begins the second separable branch.
        conv_second: output of the second separable branch, built like the first.
        pool_projection: output of the branch with a max pool and a 1x1x1 convolution.
    """

    conv1x1: int
    reduce_first: int
    conv_first: int
    reduce_second: int
    conv_second: int
    pool_projection: int

    @property
    def out(self) -> int:
        """Number of output channels of the whole block."""
        return self.conv1x1 + self.conv_first + self.conv_second + self.pool_projection


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
    """A max pool between blocks. Its stride is 2 along each axis with a kernel larger than 1.

    Attributes:
        name: name of the layer in the official code.
        time: size of the kernel in frames.
        side: height and width of the kernel in pixels.
    """

    name: str
    time: int
    side: int


# pools by the name of the block or convolution behind them
MAX_POOLS = {
    "conv_2b": MaxPool("maxpool_2a", 1, 3),
    "mixed_3b": MaxPool("maxpool_3a", 1, 3),
    "mixed_4b": MaxPool("maxpool_4a", 3, 3),
    "mixed_5b": MaxPool("maxpool_5a", 2, 2),
}


class ConvNormReLU(nn.Module):  # type: ignore[misc]
    """A 3D convolution with BatchNorm and ReLU.

    A separable one is a convolution over space, then one over time.
    """

    def __init__(
        self,
        input_width: int,
        output_width: int,
        kernel: tuple[int, int, int],
        *,
        separable: bool = False,
    ) -> None:
        super().__init__()
        time, height, width = kernel
        first_kernel = (1, height, width) if separable else kernel
        self.conv1 = _convolution(input_width, output_width, first_kernel)
        self.bn1 = nn.BatchNorm3d(output_width)
        if separable:
            self.conv2 = _convolution(output_width, output_width, (time, 1, 1))
            self.bn2 = nn.BatchNorm3d(output_width)
        self.separable = separable

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the output (B, output_width, T, H, W) for an input (B, input_width, T, H, W)."""
        hidden = F.relu(self.bn1(self.conv1(hidden)))
        return F.relu(self.bn2(self.conv2(hidden))) if self.separable else hidden


def _convolution(input_width: int, output_width: int, kernel: tuple[int, ...]) -> nn.Conv3d:
    padding = tuple(size // 2 for size in kernel)
    return nn.Conv3d(input_width, output_width, kernel, padding=padding, bias=False)


class FeatureGating(nn.Module):  # type: ignore[misc]
    """Feature gating: weights each channel by a sigmoid function of the clip's mean channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the input (B, C, T, H, W) with weighted channels."""
        weights = torch.sigmoid(self.fc(hidden.mean((2, 3, 4))))  # (B, C)
        return hidden * weights[:, :, None, None, None]


class InceptionBlock(nn.Module):  # type: ignore[misc]
    """Inception block: four gated branches of the same input, concatenated."""

    def __init__(self, input_width: int, widths: BlockWidths) -> None:
        super().__init__()
        plain, middle_a, a, middle_b, b, pooled = widths
        self.conv_b0 = ConvNormReLU(input_width, plain, POINT_KERNEL)
        self.conv_b1_a = ConvNormReLU(input_width, middle_a, POINT_KERNEL)
        self.conv_b1_b = ConvNormReLU(middle_a, a, CUBE_KERNEL, separable=True)
        self.conv_b2_a = ConvNormReLU(input_width, middle_b, POINT_KERNEL)
        self.conv_b2_b = ConvNormReLU(middle_b, b, CUBE_KERNEL, separable=True)
        self.conv_b3_b = ConvNormReLU(input_width, pooled, POINT_KERNEL)
        self.gating_b0 = FeatureGating(plain)
        self.gating_b1 = FeatureGating(a)
        self.gating_b2 = FeatureGating(b)
        self.gating_b3 = FeatureGating(pooled)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the output (B, widths.out, T, H, W) for an input (B, C, T, H, W)."""
        pooled = F.max_pool3d(hidden, CUBE_KERNEL, stride=1, padding=1)
        branches = (
            self.gating_b0(self.conv_b0(hidden)),
            self.gating_b1(self.conv_b1_b(self.conv_b1_a(hidden))),
            self.gating_b2(self.conv_b2_b(self.conv_b2_a(hidden))),
            self.gating_b3(self.conv_b3_b(pooled)),
        )
        return torch.cat(branches, dim=1)


class S3D(nn.Module):  # type: ignore[misc]
    """The S3D-G network.

    It maps clips to vectors of the space shared with texts, not normalised.
    """

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
        """Return the vectors (B, 512) of B clips.

        clips: RGB clips (B, 3, T, H, W) in [0, 1] with even T, H and W.
        """
        return self.fc(self.pooled(clips))

    def pooled(self, clips: Tensor) -> Tensor:
        """Return the mean over time and space of the last block's output, (B, 1024).

        clips: RGB clips (B, 3, T, H, W) in [0, 1] with even T, H and W.
        """
        *_, (_, last) = self.stages(clips)
        return last.mean((2, 3, 4))

    def stages(self, clips: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the output (B, C, T, H, W) of every stage of the network.

        clips: RGB clips (B, 3, T, H, W) in [0, 1].

        Raises ShapeError if T, H or W is odd.
        """
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
    """Return clips with each 2 x 2 x 2 cube of pixels as channels, (B, 24, T/2, H/2, W/2).

    The colour is the fastest index of the 24 channels. Raises ShapeError unless the clips are
    (B, 3, T, H, W) with even T, H and W.
    """
    shape = tuple(clips.shape)
    is_video = len(shape) == 5 and shape[1] == 3
    are_even = all(side >= 2 and side % 2 == 0 for side in shape[2:])
    if not is_video or not are_even:
        raise ShapeError(f"clips must be (B, 3, T, H, W) with even T, H and W, not {shape}")
    b, c, t, h, w = shape
    cubes = clips.reshape(b, c, t // 2, 2, h // 2, 2, w // 2, 2)
    return cubes.permute(0, 3, 5, 7, 1, 2, 4, 6).reshape(b, 8 * c, t // 2, h // 2, w // 2)


def max_pool(hidden: Tensor, pool: MaxPool) -> Tensor:
    """Return the max pool of an activation (B, C, T, H, W).

    A kernel of 3 is padded with zeros at the end, since values are never negative.
    """
    time_padding = max(0, pool.time - 2)
    side_padding = max(0, pool.side - 2)
    padded = F.pad(hidden, (0, side_padding, 0, side_padding, 0, time_padding))
    stride = (min(2, pool.time), 2, 2)
    return F.max_pool3d(padded, (pool.time, pool.side, pool.side), stride, ceil_mode=True)
