"""TensorFlow Lite networks on ONNX Runtime: the convolutional networks that detect faces.

The graph of a .tflite file is a FlatBuffer (schema.fbs of TensorFlow Lite, version 3). `load_tflite`
rewrites it in ONNX operators. Tensors (B, H, W, C) become (B, C, H, W) once, at the input.
That takes .1 to .3 s at loading and saves a second inference engine of 59 MB. Outputs equal TensorFlow
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
    22: "RESHAPE",
    34: "PAD",
    54: "PRELU",
}
SAME_PADDING = 0
NO_ACTIVATION = 0
RELU_ACTIVATION = 1
EMPTY_TABLE = b"\4\0\4\0\4\0\0\0"  # its position is 4


class Table:
    """A table of a FlatBuffer, whose fields are read by their number in the schema."""

    def __init__(self, data: bytes, position: int) -> None:
        """Refer to a table in a file.

        Args:
            data: content of the file.
            position: byte offset of the table.
        """
        self._data = data
        self._position = position

    def number(self, field: int, form: str = "i", default: int = 0) -> int:
        """Return the value of an integer field.

        Args:
            field: number of the field in the schema.
            form: its type as a format character of `struct`.
            default: value of a field that the file leaves out.
        """
        offset = self._find(field)
        return default if offset is None else self._unpack(form, offset)

    def numbers(self, field: int, kind: npt.DTypeLike = np.int32) -> Array:
        """Return the value of a field that is a vector of numbers.

        It is empty if the field is left out.

        Args:
            field: number of the field in the schema.
            kind: type of the numbers.
        """
        start, count = self._vector(field)
        return np.frombuffer(self._data, kind, count, start) if count else np.zeros(0, kind)

    def table(self, field: int) -> "Table":
        """Return the nested table of a field. If the field is left out, the table has no fields.

        field: number of the field in the schema.
        """
        offset = self._find(field)
        if offset is None:
            return Table(EMPTY_TABLE, 4)
        return Table(self._data, offset + self._unpack("I", offset))

    def tables(self, field: int) -> "list[Table]":
        """Return the tables of a field that is a vector of tables.

        field: number of the field in the schema.
        """
        start, count = self._vector(field)
        offsets = range(start, start + 4 * count, 4)
        # Each item is the distance from where it is written to its table.
        return [Table(self._data, offset + self._unpack("I", offset)) for offset in offsets]

    def _vector(self, field: int) -> tuple[int, int]:
        """Return the byte offset of a vector's first item, and the number of items.

        field: number of the vector's field in the schema.
        """
        offset = self._find(field)
        if offset is None:
            return 0, 0
        start = offset + self._unpack("I", offset)
        return start + 4, self._unpack("I", start)

    def _find(self, field: int) -> int | None:
        """Return the byte offset of the value of a field, None if the field is left out."""
        # A table begins with the distance back to the index of its fields.
        index = self._position - self._unpack("i", self._position)
        slot = 4 + 2 * field
        if slot >= self._unpack("H", index):
            return None
        offset = self._unpack("H", index + slot)
        return self._position + offset if offset else None

    def _unpack(self, form: str, offset: int) -> int:
        number: int = struct.unpack_from(f"<{form}", self._data, offset)[0]
        return number


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


@dataclass
class _OnnxConverter:
    """Converts the operators of a TensorFlow Lite graph to ONNX, one at a time.

    Tensors are identified by their number in the TensorFlow Lite graph.

    Attributes:
        shapes: shapes of all tensors, with the axes of TensorFlow (B, H, W, C).
        constants: tensor number -> values, for tensors with stored values.
        graph: the ONNX graph so far.
        onnx_names: tensor number -> name in the ONNX graph, for the tensors so far.
    """

    shapes: list[tuple[int, ...]]
    constants: dict[int, Array]
    graph: OnnxGraph = field(default_factory=OnnxGraph)
    onnx_names: dict[int, str] = field(default_factory=dict)

    def onnx_name(self, tensor: int) -> str:
        """Return the name in the ONNX graph of a tensor. A constant is added to the graph."""
        if tensor not in self.onnx_names:
            self.onnx_names[tensor] = self.graph.constant(self.constants[tensor])
        return self.onnx_names[tensor]

    def channels_last(self, tensor: int) -> str:
        """Return the ONNX name of a tensor transposed to the axes of TensorFlow (B, H, W, C)."""
        name = self.onnx_name(tensor)
        if len(self.shapes[tensor]) < 4:
            return name
        return self.graph.add("Transpose", name, perm=[0, 2, 3, 1])

    def window_attributes(
        self, options: Table, source: int, kernel: tuple[int, int]
    ) -> dict[str, Any]:
        """Return the ONNX attributes `strides` and `pads` of a convolution or pool.

        Args:
            options: options of the TensorFlow Lite operator.
            source: number of the input tensor.
            kernel: (height, width) of the kernel.
        """
        strides = [options.number(2, default=1), options.number(1, default=1)]  # width is first
        pads = np.zeros((2, 2), int)  # row: height, width; column: before, after
        if options.number(0, "b") == SAME_PADDING:
            pads = np.array(list(map(same_padding, self.shapes[source][1:3], kernel, strides)))
        # ONNX has the padding before all axes first.
        return {"strides": strides, "pads": pads.T.ravel().tolist()}

    def activate(self, name: str, activation: int) -> str:
        """Add an activation function to the graph, and return the ONNX name of its output.

        Args:
            name: ONNX name of the input.
            activation: number of the function in the TensorFlow Lite schema.
        """
        if activation == NO_ACTIVATION:
            return name
        if activation == RELU_ACTIVATION:
            return self.graph.add("Relu", name)
        raise ValueError("an activation that is not known here")

    def convolution(self, inputs: list[int], options: Table, *, depthwise: bool) -> str:
        """Add a convolution with bias to the graph, and return the ONNX name of its output.

        Kernels are stored as (out, H, W, in), those of depthwise convolutions as (1, H, W, out).

        Args:
            inputs: numbers of the input, kernel and bias tensors.
            options: options of the TensorFlow Lite operator.
            depthwise: whether each channel has its own filter.
        """
        source, weight, bias = inputs
        kernel = self.constants[weight]
        planes = kernel.transpose((3, 0, 1, 2) if depthwise else (0, 3, 1, 2))
        hidden = self.graph.add(
            "Conv",
            self.onnx_name(source),
            self.graph.constant(planes),
            self.onnx_name(bias),
            group=len(planes) if depthwise else 1,
            **self.window_attributes(options, source, kernel.shape[1:3]),
        )
        return self.activate(hidden, options.number(4 if depthwise else 3, "b"))

    def convert(self, operator: str, inputs: list[int], output: int, options: Table) -> str:
        """Add an operator to the graph, and return the ONNX name of its output.

        Args:
            operator: name of the operator in the TensorFlow Lite schema.
            inputs: numbers of the input tensors.
            output: number of the output tensor.
            options: options of the operator.
        """
        add = self.graph.add
        source = self.onnx_name(inputs[0])
        match operator:
            case "CONV_2D" | "DEPTHWISE_CONV_2D":
                return self.convolution(inputs, options, depthwise=operator != "CONV_2D")
            case "MAX_POOL_2D":
                kernel = (options.number(4), options.number(3))
                window = self.window_attributes(options, inputs[0], kernel)
                return add("MaxPool", source, kernel_shape=list(kernel), **window)
            case "ADD":
                total = add("Add", source, self.onnx_name(inputs[1]))
                return self.activate(total, options.number(0, "b"))
            case "PRELU":
                slopes = self.constants[inputs[1]].reshape(-1, 1, 1)
                return add("PRelu", source, self.graph.constant(slopes))
            case "PAD":
                # From rows B, H, W, C of (before, after) to two rows of B, C, H, W.
                pads = self.constants[inputs[1]][[0, 3, 1, 2]].T.astype(np.int64)
                return add("Pad", source, self.graph.constant(pads.ravel()))
            case "RESHAPE":
                # The shapes are those of the file, so the axes are put in its order first.
                shape = np.array(self.shapes[output], np.int64)
                return add("Reshape", self.channels_last(inputs[0]), self.graph.constant(shape))
            case "CONCATENATION":
                return add("Concat", *map(self.onnx_name, inputs), axis=options.number(0))
        return self.activate(source, RELU_ACTIVATION)


@dataclass(frozen=True)
class TfliteNetwork:
    """A network that takes one square image.

    Attributes:
        side: pixels per side of the image.
        shapes: shapes of the outputs, without the batch axis.
        run: returns all outputs for an image (1, side, side, 3), concatenated as one row.
    """

    side: int
    shapes: tuple[tuple[int, ...], ...]
    run: Callable[..., Array]

    def __call__(self, image: npt.NDArray[np.float32]) -> list[Array]:
        """Return the outputs for an image (side, side, 3), with values scaled as in training."""
        row = self.run(image=image[None]).ravel()
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = np.split(row, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def load_tflite(path: Path) -> TfliteNetwork:
    """Return the network of a .tflite file that takes one image.

    Raises ModelError for any other file, and for operators that are not in OPERATOR_NAMES.
    """
    try:
        return _convert_file(path.read_bytes())
    except (OSError, struct.error, KeyError, ValueError, IndexError, TypeError) as error:
        fault = f"not a TensorFlow Lite network that can be read ({error})"
        cure = "`stepline weights get mediapipe` brings those that can"
        raise ModelError(f"{path}: {fault}; {cure}") from error


def _convert_file(data: bytes) -> TfliteNetwork:
    if data[4:8] != b"TFL3":
        raise ValueError("no TFL3 header")
    (position,) = struct.unpack_from("<I", data)
    model = Table(data, position)
    main = model.tables(2)[0]
    buffers = model.tables(4)

    # tensors, those with data as constants
    shapes: list[tuple[int, ...]] = []
    constants = {}
    for number, tensor in enumerate(main.tables(0)):
        shapes.append(tuple(tensor.numbers(0).tolist()))
        content = buffers[tensor.number(2, "I")].numbers(0, np.uint8)
        if content.size:
            kind = TENSOR_TYPES[tensor.number(1, "b")]
            constants[number] = content.view(kind).reshape(shapes[-1])

    # operators, in the order in which they run
    (source,) = main.numbers(1).tolist()
    converter = _OnnxConverter(shapes, constants)
    graph = converter.graph
    image = graph.input("image", shapes[source])
    converter.onnx_names[source] = graph.add("Transpose", image, perm=[0, 3, 1, 2])
    # The code is in one of two fields, and the other holds a smaller number.
    codes = [max(code.number(0, "b"), code.number(3)) for code in model.tables(1)]
    for operator in main.tables(3):
        name = OPERATOR_NAMES.get(codes[operator.number(0, "I")])
        if name is None:
            raise ValueError("an operator that is not known here")
        inputs = operator.numbers(1).tolist()
        (output,) = operator.numbers(2).tolist()
        # Weights stored in half precision become constants.
        if name == "DEQUANTIZE":
            constants[output] = constants[inputs[0]].astype(np.float32)
            continue
        converter.onnx_names[output] = converter.convert(name, inputs, output, operator.table(4))

    # all outputs as one row
    outputs = main.numbers(2).tolist()
    rows = [graph.add("Flatten", converter.channels_last(n), axis=0) for n in outputs]
    run = graph.compile(graph.add("Concat", *rows, axis=1))
    return TfliteNetwork(shapes[source][1], tuple(shapes[n][1:] for n in outputs), run)
