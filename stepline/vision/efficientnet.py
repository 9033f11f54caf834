"""EfficientNet-Lite0: what a picture shows, as 1,000 ImageNet class scores.

Letters: B pictures, C channels, H and W in pixels.
Source: Tan and Le 2019 (EfficientNet). Differs as "Lite" does: ReLU6 instead of swish, no squeeze-and-excitation, stem
and head not scaled.
Three things make it fast, and change nothing (equal to 1e-5, tested): every BatchNorm is folded into the convolution
before it; tensors are channels-last; pictures and kernels are turned by 180 degrees. The weights were trained with
TensorFlow's "same" padding, whose odd row at stride 2 and even sides lies at the end. PyTorch's lies at the start,
which on the turned picture is the end, so that no picture needs to be copied to be padded.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.device import current_device
from stepline.errors import ModelError
from stepline.weights import read_tensors

SIDE = 224  # px, the input is SIDE x SIDE
MEAN, SCALE = 127.0, 128.0  # of uint8 RGB; Lite's own, not ImageNet's channel statistics
EPSILON = 1e-3  # of every BatchNorm, as trained in TensorFlow
NORM = ("weight", "bias", "running_mean", "running_var")  # of every BatchNorm, in the checkpoint
CLASSES = 1000


class BlockStage(NamedTuple):
    """Blocks of one shape; the first one has the stride and changes the width."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    width: int


STEM, HEAD = 32, 1280  # channels
STAGES = (
    BlockStage(1, 3, 1, 1, 16),
    BlockStage(2, 3, 2, 6, 24),
    BlockStage(2, 5, 2, 6, 40),
    BlockStage(3, 3, 2, 6, 80),
    BlockStage(3, 5, 1, 6, 112),
    BlockStage(4, 5, 2, 6, 192),
    BlockStage(1, 3, 1, 6, 320),
)


class Convolution(NamedTuple):
    """A convolution and the BatchNorm after it, by their names in the checkpoint."""

    name: str
    norm: str
    shape: tuple[int, int, int, int]  # (out, in / groups, kernel, kernel)
    stride: int = 1
    groups: int = 1
    relu6: bool = True  # follows
    residual: bool = False  # its output is added to the block's input


def architecture() -> list[list[Convolution]]:
    """Return the convolutions of the stem, of each of the 16 blocks and of the head, in order."""
    parts = [[Convolution("_conv_stem", "_bn0", (STEM, 3, 3, 3), stride=2)]]
    width = STEM
    for stage in STAGES:
        for index in range(stage.blocks):
            stride = stage.stride if index == 0 else 1
            parts.append(_mbconv(f"_blocks.{len(parts) - 1}", width, stage, stride))
            width = stage.width
    return [*parts, [Convolution("_conv_head", "_bn1", (HEAD, width, 1, 1))]]


def _mbconv(name: str, width: int, stage: BlockStage, stride: int) -> list[Convolution]:
    """Return an inverted bottleneck (MBConv): widen, filter each channel alone, narrow."""
    inner = width * stage.expansion
    kernel = (inner, 1, stage.kernel, stage.kernel)
    convolutions = [
        Convolution(f"{name}._depthwise_conv", f"{name}._bn1", kernel, stride=stride, groups=inner),
        Convolution(
            f"{name}._project_conv",
            f"{name}._bn2",
            (stage.width, inner, 1, 1),
            relu6=False,
            residual=stride == 1 and width == stage.width,
        ),
    ]
    if stage.expansion > 1:
        convolutions.insert(0, Convolution(f"{name}._expand_conv", f"{name}._bn0", (inner, width, 1, 1)))
    return convolutions


class EfficientNetLite0:
    """Pictures to class scores; immutable once loaded, so that threads may share it."""

    def __init__(self, path: Path) -> None:
        device = current_device()
        weights = {name: value.to(device.name) for name, value in _load_state_dict(path).items()}
        self.device = device
        self._parts = [[(conv, *_fold(conv, weights)) for conv in part] for part in architecture()]
        self._classifier = (weights["_fc.weight"], weights["_fc.bias"])

    def __call__(self, pictures: Tensor) -> Tensor:
        """Return class scores (B, 1000), before the softmax, for uint8 RGB pictures (B, H, W, 3) of any size."""
        with torch.inference_mode(), self.device.autocast():
            # resized where they are, on a CPU from uint8, so that every device sees the same picture
            hidden = prepare(pictures).to(self.device.name)  # (B, 3, 224, 224)
            for part in self._parts:
                block_input = hidden
                for conv, weight, bias in part:
                    hidden = F.conv2d(hidden, weight, bias, conv.stride, conv.shape[2] // 2, groups=conv.groups)
                    if conv.relu6:
                        hidden = F.relu6(hidden, inplace=True)
                    if conv.residual:
                        hidden += block_input
            return F.linear(hidden.mean((2, 3)), *self._classifier).float()  # (B, 1280) -> (B, 1000)


def prepare(pictures: Tensor) -> Tensor:
    """Return the network's input (B, 3, 224, 224) in [-1, 1]: the whole picture, squeezed into a square, turned.

    Nothing at the edges is lost; the usual centre crop would cut 44 % of a 16:9 picture away.
    """
    planes = pictures.permute(0, 3, 1, 2)  # (B, 3, H, W), already channels-last in memory
    if planes.shape[2:] != (SIDE, SIDE):
        planes = F.interpolate(planes, (SIDE, SIDE), mode="bilinear", antialias=True)
    return ((planes.flip(2, 3).float() - MEAN) / SCALE).contiguous(memory_format=torch.channels_last)


def _fold(conv: Convolution, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of one convolution that does what it and its BatchNorm did."""
    gain, shift, mean, variance = (weights[f"{conv.norm}.{name}"] for name in NORM)
    gain = gain * torch.rsqrt(variance + EPSILON)  # (out,)
    weight = (weights[f"{conv.name}.weight"] * gain[:, None, None, None]).flip(2, 3)
    return weight.contiguous(memory_format=torch.channels_last), shift - mean * gain


def _load_state_dict(path: Path) -> dict[str, Tensor]:
    """Return the state dict, after every name and shape was checked."""
    weights = read_tensors(path, "EfficientNet-Lite0", "give its state dict")
    weights = {name: value for name, value in weights.items() if not name.endswith(".num_batches_tracked")}
    shapes: dict[str, tuple[int, ...]] = {"_fc.weight": (CLASSES, HEAD), "_fc.bias": (CLASSES,)}
    for conv in itertools.chain(*architecture()):
        shapes[f"{conv.name}.weight"] = conv.shape
        shapes |= {f"{conv.norm}.{name}": (conv.shape[0],) for name in NORM}
    if wrong := sorted(shapes.keys() ^ weights.keys()):
        raise ModelError(f"{path}: {len(wrong)} weights missing or unknown ({wrong[0]!r}); give EfficientNet-Lite0")
    for name, shape in shapes.items():
        if tuple(weights[name].shape) != shape:
            raise ModelError(f"{path}: {name} is {tuple(weights[name].shape)}, not {shape}; give EfficientNet-Lite0")
    return weights
