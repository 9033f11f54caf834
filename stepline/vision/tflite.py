"""Networks in TensorFlow Lite's format, run by ONNX Runtime: the convolutional ones that find faces
and hands.

The graph of a .tflite file (a FlatBuffer; schema.fbs of TensorFlow Lite, version 3) is written down
again in ONNX's operators, pictures (B, H, W, C) turned into planes (B, C, H, W) once. That takes .1
to .3 s at loading and saves a second engine of 59 MB. Outputs are equal to TensorFlow Lite's to
3e-4 of numbers up to 300.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.device import cpu_threads
from stepline.errors import ModelError
from stepline.onnx_graph import OnnxGraph

Array = npt.NDArray[Any]

TYPES = {0: np.float32, 1: np.float16, 2: np.int32, 3: np.uint8, 4: np.int64}  # TensorType
OPERATORS = {
    0: "ADD",
    2: "CONCATENATION",
    3: "CONV_2D",
    4: "DEPTHWISE_CONV_2D",
    6: "DEQUANTIZE",
    14: "LOGISTIC",
    17: "MAX_POOL_2D",
    19: "RELU",
    21: "RELU6",
    22: "RESHAPE",
    23: "RESIZE_BILINEAR",
    34: "PAD",
    54: "PRELU",
}  # BuiltinOperator
SAME = 0  # Padding
ACTIVATIONS = {0: "", 1: "Relu", 3: "Relu6"}  # ActivationFunctionType


class Table:
    """A table of a FlatBuffer: fields by the number of their place in the schema."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._position = data, position

    def number(self, place: int, form: str = "i", default: int = 0) -> int:
        """Return a field of `form`, as struct names it."""
        at = self._find(place)
        return default if at is None else int(self._read(form, at))

    def numbers(self, place: int, kind: npt.DTypeLike = np.int32) -> Array:
        """Return a vector of numbers; an empty one where the field is left out."""
        at = self._find(place)
        if at is None:
            return np.zeros(0, kind)
        start = at + self._read("I", at)
        return np.frombuffer(self._data, kind, self._read("I", start), start + 4)

    def table(self, place: int) -> "Table":
        """Return a table within; one without fields where it is left out."""
        at = self._find(place)
        return (
            Table(b"\4\0\4\0\4\0\0\0", 4)
            if at is None
            else Table(self._data, at + self._read("I", at))
        )

    def tables(self, place: int) -> "list[Table]":
        """Return a vector of tables."""
        at = self._find(place)
        if at is None:
            return []
        start = at + self._read("I", at)
        places = range(start + 4, start + 4 + 4 * self._read("I", start), 4)
        return [Table(self._data, at + self._read("I", at)) for at in places]

    def _find(self, place: int) -> int | None:
        index = self._position - self._read("i", self._position)
        inside = 4 + 2 * place < self._read("H", index)
        offset = self._read("H", index + 4 + 2 * place) if inside else 0
        return self._position + offset if offset else None

    def _read(self, form: str, at: int) -> int:
        number: int = struct.unpack_from(f"<{form}", self._data, at)[0]
        return number


