"""S3D-G as it runs at inference: the function of `network.S3D` at rest, several times as fast (equal to 1e-5, tested).

Every norm is folded into the convolution before it. Activations stay in one order in memory, (B, T, H, W, C): seen as
(B T, C, H, W) each spatial convolution is a two-dimensional one, seen as (B, C, T, H W) so is each temporal one, both
channels-last, so that nothing is ever copied from one order to another. The convolutions of a block that read the same
input are one, pools over a cube are two over a square and a line, and gates write where the block's output lies.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.vision.s3d.network import BLOCKS, S3D, SHRINKS, Block, Gate, Shrink, Unit, space_to_depth

LAST = torch.channels_last


class Kernel(NamedTuple):
    """A convolution with its norm folded in: weight (out, in, height, width), bias (out,), padding."""

    weight: Tensor
    bias: Tensor
    padding: tuple[int, int]


class Branches(NamedTuple):
    """A block: the three point convolutions of its input as one, what follows them, and the four gates."""

    points: Kernel
    widths: tuple[int, int, int]
    cubes: tuple[tuple[Kernel, Kernel], tuple[Kernel, Kernel]]
    pooled: Kernel
    gates: tuple[tuple[Tensor, Tensor], ...]


class FoldedS3D:
    """A network at rest; immutable, so that threads may share it."""

    def __init__(self, network: S3D) -> None:
        """network: its weights are copied; later training does not change this."""
        with torch.no_grad():
            self._stem = _stem(network.conv1)
            self._point = _space(network.conv_2b)
            self._cube = _cube(network.conv_2c)
            self._gate = _gate(network.gating)
            self._blocks = {name: _block(getattr(network, name)) for name in BLOCKS}
            self._joint = (network.fc.weight.detach().clone(), network.fc.bias.detach().clone())

    def __call__(self, clips: Tensor) -> Tensor:
        """Return (B, 512) for clips (B, 3, T, H, W) in [0, 1] with even T, H and W."""
        with torch.inference_mode():
            return F.linear(self._pooled(clips), *self._joint)

    def pooled(self, clips: Tensor) -> Tensor:
        """Return (B, 1024), the mean of the last block."""
        with torch.inference_mode():
            return self._pooled(clips)

    def _pooled(self, clips: Tensor) -> Tensor:
        hidden = _shrunk(_convolved_stem(space_to_depth(clips), self._stem), SHRINKS["conv_2b"])  # (B, T, H, W, C)
        hidden = _over_time(_over_space(_over_space(hidden, self._point), self._cube[0]), self._cube[1])
        _gated(hidden, self._gate, hidden)
        for name, block in self._blocks.items():
            if name in SHRINKS:
                hidden = _shrunk(hidden, SHRINKS[name])
            hidden = _blocked(hidden, block)
        return hidden.mean((1, 2, 3))


# ---------------------------------------------------------------- running; hidden is (B, T, H, W, C), contiguous


def _over_space(hidden: Tensor, kernel: Kernel) -> Tensor:
    b, t, h, w, c = hidden.shape
    return _convolved(hidden.view(b * t, h, w, c), kernel).view(b, t, h, w, -1)


def _over_time(hidden: Tensor, kernel: Kernel) -> Tensor:
    b, t, h, w, c = hidden.shape
    return _convolved(hidden.view(b, t, h * w, c), kernel).view(b, t, h, w, -1)


def _convolved(rows: Tensor, kernel: Kernel) -> Tensor:
    """Return the convolution of (N, H, W, C) and a ReLU as (N, H, W, out)."""
    out = F.conv2d(rows.permute(0, 3, 1, 2), kernel.weight, kernel.bias, padding=kernel.padding)
    return F.relu_(out).permute(0, 2, 3, 1).contiguous()


def _convolved_stem(parts: Tensor, kernel: Kernel) -> Tensor:
    """Return the first convolution (B, T, H, W, 64) of (B, 24, T, H, W): two neighbouring frames are one picture."""
    b, c, t, h, w = parts.shape
    frames = F.pad(parts.permute(0, 2, 3, 4, 1), (0, 0, 1, 2, 1, 2, 0, 1))  # (B, T + 1, H + 3, W + 3, 24)
    pairs = torch.cat((frames[:, :-1], frames[:, 1:]), dim=4)  # (B, T, H + 3, W + 3, 48)
    return _convolved(pairs.view(b * t, h + 3, w + 3, 2 * c), kernel).view(b, t, h, w, -1)


def _shrunk(hidden: Tensor, pool: Shrink) -> Tensor:
    """Return the max pool; a side that is not odd needs no padding, since its last window may reach past the end."""
    b, t, h, w, c = hidden.shape
    rows = hidden.view(b * t, h, w, c).permute(0, 3, 1, 2)
    if pool.side == 3 and (h % 2 or w % 2):
        rows = F.pad(rows, (0, w % 2, 0, h % 2))  # zeros: no value is below
    rows = F.max_pool2d(rows, pool.side, 2, ceil_mode=True).permute(0, 2, 3, 1).contiguous()  # (B T, H', W', C)
    _, h, w, _ = rows.shape
    if pool.time == 1:
        return rows.view(b, t, h, w, c)
    lines = rows.view(b, t, h * w, c).permute(0, 3, 1, 2)
    if pool.time == 3 and t % 2:
        lines = F.pad(lines, (0, 0, 0, 1))
    lines = F.max_pool2d(lines, (pool.time, 1), (2, 1), ceil_mode=True).permute(0, 2, 3, 1).contiguous()
    return lines.view(b, -1, h, w, c)


def _cube_pooled(hidden: Tensor) -> Tensor:
    """Return the greatest of each value's 3 x 3 x 3 neighbours."""
    b, t, h, w, c = hidden.shape
    rows = F.max_pool2d(hidden.view(b * t, h, w, c).permute(0, 3, 1, 2), 3, 1, 1).permute(0, 2, 3, 1).contiguous()
    lines = rows.view(b, t, h * w, c)
    out = lines.clone()
    torch.maximum(out[:, 1:], lines[:, :-1], out=out[:, 1:])
    torch.maximum(out[:, :-1], lines[:, 1:], out=out[:, :-1])
    return out.view(b, t, h, w, c)


