"""S3D-G, clips to vectors: `S3D` with the weights' own names, to train, and `FoldedS3D`, the same
function, to run.

Letters: B clips, T frames, H and W pixels, C channels.
Sources: Xie et al. 2018 (S3D-G), Miech et al. 2020 (MIL-NCE, HowTo100M). Differs from the first, as
the second's released form does: space to depth before the first convolution. The stem and each
branch of each block have a gate.

`FoldedS3D` is several times as fast and equal to 1e-5 (tested). Every norm is folded into the
convolution before it. Activations stay in one order in memory, (B, T, H, W, C). Seen as (B T, C, H,
W) each spatial convolution is a two-dimensional one. Seen as (B, C, T, H W) so is each temporal
one. Both are channels-last, so that nothing is ever copied from one order to another. The
convolutions of a block that read the same input are one. Pools over a cube are two over a square
and a line. Gates write where the block's output is.
"""

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
        pooled = F.max_pool3d(hidden, 3, stride=1, padding=1)
        pooled = self.conv_b3_b(pooled)

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
    kernel = (pool.time, pool.side, pool.side)
    stride = (min(2, pool.time), 2, 2)
    return F.max_pool3d(padded, kernel, stride, ceil_mode=True)


# ---------------------------------------------------------------- the folded form. hidden is
# (B, T, H, W, C), contiguous


class FoldedConvolution(NamedTuple):
    """A convolution with its norm folded in, and a ReLU: weight (out, in, height, width), bias
    (out,). over_time: height is time, width is all pixels."""

    weight: Tensor
    bias: Tensor
    padding: tuple[int, int]
    over_time: bool = False

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return (B, T, H, W, out)."""
        if self.over_time:
            lines = hidden.flatten(2, 3)  # (B, T, H W, C)
            convolved = self.convolve(lines)
        else:
            pictures = hidden.flatten(0, 1)  # (B T, H, W, C)
            convolved = self.convolve(pictures)
        shape = hidden.shape[:4]
        return convolved.view(*shape, -1)

    def convolve(self, rows: Tensor) -> Tensor:
        """Return the convolution of (N, H, W, C), (N, H, W, out)."""
        planes = rows.permute(0, 3, 1, 2)
        positive = F.relu_(F.conv2d(planes, self.weight, self.bias, padding=self.padding))
        return positive.permute(0, 2, 3, 1).contiguous()


class FoldedGate(NamedTuple):
    """Weighs each channel by what all channels mean over the clip: weight (C, C), bias (C,)."""

    weight: Tensor
    bias: Tensor

    def write(self, branch: Tensor, out: Tensor) -> None:
        """Write the weighed branch into `out`."""
        means = branch.mean((1, 2, 3))  # (B, C)
        logits = F.linear(means, self.weight, self.bias)
        weights = torch.sigmoid(logits)  # (B, C)
        torch.mul(branch, weights[:, None, None, None, :], out=out)


class FoldedBlock:
    """A block: the three point convolutions of its input as one, what follows them, and the four
    gates."""

    def __init__(self, block: InceptionBlock) -> None:
        # the point convolutions read the same input, so one convolution does all three
        weights = []
        biases = []
        for unit in (block.conv_b0, block.conv_b1_a, block.conv_b2_a):
            weight, bias = _fold(unit.conv1, unit.bn1)
            weights.append(weight)
            biases.append(bias)
        weight = torch.cat(weights)[:, :, 0]
        self.points = _folded(weight, torch.cat(biases))
        self.widths = [len(bias) for bias in biases]

        self.cubes = [_fold_unit(block.conv_b1_b), _fold_unit(block.conv_b2_b)]
        (self.pooled,) = _fold_unit(block.conv_b3_b)
        self.gates = [
            _fold_gate(block.gating_b0),
            _fold_gate(block.gating_b1),
            _fold_gate(block.gating_b2),
            _fold_gate(block.gating_b3),
        ]

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return (B, T, H, W, out)."""
        # the branches
        points = self.points(hidden)
        plain, *middles = points.split(self.widths, dim=4)
        branches = [plain]
        for middle, (space, time) in zip(middles, self.cubes, strict=True):
            rows = space(middle.contiguous())
            rows = time(rows)
            branches.append(rows)
        pooled = _cube_pooled(hidden)
        pooled = self.pooled(pooled)
        branches.append(pooled)

        # each gate writes where the block's output lies
        widths = [branch.shape[4] for branch in branches]
        size = (*hidden.shape[:4], sum(widths))
        out = hidden.new_empty(size)
        parts = out.split(widths, dim=4)
        for branch, gate, part in zip(branches, self.gates, parts, strict=True):
            gate.write(branch, part)
        return out


