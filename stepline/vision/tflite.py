"""Networks in TensorFlow Lite's format, run by ONNX Runtime: the convolutional ones that find
faces.

The graph of a .tflite file is a FlatBuffer (schema.fbs of TensorFlow Lite, version 3). It is
written down again in ONNX's operators, pictures (B, H, W, C) turned into planes (B, C, H, W) once.
That takes .1 to .3 s at loading and saves a second engine of 59 MB. Outputs are equal to TensorFlow
Lite's to 3e-4 of numbers up to 300.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError
from stepline.networks.onnx_graph import OnnxGraph

Array = npt.NDArray[Any]

# numbers of schema.fbs
TENSOR_TYPES = {0: np.float32, 1: np.float16, 2: np.int32, 3: np.uint8, 4: np.int64}
OPERATOR_NAMES = {
    0: "ADD",
    2: "CONCATENATION",
    3: "CONV_2D",
    4: "DEPTHWISE_CONV_2D",
    6: "DEQUANTIZE",
    17: "MAX_POOL_2D",
    19: "RELU",
    21: "RELU6",
    22: "RESHAPE",
    23: "RESIZE_BILINEAR",
    34: "PAD",
    54: "PRELU",
}
SAME_PADDING = 0
ACTIVATION_NAMES = {0: None, 1: "RELU", 3: "RELU6"}
EMPTY_TABLE = b"\4\0\4\0\4\0\0\0"  # its position is 4


class Table:
    """A table of a FlatBuffer: fields by their number in the schema."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def number(self, field: int, form: str = "i", default: int = 0) -> int:
        """Return a field of `form`, as struct names it."""
        at = self._find(field)
        return default if at is None else self._read(form, at)

    def numbers(self, field: int, kind: npt.DTypeLike = np.int32) -> Array:
        """Return a vector of numbers, an empty one where the field is left out."""
        start, count = self._vector(field)
        if not count:
            return np.zeros(0, kind)
        return np.frombuffer(self._data, kind, count, start)

    def table(self, field: int) -> "Table":
        """Return a table within, one without fields where it is left out."""
        at = self._find(field)
        if at is None:
            return Table(EMPTY_TABLE, 4)
        return Table(self._data, at + self._read("I", at))

    def tables(self, field: int) -> "list[Table]":
        """Return a vector of tables."""
        start, count = self._vector(field)
        end = start + 4 * count
        tables = []
        for at in range(start, end, 4):
            # Each offset counts from where it is written.
            offset = self._read("I", at)
            tables.append(Table(self._data, at + offset))
        return tables

    def _vector(self, field: int) -> tuple[int, int]:
        """Return where the items of a vector begin, and how many there are."""
        at = self._find(field)
        if at is None:
            return 0, 0
        start = at + self._read("I", at)
        return start + 4, self._read("I", start)

    def _find(self, field: int) -> int | None:
        # A table begins with the distance back to the index of its fields.
        index = self._position - self._read("i", self._position)
        slot = 4 + 2 * field
        # A field that is not in the index has its default.
        if slot >= self._read("H", index):
            return None
        offset = self._read("H", index + slot)
        return None if not offset else self._position + offset

    def _read(self, form: str, at: int) -> int:
        number: int = struct.unpack_from(f"<{form}", self._data, at)[0]
        return number


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return how many rows TensorFlow's "same" padding adds before and after `side` rows. The
    smaller half is before."""
    covered = (-(-side // stride) - 1) * stride + kernel
    total = max(covered - side, 0)
    before = total // 2
    return before, total - before


@dataclass
class _Conversion:
    """A graph on its way to ONNX.

    shapes: of tensors by number
    constants: those with data
    values: the names in the graph
    """

    shapes: list[tuple[int, ...]]
    constants: dict[int, Array]
    graph: OnnxGraph = field(default_factory=OnnxGraph)
    values: dict[int, str] = field(default_factory=dict)

    def value(self, tensor: int) -> str:
        """Return the name of a tensor, which may be a constant."""
        if tensor not in self.values:
            self.values[tensor] = self.graph.constant(self.constants[tensor])
        return self.values[tensor]

    def channels_last(self, tensor: int) -> str:
        """Return the name of a tensor with the axes of TensorFlow."""
        value = self.value(tensor)
        if len(self.shapes[tensor]) < 4:
            return value
        return self.graph.add("Transpose", value, perm=[0, 2, 3, 1])

    def window(self, options: Table, source: int, kernel: tuple[int, int]) -> dict[str, Any]:
        """Return strides and pads of a convolution or a pool."""
        stride_width = options.number(1, default=1)  # stored width first
        strides = [options.number(2, default=1), stride_width]
        pads = np.zeros((2, 2), int)  # row: height, width; column: before, after
        if options.number(0, "b") == SAME_PADDING:
            rows = map(same_padding, self.shapes[source][1:3], kernel, strides)
            pads = np.array(list(rows))
        # ONNX has what is before on all sides first.
        all_before_first = pads.T.ravel()
        return {"strides": strides, "pads": all_before_first.tolist()}

    def activate(self, value: str, name: str | None) -> str:
        """Return a value after an activation. None leaves it as it is."""
        if name is None:
            return value
        if name == "RELU":
            return self.graph.add("Relu", value)
        low = self.graph.constant(np.array(0, np.float32))
        high = self.graph.constant(np.array(6, np.float32))
        return self.graph.add("Clip", value, low, high)

    def convolution(self, inputs: list[int], options: Table, *, depthwise: bool) -> str:
        """Return a convolution with its bias. Kernels are stored as (out, h, w, in), depth-wise
        ones as (1, h, w, out)."""
        source, weight, bias = inputs
        kernel = self.constants[weight]
        if depthwise:
            planes = kernel.transpose(3, 0, 1, 2)
            groups = len(planes)
            activation = options.number(4, "b")
        else:
            planes = kernel.transpose(0, 3, 1, 2)
            groups = 1
            activation = options.number(3, "b")
        rows = self.value(source)
        planes_name = self.graph.constant(planes)
        shift = self.value(bias)
        window = self.window(options, source, kernel.shape[1:3])
        hidden = self.graph.add("Conv", rows, planes_name, shift, group=groups, **window)
        return self.activate(hidden, ACTIVATION_NAMES[activation])

    def operator(self, name: str, inputs: list[int], output: int, options: Table) -> str:
        """Return the name of an operator's output."""
        add = self.graph.add
        constant = self.graph.constant
        source = self.value(inputs[0])
        match name:
            case "CONV_2D":
                return self.convolution(inputs, options, depthwise=False)
            case "DEPTHWISE_CONV_2D":
                return self.convolution(inputs, options, depthwise=True)
            case "MAX_POOL_2D":
                height = options.number(4)
                width = options.number(3)
                window = self.window(options, inputs[0], (height, width))
                return add("MaxPool", source, kernel_shape=[height, width], **window)
            case "ADD":
                total = add("Add", source, self.value(inputs[1]))
                activation = options.number(0, "b")
                return self.activate(total, ACTIVATION_NAMES[activation])
            case "PRELU":
                planes = self.constants[inputs[1]].reshape(-1, 1, 1)
                return add("PRelu", source, constant(planes))
            case "PAD":
                pads = self.constants[inputs[1]]
                # From the order B, H, W, C to B, C, H, W.
                pads = pads[[0, 3, 1, 2]].T  # (2, 4): before, after
                numbers = pads.astype(np.int64).ravel()
                return add("Pad", source, constant(numbers))
            case "RESIZE_BILINEAR":
                height, width, depth = self.shapes[output][1:]
                sizes = np.array([1, depth, height, width], np.int64)
                pixels = "half_pixel" if options.number(3, "b") else "asymmetric"
                modes = {"mode": "linear", "coordinate_transformation_mode": pixels}
                return add("Resize", source, "", "", constant(sizes), **modes)
            case "RESHAPE":
                # Shapes are those of the file, so the numbers are put in its order first.
                shape = np.array(self.shapes[output], np.int64)
                sizes_name = constant(shape)
                return add("Reshape", self.channels_last(inputs[0]), sizes_name)
            case "CONCATENATION":
                return add("Concat", *map(self.value, inputs), axis=options.number(0))
        # What is left is an activation by itself.
        return self.activate(source, name)