@dataclass
class _Conversion:
    """A graph on its way to ONNX: tensors by number; values: their names there; constants: those
    with data."""

    shapes: list[tuple[int, ...]]
    constants: dict[int, Array]
    graph: OnnxGraph = field(default_factory=OnnxGraph)
    values: dict[int, str] = field(default_factory=dict)

    def value(self, tensor: int) -> str:
        """Return the name of a tensor, a constant among them."""
        if tensor not in self.values:
            self.values[tensor] = self.graph.constant(self.constants[tensor])
        return self.values[tensor]

    def window(self, options: Table, source: int, kernel: tuple[int, int]) -> dict[str, Any]:
        """Return strides and pads of a convolution or a pool."""
        strides = [options.number(2, default=1), options.number(1, default=1)]  # stored width first
        pads = [0, 0]
        if options.number(0, "b") == SAME:
            sizes = self.shapes[source][1:3]
            steps = zip(kernel, strides, sizes, strict=True)
            pads = [
                max((-(-size // stride) - 1) * stride + k - size, 0) for k, stride, size in steps
            ]
        return {
            "strides": strides,
            "pads": [pad // 2 for pad in pads] + [pad - pad // 2 for pad in pads],
        }

    def activated(self, value: str, kind: int) -> str:
        """Return a value after the activation that is fused into its operator."""
        name = ACTIVATIONS[kind]
        if name == "Relu6":
            limits = (self.graph.constant(np.array(number, np.float32)) for number in (0, 6))
            return self.graph.add("Clip", value, *limits)
        return self.graph.add(name, value) if name else value

    def convolution(self, inputs: list[int], options: Table, *, depthwise: bool) -> str:
        """Return a convolution with its bias. Kernels lie as (out, h, w, in), of depth-wise ones as
        (1, h, w, out)."""
        kernel = self.constants[inputs[1]]
        planes = kernel.transpose((3, 0, 1, 2) if depthwise else (0, 3, 1, 2))
        window = self.window(options, inputs[0], kernel.shape[1:3])
        given = self.value(inputs[0]), self.graph.constant(planes), self.value(inputs[2])
        groups = planes.shape[0] if depthwise else 1
        hidden = self.graph.add("Conv", *given, group=groups, **window)
        return self.activated(hidden, options.number(4 if depthwise else 3, "b"))

    def operator(self, name: str, inputs: list[int], output: int, options: Table) -> str | None:
        """Return the name of an operator's output; None for one whose output is a constant."""
        add, value = self.graph.add, self.value
        if name == "DEQUANTIZE":
            self.constants[output] = self.constants[inputs[0]].astype(np.float32)
            return None
        if name in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            return self.convolution(inputs, options, depthwise=name == "DEPTHWISE_CONV_2D")
        if name == "MAX_POOL_2D":
            kernel = options.number(4), options.number(3)
            return add(
                "MaxPool",
                value(inputs[0]),
                kernel_shape=[*kernel],
                **self.window(options, inputs[0], kernel),
            )
        if name == "ADD":
            return self.activated(add("Add", *map(value, inputs)), options.number(0, "b"))
        if name == "PRELU":
            slope = self.graph.constant(self.constants[inputs[1]].reshape(-1, 1, 1))
            return add("PRelu", value(inputs[0]), slope)
        if name == "PAD":
            before, after = self.constants[inputs[1]][[0, 3, 1, 2]].T
            return add(
                "Pad",
                value(inputs[0]),
                self.graph.constant(np.concatenate([before, after]).astype(np.int64)),
            )
        if name == "RESIZE_BILINEAR":
            height, width = self.shapes[output][1:3]
            sizes = self.graph.constant(
                np.array([1, self.shapes[output][3], height, width], np.int64)
            )
            where = "half_pixel" if options.number(3, "b") else "asymmetric"
            return add(
                "Resize",
                value(inputs[0]),
                "",
                "",
                sizes,
                mode="linear",
                coordinate_transformation_mode=where,
            )
        if name == "RESHAPE":
            pictures = value(inputs[0])
            if len(self.shapes[inputs[0]]) == 4:
                pictures = add("Transpose", pictures, perm=[0, 2, 3, 1])
            return add(
                "Reshape", pictures, self.graph.constant(np.array(self.shapes[output], np.int64))
            )
        if name == "CONCATENATION":
            return add("Concat", *map(value, inputs), axis=options.number(0))
        return self.activated(value(inputs[0]), {"RELU": 1, "RELU6": 3}[name])


@dataclass(frozen=True)
class TfliteNetwork:
    """A network of one square picture: side in pixels; `run` gives all outputs, one after another,
    of `shapes`."""

    side: int
    shapes: tuple[tuple[int, ...], ...]
    run: Callable[..., Array]

    def __call__(self, picture: npt.NDArray[np.float32]) -> list[Array]:
        """Return the outputs for a picture (side, side, 3), in the numbers that the network was
        trained on."""
        flat = self.run(picture=picture[None]).ravel()
        edges = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        return [
            part.reshape(shape)
            for part, shape in zip(np.split(flat, edges), self.shapes, strict=True)
        ]


def load_tflite(path: Path) -> TfliteNetwork:
    """Return the network of a .tflite file with one picture as input.

    Raises ModelError for any other file, and for a network with operators beyond those of
    OPERATORS.
    """
    try:
        return _convert(path.read_bytes())
    except (OSError, struct.error, KeyError, ValueError, IndexError, TypeError) as error:
        what = f"not a TensorFlow Lite network that can be read ({error})"
        raise ModelError(
            f"{path}: {what}; `stepline weights get mediapipe` brings those that can"
        ) from error


def _convert(data: bytes) -> TfliteNetwork:
    """Return the network of a file's bytes."""
    if data[4:8] != b"TFL3":
        raise ValueError("no TFL3 header")
    model = Table(data, struct.unpack_from("<I", data)[0])
    main, buffers = model.tables(2)[0], model.tables(4)
    tensors = main.tables(0)
    shapes = [tuple(tensor.numbers(0).tolist()) for tensor in tensors]
    constants = {}
    for n, tensor in enumerate(tensors):
        content = buffers[tensor.number(2, "I")].numbers(0, np.uint8)
        if content.size:
            constants[n] = content.view(TYPES[tensor.number(1, "b")]).reshape(shapes[n])
    (source,) = main.numbers(1).tolist()
    conversion = _Conversion(shapes, constants)
    picture = conversion.graph.input("picture", shapes[source])
    conversion.values[source] = conversion.graph.add("Transpose", picture, perm=[0, 3, 1, 2])
    codes = [OPERATORS.get(max(code.number(0, "b"), code.number(3))) for code in model.tables(1)]
    for operator in main.tables(3):
        name = codes[operator.number(0, "I")]
        if name is None:
            raise ValueError("an operator that is not known here")
        (output,) = operator.numbers(2).tolist()
        found = conversion.operator(name, operator.numbers(1).tolist(), output, operator.table(4))
        if found is not None:
            conversion.values[output] = found
    outputs = main.numbers(2).tolist()
    add = conversion.graph.add
    flat = [
        add(
            "Flatten",
            add("Transpose", value, perm=[0, 2, 3, 1]) if len(shapes[n]) == 4 else value,
            axis=0,
        )
        for n, value in ((n, conversion.value(n)) for n in outputs)
    ]
    run = conversion.graph.compile(add("Concat", *flat, axis=1), threads=cpu_threads(beside=1))
    return TfliteNetwork(shapes[source][1], tuple(shapes[n][1:] for n in outputs), run)
