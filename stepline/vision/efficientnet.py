"""EfficientNet-Lite0: 1,000 ImageNet class scores of an image.

Letters: B images, C channels, H and W in pixels.
Source: Tan and Le 2019 (EfficientNet). Differs as "Lite" does: ReLU6 instead of swish, no
squeeze-and-excitation, stem and head not scaled. ONNX Runtime runs it on the CPU, with every
BatchNorm folded into the convolution before it (equal to 1e-5, tested). The weights were trained
with TensorFlow's "same" padding, whose odd row at stride 2 and even sides is at the end.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stepline.networks.device import cpu_threads
from stepline.networks.onnx_graph import TENSOR_TYPES, OnnxGraph, run_batches
from stepline.networks.state_dict import Array, check_weights, read_tensors
from stepline.processes import trim_memory
from stepline.records import Matrix
from stepline.vision.encode import Images

INPUT_SIDE = 224  # px, the input is SIDE x SIDE
# of uint8 RGB. These are Lite's own, not ImageNet's channel statistics.
PIXEL_MEAN = 127.0
PIXEL_SCALE = 128.0
NORM_EPSILON = 1e-3  # of every BatchNorm, as trained in TensorFlow
NORM_WEIGHTS = ("weight", "bias", "running_mean", "running_var")  # in the checkpoint
CLASS_COUNT = 1000


class BlockStage(NamedTuple):
    """A stage of consecutive MBConv blocks. The first block has the stride and sets the width.

    Attributes:
        block_count: number of blocks.
        kernel: side of the depthwise kernel, in pixels.
        stride: stride of the first block. The other blocks have stride 1.
        expansion: factor by which a block widens its input.
        width: number of output channels.
    """

    block_count: int
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
    """A convolution followed by a BatchNorm, with their names in the checkpoint.

    Attributes:
        name: prefix of the names of the convolution's weights.
        norm: prefix of the names of the BatchNorm's weights.
        shape: shape of the kernel, (output channels, input channels per group, height, width).
        stride: stride in pixels, the same in both directions.
        groups: number of channel groups, which in a depthwise convolution is the number of
            channels.
        has_relu6: whether a ReLU6 follows.
        has_residual: whether the input of the block is added to the output.
    """

    name: str
    norm: str
    shape: tuple[int, int, int, int]
    stride: int = 1
    groups: int = 1
    has_relu6: bool = True
    has_residual: bool = False


def list_convolutions() -> list[list[Convolution]]:
    """Return the convolutions of the stem, of each of the 16 blocks and of the head, in order."""
    blocks = [[Convolution("_conv_stem", "_bn0", (STEM_WIDTH, 3, 3, 3), stride=2)]]
    width = STEM_WIDTH
    for stage in BLOCK_STAGES:
        for number in range(stage.block_count):
            stride = 1 if number else stage.stride
            blocks.append(_mbconv(f"_blocks.{len(blocks) - 1}", width, stage, stride))
            width = stage.width
    blocks.append([Convolution("_conv_head", "_bn1", (HEAD_WIDTH, width, 1, 1))])
    return blocks


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding of TensorFlow's "same" mode before and after `side` pixels.

    The smaller half comes before.

    Args:
        side: height or width of the input.
        kernel: size of the kernel in the same direction.
        stride: stride in the same direction.
    """
    padding = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return padding // 2, padding - padding // 2


def _mbconv(name: str, width: int, stage: BlockStage, stride: int) -> list[Convolution]:
    """Return the convolutions of an MBConv block: expansion, depthwise, projection.

    Args:
        name: prefix of the block's weights.
        width: number of input channels.
        stage: stage of the block.
        stride: stride of the depthwise convolution.
    """
    inner_width = width * stage.expansion
    depthwise = Convolution(
        f"{name}._depthwise_conv",
        f"{name}._bn1",
        (inner_width, 1, stage.kernel, stage.kernel),
        stride=stride,
        groups=inner_width,
    )
    project = Convolution(
        f"{name}._project_conv",
        f"{name}._bn2",
        (stage.width, inner_width, 1, 1),
        has_relu6=False,
        has_residual=stride == 1 and width == stage.width,
    )
    if stage.expansion == 1:
        return [depthwise, project]
    expand = Convolution(f"{name}._expand_conv", f"{name}._bn0", (inner_width, width, 1, 1))
    return [expand, depthwise, project]


class EfficientNetLite0:
    """EfficientNet-Lite0 image classifier with 1,000 ImageNet classes. It is thread-safe."""

    def __init__(self, path: Path) -> None:
        """Load the network. path: file with the state dict of the released weights."""
        weights = _load_state_dict(path)
        self._classify = _compile(weights)
        # What was read is given back to the system before any image comes.
        del weights
        trim_memory()

    def __call__(self, images: Images) -> Matrix:
        """Return class scores (B, 1000), before the softmax, of uint8 RGB images (B, H, W, 3)."""
        # One image per run: as fast as four, in half the memory.
        rows = run_batches(
            lambda image: self._classify(images=resize(image)[None]),
            list(images),
            threads=cpu_threads(reserved=1),
        )
        return np.concatenate(rows)


