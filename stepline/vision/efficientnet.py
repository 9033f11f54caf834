"""EfficientNet-Lite0: 1,000 ImageNet class scores of a picture.

Letters: B pictures, C channels, H and W in pixels.
Source: Tan and Le 2019 (EfficientNet). Differs as "Lite" does: ReLU6 instead of swish, no
squeeze-and-excitation, stem and head not scaled. ONNX Runtime runs it on a CPU. Torch runs it on
any other device, or in other numbers than float32. Both see the same pixels, and both have every
BatchNorm folded into the convolution before it (equal to 1e-5, tested). The weights were trained
with TensorFlow's "same" padding, whose odd row at stride 2 and even sides is at the end.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.networks.device import cpu_threads, current_device
from stepline.networks.onnx_graph import TENSOR_TYPES, OnnxGraph, run_batches
from stepline.networks.state_dict import Array, check_weights, read_tensors
from stepline.processes import trim_memory
from stepline.records import Matrix
from stepline.vision.encode import Pictures
from stepline.vision.tflite import same_padding

if TYPE_CHECKING:
    from torch import Tensor

INPUT_SIDE = 224  # px, the input is SIDE x SIDE
# of uint8 RGB. These are Lite's own, not ImageNet's channel statistics.
PIXEL_MEAN = 127.0
PIXEL_SCALE = 128.0
NORM_EPSILON = 1e-3  # of every BatchNorm, as trained in TensorFlow
NORM_WEIGHTS = ("weight", "bias", "running_mean", "running_var")  # in the checkpoint
CLASS_COUNT = 1000


class BlockStage(NamedTuple):
    """Blocks of one shape. The first one has the stride and changes the width."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    width: int