def _gated(branch: Tensor, gate: tuple[Tensor, Tensor], out: Tensor) -> None:
    """Write the branch into `out`, each channel weighed by what all channels mean over the clip."""
    weights = torch.sigmoid(F.linear(branch.mean((1, 2, 3)), *gate))  # (B, C)
    torch.mul(branch, weights[:, None, None, None, :], out=out)


def _blocked(hidden: Tensor, block: Branches) -> Tensor:
    plain, *middles = _over_space(hidden, block.points).split(block.widths, dim=4)
    branches = [plain]
    for middle, (space, time) in zip(middles, block.cubes, strict=True):
        branches.append(_over_time(_over_space(middle.contiguous(), space), time))
    branches.append(_over_space(_cube_pooled(hidden), block.pooled))
    sizes = [branch.shape[4] for branch in branches]
    out = hidden.new_empty((*hidden.shape[:4], sum(sizes)))
    for branch, gate, part in zip(branches, block.gates, out.split(sizes, dim=4), strict=True):
        _gated(branch, gate, part)
    return out


# ---------------------------------------------------------------- folding


def _fold(convolution: torch.nn.Conv3d, norm: torch.nn.BatchNorm3d) -> tuple[Tensor, Tensor]:
    """Return the weight (out, in, T, H, W) and the bias of one convolution that does what it and its norm did."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    gain = norm.weight * torch.rsqrt(variance + norm.eps)
    return convolution.weight * gain[:, None, None, None, None], norm.bias - mean * gain


def _stem(unit: Unit) -> Kernel:
    weight, bias = _fold(unit.conv1, unit.bn1)  # (64, 24, 2, 4, 4)
    return _kernel(torch.cat((weight[:, :, 0], weight[:, :, 1]), dim=1), bias, (0, 0))


def _space(unit: Unit) -> Kernel:
    weight, bias = _fold(unit.conv1, unit.bn1)
    return _kernel(weight[:, :, 0], bias, (weight.shape[3] // 2, weight.shape[4] // 2))


def _cube(unit: Unit) -> tuple[Kernel, Kernel]:
    weight, bias = _fold(unit.conv2, unit.bn2)  # (C, C, 3, 1, 1)
    return _space(unit), _kernel(weight[:, :, :, 0], bias, (1, 0))


def _gate(gate: Gate) -> tuple[Tensor, Tensor]:
    return gate.fc.weight.detach().clone(), gate.fc.bias.detach().clone()


def _block(block: Block) -> Branches:
    parts = [_space(unit) for unit in (block.conv_b0, block.conv_b1_a, block.conv_b2_a)]
    points = _kernel(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]), (0, 0))
    plain, first, second = (len(part.bias) for part in parts)
    gates = (block.gating_b0, block.gating_b1, block.gating_b2, block.gating_b3)
    cubes = (_cube(block.conv_b1_b), _cube(block.conv_b2_b))
    return Branches(points, (plain, first, second), cubes, _space(block.conv_b3_b), tuple(map(_gate, gates)))


def _kernel(weight: Tensor, bias: Tensor, padding: tuple[int, int]) -> Kernel:
    return Kernel(weight.detach().contiguous(memory_format=LAST), bias.detach().clone(), padding)