class FoldedS3D:
    """A network at rest. Immutable, so that threads may share it."""

    def __init__(self, network: S3D) -> None:
        """network: its weights are copied. Later training does not change this."""
        with torch.no_grad():
            # the stem sees two neighbouring frames as one picture
            weight, bias = _fold(network.conv1.conv1, network.conv1.bn1)  # (64, 24, 2, 4, 4)
            first, second = weight.unbind(2)
            pairs = torch.cat((first, second), dim=1)  # (64, 48, 4, 4)
            self._stem = _folded(pairs, bias)._replace(padding=(0, 0))

            (self._point,) = _fold_unit(network.conv_2b)
            self._separable = _fold_unit(network.conv_2c)
            self._gate = _fold_gate(network.gating)
            self._blocks = {}
            for name in BLOCK_WIDTHS:
                block = getattr(network, name)
                self._blocks[name] = FoldedBlock(block)
            joint = network.fc
            self._joint_weight = joint.weight.detach().clone()
            self._joint_bias = joint.bias.detach().clone()

    def __call__(self, clips: Tensor) -> Tensor:
        """Return (B, 512) for clips (B, 3, T, H, W) in [0, 1] with even T, H and W."""
        with torch.inference_mode():
            pooled = self.pooled(clips)
            return F.linear(pooled, self._joint_weight, self._joint_bias)

    def pooled(self, clips: Tensor) -> Tensor:
        """Return (B, 1024), the mean of the last block."""
        with torch.inference_mode():
            hidden = _convolve_stem(space_to_depth(clips), self._stem)
            hidden = _max_pooled(hidden, MAX_POOLS["conv_2b"])
            hidden = self._point(hidden)
            for convolution in self._separable:
                hidden = convolution(hidden)
            self._gate.write(hidden, hidden)
            for name, block in self._blocks.items():
                if name in MAX_POOLS:
                    hidden = _max_pooled(hidden, MAX_POOLS[name])
                hidden = block(hidden)
            return hidden.mean((1, 2, 3))


def _convolve_stem(parts: Tensor, stem: FoldedConvolution) -> Tensor:
    """Return the first convolution (B, T, H, W, 64) of (B, 24, T, H, W): two neighbouring frames
    are one picture."""
    frames = parts.permute(0, 2, 3, 4, 1)  # (B, T, H, W, 24)
    # `S3D` pads both sides and cuts off the first row. So less is padded before.
    padding = (0, 0, 1, 2, 1, 2, 0, 1)
    frames = F.pad(frames, padding)  # (B, T + 1, H + 3, W + 3, 24)
    earlier = frames[:, :-1]
    later = frames[:, 1:]
    pairs = torch.cat((earlier, later), dim=4)  # (B, T, H + 3, W + 3, 48)
    pictures = pairs.flatten(0, 1)
    convolved = stem.convolve(pictures)  # (B T, H, W, 64)
    return convolved.unflatten(0, (len(parts), -1))


def _max_pooled(hidden: Tensor, pool: MaxPool) -> Tensor:
    """Return the max pool. A side that is not odd needs no padding, since its last window may reach
    past the end."""
    b, t, h, w, _ = hidden.shape

    # over space
    rows = hidden.flatten(0, 1)  # (B T, H, W, C)
    if pool.side == 3 and (h % 2 or w % 2):
        padding = (0, 0, 0, w % 2, 0, h % 2)
        rows = F.pad(rows, padding)  # zeros: no value is below
    kernel = (pool.side, pool.side)
    rows = _pool_planes(rows, kernel, stride=(2, 2))  # (B T, H', W', C)
    pictures = rows.unflatten(0, (b, t))
    if pool.time == 1:
        return pictures

    # over time
    lines = pictures.flatten(2, 3)  # (B, T, H' W', C)
    if pool.time == 3 and t % 2:
        lines = F.pad(lines, (0, 0, 0, 0, 0, 1))
    kernel = (pool.time, 1)
    return _pool_planes(lines, kernel, stride=(2, 1)).unflatten(2, pictures.shape[2:4])


def _cube_pooled(hidden: Tensor) -> Tensor:
    """Return the greatest of each value's 3 x 3 x 3 neighbours."""
    pictures = hidden.flatten(0, 1)  # (B T, H, W, C)
    lines = _pool_planes(pictures, (3, 3), (1, 1), padding=1).view_as(hidden)
    # Over time: each place, the one before and the one after.
    out = lines.clone()
    later = out[:, 1:]
    torch.maximum(later, lines[:, :-1], out=later)
    earlier = out[:, :-1]
    torch.maximum(earlier, lines[:, 1:], out=earlier)
    return out


def _pool_planes(
    rows: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: int = 0
) -> Tensor:
    """Return the max pool of (N, H, W, C), contiguous. The last window may reach past the end."""
    planes = rows.permute(0, 3, 1, 2)
    pooled = F.max_pool2d(planes, kernel, stride, padding, ceil_mode=True)
    return pooled.permute(0, 2, 3, 1).contiguous()


# ---------------------------------------------------------------- folding


def _fold(convolution: nn.Conv3d, norm: nn.BatchNorm3d) -> tuple[Tensor, Tensor]:
    """Return the weight (out, in, T, H, W) and the bias of one convolution that does what it and
    its norm did."""
    # At rest a norm is a gain and a shift of each channel.
    variance = norm.running_var + norm.eps
    gain = norm.weight * torch.rsqrt(variance)
    weight = convolution.weight * gain[:, None, None, None, None]
    bias = norm.bias - norm.running_mean * gain
    return weight, bias


def _fold_unit(unit: ConvNormReLU) -> list[FoldedConvolution]:
    """Return the convolution over space, and of a separable one that over time."""
    weight, bias = _fold(unit.conv1, unit.bn1)
    over_space = _folded(weight[:, :, 0], bias)
    if not unit.separable:
        return [over_space]
    weight, bias = _fold(unit.conv2, unit.bn2)  # (C, C, 3, 1, 1)
    over_time = _folded(weight[:, :, :, 0], bias)
    return [over_space, over_time._replace(over_time=True)]


def _fold_gate(gate: FeatureGating) -> FoldedGate:
    weight = gate.fc.weight.detach().clone()
    bias = gate.fc.bias.detach().clone()
    return FoldedGate(weight, bias)


def _folded(weight: Tensor, bias: Tensor) -> FoldedConvolution:
    """Return a convolution that keeps the size of what it reads."""
    planes = weight.detach().contiguous(memory_format=torch.channels_last)
    shift = bias.detach().clone()
    height, width = planes.shape[2:]
    return FoldedConvolution(planes, shift, (height // 2, width // 2))