@dataclass(frozen=True)
class TfliteNetwork:
    """A network of one square picture. side: in pixels. `run` returns all outputs as one row, whose
    `shapes` these are."""

    side: int
    shapes: tuple[tuple[int, ...], ...]
    run: Callable[..., Array]

    def __call__(self, picture: npt.NDArray[np.float32]) -> list[Array]:
        """Return the outputs for a picture (side, side, 3), in the numbers that the network was
        trained on."""
        flat = self.run(picture=picture[None]).ravel()
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        ends = np.cumsum(sizes)
        outputs = []
        for part, shape in zip(np.split(flat, ends[:-1]), self.shapes, strict=True):
            outputs.append(part.reshape(shape))
        return outputs


def load_tflite(path: Path) -> TfliteNetwork:
    """Return the network of a .tflite file with one picture as input.

    Raises ModelError for any other file, and for a network with operators beyond those of
    OPERATOR_NAMES.
    """
    try:
        return _convert(path.read_bytes())
    except (OSError, struct.error, KeyError, ValueError, IndexError, TypeError) as error:
        fault = f"not a TensorFlow Lite network that can be read ({error})"
        cure = "`stepline weights get mediapipe` brings those that can"
        raise ModelError(f"{path}: {fault}; {cure}") from error


def _convert(data: bytes) -> TfliteNetwork:
    """Return the network of a file's bytes."""
    if data[4:8] != b"TFL3":
        raise ValueError("no TFL3 header")
    (position,) = struct.unpack_from("<I", data)
    model = Table(data, position)
    main = model.tables(2)[0]
    buffers = model.tables(4)

    # tensors, those with data as constants
    shapes = []
    constants = {}
    for n, tensor in enumerate(main.tables(0)):
        shape = tuple(tensor.numbers(0).tolist())
        shapes.append(shape)
        content = buffers[tensor.number(2, "I")].numbers(0, np.uint8)
        if content.size:
            kind = TENSOR_TYPES[tensor.number(1, "b")]
            constants[n] = content.view(kind).reshape(shape)

    # operators, in the order in which they run
    (source,) = main.numbers(1).tolist()
    conversion = _Conversion(shapes, constants)
    graph = conversion.graph
    picture = graph.input("picture", shapes[source])
    conversion.values[source] = graph.add("Transpose", picture, perm=[0, 3, 1, 2])
    # The code is in one of two fields, and the other holds a smaller number.
    codes = [max(code.number(0, "b"), code.number(3)) for code in model.tables(1)]
    for operator in main.tables(3):
        code = codes[operator.number(0, "I")]
        name = OPERATOR_NAMES.get(code)
        if name is None:
            raise ValueError("an operator that is not known here")
        inputs = operator.numbers(1).tolist()
        (output,) = operator.numbers(2).tolist()
        # Weights stored in half precision become constants.
        if name == "DEQUANTIZE":
            constants[output] = constants[inputs[0]].astype(np.float32)
            continue
        options = operator.table(4)
        conversion.values[output] = conversion.operator(name, inputs, output, options)

    # all outputs as one row
    outputs = main.numbers(2).tolist()
    rows = []
    for n in outputs:
        value = conversion.channels_last(n)
        rows.append(graph.add("Flatten", value, axis=0))
    run = graph.compile(graph.add("Concat", *rows, axis=1))
    output_shapes = [shapes[n][1:] for n in outputs]
    return TfliteNetwork(shapes[source][1], tuple(output_shapes), run)