def resize(image: Images) -> Images:
    """Return the whole image (H, W, 3), squeezed to (224, 224, 3) by antialiased bilinear resizing.

    Nothing is cropped, whereas the usual centre crop would remove 44 % of a 16:9 image. Integer
    arithmetic, as in torch's `interpolate` of bytes, gives the same pixels on every machine.
    """
    for axis in (1, 0):
        size = image.shape[axis]
        if size == INPUT_SIDE:
            continue
        taps, weights, bits = _resampling_weights(size)
        shape = [*image.shape]
        shape[axis] = INPUT_SIDE
        total = np.full(shape, 1 << bits - 1, np.int32)  # half a unit, so that the shift rounds
        for tap, weight in zip(taps, weights, strict=True):
            total += image.take(tap, axis) * weight.reshape(-1, *[1] * (2 - axis))
        image = (total >> bits).astype(np.uint8)
    return image


@functools.lru_cache(maxsize=16)
def _resampling_weights(size: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int32], int]:
    """Return (input pixels, weights, bits) that resize `size` pixels to 224.

    Input pixels and weights are (taps, 224). A weight is an integer times 2 ** -bits, with as many
    bits as 16-bit weights allow.
    """
    scale = size / INPUT_SIDE
    radius = max(scale, 1.0)
    centres = scale * (np.arange(INPUT_SIDE) + 0.5)
    first = np.maximum((centres - radius + 0.5).astype(int), 0)
    end = np.minimum((centres + radius + 0.5).astype(int), size)
    taps = first + np.arange((end - first).max())[:, None]
    distance = np.abs((taps - centres + 0.5) / radius)
    weights = np.where(taps < end, np.maximum(1 - distance, 0), 0)
    weights /= weights.sum(0)
    greatest = weights.max()
    bits = next(n for n in range(23) if n == 22 or int(0.5 + greatest * (2 << n)) >= 1 << 15)
    return np.minimum(taps, size - 1), (0.5 + weights * (1 << bits)).astype(np.int32), bits


def _compile(weights: Mapping[str, Array]) -> Callable[..., Array]:
    """Return the network as an ONNX Runtime function from resized uint8 images (B, 224, 224, 3) to
    class scores (B, 1000).

    weights: weight name -> array.
    """
    graph = OnnxGraph()
    numbers = (0.0, 6.0, PIXEL_MEAN, PIXEL_SCALE)
    lowest, highest, mean, scale = (graph.constant(np.array(n, np.float32)) for n in numbers)
    images = graph.input("images", ("B", INPUT_SIDE, INPUT_SIDE, 3), "uint8")
    planes = graph.add("Cast", images, to=TENSOR_TYPES["float32"])
    planes = graph.add("Transpose", planes, perm=[0, 3, 1, 2])  # (B, 3, 224, 224)
    hidden = graph.add("Div", graph.add("Sub", planes, mean), scale)

    side = INPUT_SIDE
    for block in list_convolutions():
        block_input = hidden
        for layer in block:
            # At rest a BatchNorm is a gain and a shift of each channel.
            gain, shift, norm_mean, variance = (
                weights[f"{layer.norm}.{name}"] for name in NORM_WEIGHTS
            )
            gain = gain / np.sqrt(variance + np.float32(NORM_EPSILON))  # (out,)
            kernel = weights[f"{layer.name}.weight"] * gain[:, None, None, None]
            before, after = same_padding(side, layer.shape[2], layer.stride)
            side = -(-side // layer.stride)
            hidden = graph.add(
                "Conv",
                hidden,
                graph.constant(kernel),
                graph.constant(shift - norm_mean * gain),
                pads=[before, before, after, after],
                strides=[layer.stride] * 2,
                group=layer.groups,
            )
            if layer.has_relu6:
                hidden = graph.add("Clip", hidden, lowest, highest)
            if layer.has_residual:
                hidden = graph.add("Add", hidden, block_input)

    pooled = graph.add("Flatten", graph.add("GlobalAveragePool", hidden))  # (B, 1280)
    classifier = (graph.constant(weights[f"_fc.{name}"]) for name in ("weight", "bias"))
    return graph.compile(graph.add("Gemm", pooled, *classifier, transB=1))  # (B, 1000)


def _load_state_dict(path: Path) -> dict[str, Array]:
    """Return weight name -> array from a checkpoint, whose names and shapes are all checked."""
    cure = "give its state dict"
    weights = {
        name: values
        for name, values in read_tensors(path, "EfficientNet-Lite0", cure).items()
        if not name.endswith(".num_batches_tracked")  # counters of the training
    }
    shapes: dict[str, tuple[int, ...]] = {
        "_fc.weight": (CLASS_COUNT, HEAD_WIDTH),
        "_fc.bias": (CLASS_COUNT,),
    }
    for layer in itertools.chain(*list_convolutions()):
        shapes[f"{layer.name}.weight"] = layer.shape
        for name in NORM_WEIGHTS:
            shapes[f"{layer.norm}.{name}"] = layer.shape[:1]
    check_weights(path, "EfficientNet-Lite0", weights, shapes, cure)
    return weights