STEM_WIDTH = 32  # channels
HEAD_WIDTH = 1280
BLOCK_STAGES = (
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
    stem = Convolution("_conv_stem", "_bn0", (STEM_WIDTH, 3, 3, 3), stride=2)
    parts = [[stem]]
    width = STEM_WIDTH
    for stage in BLOCK_STAGES:
        stride = stage.stride
        for _ in range(stage.blocks):
            name = f"_blocks.{len(parts) - 1}"
            parts.append(_mbconv(name, width, stage, stride))
            width = stage.width
            stride = 1
    head = Convolution("_conv_head", "_bn1", (HEAD_WIDTH, width, 1, 1))
    return [*parts, [head]]


def _mbconv(name: str, width: int, stage: BlockStage, stride: int) -> list[Convolution]:
    """Return an inverted bottleneck (MBConv): widen, filter each channel alone, narrow."""
    inner = width * stage.expansion
    kernel = (inner, 1, stage.kernel, stage.kernel)
    each_channel = Convolution(
        f"{name}._depthwise_conv", f"{name}._bn1", kernel, stride=stride, groups=inner
    )
    project = Convolution(
        f"{name}._project_conv",
        f"{name}._bn2",
        (stage.width, inner, 1, 1),
        relu6=False,
        residual=stride == 1 and width == stage.width,
    )
    # Without expansion there is nothing to widen.
    if stage.expansion == 1:
        return [each_channel, project]
    expand = Convolution(f"{name}._expand_conv", f"{name}._bn0", (inner, width, 1, 1))
    return [expand, each_channel, project]


class EfficientNetLite0:
    """Pictures to class scores. Immutable once loaded, so that threads may share it."""

    def __init__(self, path: Path) -> None:
        self.device = current_device()
        weights = _load_state_dict(path)
        parts = []
        for part in architecture():
            layers = [_fold(convolution, weights) for convolution in part]
            parts.append(layers)
        classifier = (weights["_fc.weight"], weights["_fc.bias"])
        make_run = _TorchNetwork if self.device.needs_torch else _compile
        self._run = make_run(parts, classifier)
        # What was read is given back to the system before any picture comes.
        del weights, parts, layers, classifier
        trim_memory()

    def __call__(self, pictures: Pictures) -> Matrix:
        """Return class scores (B, 1000), before the softmax, for uint8 RGB pictures (B, H, W, 3) of
        any size."""
        scores: Matrix = self._run(pictures)
        return scores


def resize(pictures: Pictures) -> Pictures:
    """Return (B, 224, 224, 3): each whole picture squeezed into a square, by bilinear weights that
    widen to average.

    Nothing at the edges is lost. The usual centre crop would cut 44 % of a 16:9 picture away. In
    whole numbers, as torch's `interpolate` and Pillow resize bytes: the same pixels on every
    machine.
    """
    for axis in (2, 1):
        size = pictures.shape[axis]
        if size == INPUT_SIDE:
            continue
        taps, weights, bits = _resampling(size)
        shape = [*pictures.shape]
        shape[axis] = INPUT_SIDE
        # Half a unit more, so that the shift below rounds.
        half = 1 << bits - 1
        total = np.full(shape, half, np.int32)
        inner_axes = [1] * (3 - axis)
        for tap, weight in zip(taps, weights, strict=True):
            factors = weight.reshape(-1, *inner_axes)
            total += pictures.take(tap, axis) * factors
        pictures = (total >> bits).astype(np.uint8)
    return pictures


@functools.lru_cache(maxsize=16)
def _resampling(size: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int32], int]:
    """Return which inputs (taps, 224) each of 224 outputs is made of, with which weights, in units
    of 2 ** -bits.

    The weights are as fine as 16 bits allow.
    """
    # the inputs
    scale = size / INPUT_SIDE
    tap_radius = max(scale, 1.0)
    middles = scale * (np.arange(INPUT_SIDE) + 0.5)
    first_tap = np.maximum((middles - tap_radius + 0.5).astype(int), 0)
    last = np.minimum((middles + tap_radius + 0.5).astype(int), size)
    most = (last - first_tap).max()
    taps = first_tap + np.arange(most)[:, None]  # (taps, 224)

    # their weights fall to 0 at `reach`
    distance = np.abs((taps - middles + 0.5) / tap_radius)
    weights = np.where(taps < last, np.maximum(1 - distance, 0), 0)
    weights /= weights.sum(0)
    # As fine as 16 bits allow for the greatest weight.
    greatest = weights.max()
    bits = next(n for n in range(23) if n == 22 or int(0.5 + greatest * (2 << n)) >= 1 << 15)
    return np.minimum(taps, size - 1), (0.5 + weights * (1 << bits)).astype(np.int32), bits


class FoldedLayer(NamedTuple):
    """A convolution with its BatchNorm folded in."""

    layer: Convolution
    weight: Array
    bias: Array


Parts: TypeAlias = list[list[FoldedLayer]]  # as `architecture` has them


def _fold(convolution: Convolution, weights: Mapping[str, Array]) -> FoldedLayer:
    """Return a convolution with its BatchNorm folded in."""
    norm = [weights[f"{convolution.norm}.{name}"] for name in NORM_WEIGHTS]
    gain, shift, mean, variance = norm
    spread = np.sqrt(variance + np.float32(NORM_EPSILON))
    gain = gain / spread  # (out,)
    weight = weights[f"{convolution.name}.weight"] * gain[:, None, None, None]
    return FoldedLayer(convolution, weight, shift - mean * gain)


def _compile(parts: Parts, classifier: tuple[Array, Array]) -> Callable[[Pictures], Array]:
    """Return the network as ONNX Runtime runs it."""
    graph = OnnxGraph()
    numbers = (0.0, 6.0, PIXEL_MEAN, PIXEL_SCALE)
    lowest, highest, mean, scale = (graph.constant(np.array(n, np.float32)) for n in numbers)

    # the pictures, as the network was trained on them
    pictures = graph.input("pictures", ("B", INPUT_SIDE, INPUT_SIDE, 3), "uint8")
    planes = graph.add("Cast", pictures, to=TENSOR_TYPES["float32"])
    planes = graph.add("Transpose", planes, perm=[0, 3, 1, 2])  # (B, 3, 224, 224)
    hidden = graph.add("Div", graph.add("Sub", planes, mean), scale)

    # the convolutions
    side = INPUT_SIDE
    for part in parts:
        block_input = hidden
        for layer, *weights in part:
            before, after = same_padding(side, layer.shape[2], layer.stride)
            side = -(-side // layer.stride)
            hidden = graph.add(
                "Conv",
                hidden,
                *map(graph.constant, weights),
                pads=[before, before, after, after],
                strides=[layer.stride] * 2,
                group=layer.groups,
            )
            if layer.relu6:
                hidden = graph.add("Clip", hidden, lowest, highest)
            if layer.residual:
                hidden = graph.add("Add", hidden, block_input)

    # the scores
    pooled = graph.add("GlobalAveragePool", hidden)
    flat = graph.add("Flatten", pooled)  # (B, 1280)
    scores = graph.add("Gemm", flat, *map(graph.constant, classifier), transB=1)  # (B, 1000)
    run = graph.compile(scores)

    def classify(image: Pictures) -> Matrix:
        return run(pictures=resize(image[None]))

    def classify_all(images: Pictures) -> Matrix:
        # One picture per run: as fast as four, in half the memory.
        rows = run_batches(classify, list(images), threads=cpu_threads(reserved=1))
        return np.concatenate(rows)

    return classify_all


class _TorchNetwork:
    """The network as torch runs it, where the process's networks belong."""

    def __init__(self, parts: Parts, classifier: tuple[Array, Array]) -> None:
        import torch

        self._device = current_device()
        self._parts = []
        for part in parts:
            tensors = []
            for layer, weight, bias in part:
                kernel = self._tensor(weight).to(memory_format=torch.channels_last)
                tensors.append((layer, kernel, self._tensor(bias)))
            self._parts.append(tensors)
        self._classifier = [self._tensor(values) for values in classifier]

    def _tensor(self, values: Array) -> "Tensor":
        import torch

        return torch.from_numpy(values).to(self._device.name)

    def __call__(self, pictures: Pictures) -> Matrix:
        import torch
        import torch.nn.functional as F

        with torch.inference_mode(), self._device.autocast():
            # (B, 3, H, W), channels-last in memory
            planes = torch.from_numpy(pictures).permute(0, 3, 1, 2)
            size = (INPUT_SIDE, INPUT_SIDE)
            if planes.shape[2:] != size:  # on the CPU, whose `resize` this is
                planes = F.interpolate(planes, size, mode="bilinear", antialias=True)
            hidden = (planes.to(self._device.name).float() - PIXEL_MEAN) / PIXEL_SCALE
            for part in self._parts:
                block_input = hidden
                for layer, weight, bias in part:
                    pads = same_padding(hidden.shape[2], layer.shape[2], layer.stride)
                    hidden = F.pad(hidden, pads * 2)
                    hidden = F.conv2d(hidden, weight, bias, layer.stride, groups=layer.groups)
                    if layer.relu6:
                        hidden = F.relu6(hidden, inplace=True)
                    if layer.residual:
                        hidden += block_input
            pooled = hidden.mean((2, 3))
            scores: Matrix = F.linear(pooled, *self._classifier).float().cpu().numpy()
        return scores


def _load_state_dict(path: Path) -> dict[str, Array]:
    """Return the state dict, after every name and shape was checked."""
    weights = read_tensors(path, "EfficientNet-Lite0", "give its state dict")
    # Counters of the training say nothing at rest.
    for name in list(weights):
        if name.endswith(".num_batches_tracked"):
            del weights[name]
    shapes: dict[str, tuple[int, ...]] = {
        "_fc.weight": (CLASS_COUNT, HEAD_WIDTH),
        "_fc.bias": (CLASS_COUNT,),
    }
    for convolution in itertools.chain(*architecture()):
        shapes[f"{convolution.name}.weight"] = convolution.shape
        for name in NORM_WEIGHTS:
            shapes[f"{convolution.norm}.{name}"] = convolution.shape[:1]
    check_weights(path, "EfficientNet-Lite0", weights, shapes, "give its state dict")
    return weights
