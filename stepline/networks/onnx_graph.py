"""Builds networks as ONNX graphs and runs them with ONNX Runtime on the CPU, without torch or
files.

    graph = OnnxGraph()
    hidden = graph.add("MatMul", graph.input("rows", ("B", 384)), graph.constant(weight))
    run = graph.compile(graph.add("Softmax", hidden, axis=1))
    run(rows=rows)                        # the output as an array

Source: onnx.proto, IR version 8. The few messages that a graph needs are written as protocol
buffers here.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from stepline.processes import loading_lock, trim_memory

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Array = npt.NDArray[Any]
Batch = TypeVar("Batch")
Message = list[
    bytes | memoryview
]  # parts that are joined at the end, so that weights are copied once

MAX_BATCH_THREADS = 16  # batches in memory at the same time
IR_VERSION = 8
# ONNX's own set, and ONNX Runtime's kernels for transformers
OPERATOR_SETS = (("", 17), ("com.microsoft", 1))
TENSOR_TYPES = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7}  # TensorProto.DataType
# AttributeProto.AttributeType
FLOAT_TYPE = 1
INT_TYPE = 2
STRING_TYPE = 3
INTS_TYPE = 7
# what a field of a message begins with, next to its number: the form of its value
VARINT_FORM = 0
LENGTH_FORM = 2
FOUR_BYTES_FORM = 5


class OnnxGraph:
    """Builder of an ONNX graph. `input`, `constant` and `add` return names of tensors in the
    graph."""

    def __init__(self) -> None:
        self._inputs: Message = []
        self._constants: Message = []
        self._nodes: Message = []
        self._count = 0  # of names given

    def _next_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def input(self, name: str, shape: tuple[int | str, ...], dtype: str = "float32") -> str:
        """Add an input tensor to the graph and return its name.

        Args:
            name: name of the input.
            shape: sizes of the dimensions. A letter stands for a size that is only known at run
                time.
            dtype: numpy name of the number type.
        """
        self._inputs += _encode_field(11, _encode_value_info(name, dtype, shape))
        return name

    def constant(self, values: Array) -> str:
        """Add a constant tensor and return its name. Its number type is a key of TENSOR_TYPES."""
        name = self._next_name()
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        # The fields of TensorProto, the numbers as they are in memory.
        tensor = _encode_fields(1, values.shape)
        tensor += _encode_field(2, TENSOR_TYPES[values.dtype.name])
        tensor += _encode_field(8, name)
        tensor += _encode_field(9, [content])
        self._constants += _encode_field(5, tensor)
        return name

    def add(
        self,
        operator: str,
        *inputs: str,
        domain: str = "",
        **attributes: int | float | str | list[int],
    ) -> str:
        """Add an operator and return the name of its output tensor.

        Args:
            operator: ONNX name of the operator.
            inputs: names of the input tensors. "": an optional input that is left out.
            domain: ONNX domain of the operator. "": the standard domain.
            attributes: attributes of the operator.
        """
        output = self._next_name()
        # The numbers of the fields are those of NodeProto.
        node = _encode_fields(1, inputs)
        node += _encode_field(2, output)
        node += _encode_field(4, operator)
        node += _encode_field(7, domain)
        for name, value in attributes.items():
            node += _encode_field(5, _encode_attribute(name, value))
        self._nodes += _encode_field(1, node)
        return output

    def compile(self, output: str) -> Callable[..., Array]:
        """Return a function from input arrays, given by name, to the output array of the graph. The
        graph cannot be used afterwards.

        output: name of a float32 tensor of the graph.
        """
        # The fields of GraphProto, in the order of their numbers.
        graph = [
            *self._nodes,
            *_encode_field(2, "stepline"),
            *self._constants,
            *self._inputs,
            *_encode_field(12, _encode_value_info(output, "float32")),
        ]
        # Those of ModelProto around it.
        message = _encode_field(1, IR_VERSION)
        for name, number in OPERATOR_SETS:
            message += _encode_field(8, [*_encode_field(1, name), *_encode_field(2, number)])
        model = b"".join([*message, *_encode_field(7, graph)])
        del graph, message
        # The constants are in the model, and soon in the session.
        self._constants.clear()
        session = start_session(model)
        del model
        trim_memory()

        def run(**inputs: Array) -> Array:
            result: Array = session.run([output], inputs)[0]
            return result

        return run


def start_session(model: bytes | Path) -> "InferenceSession":
    """Return an ONNX Runtime session on the CPU. model: serialized model, or its file.

    A session uses one thread, since more threads could change the last bits of a sum. `run_batches`
    uses several cores.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # The arena keeps memory for the largest run.
    options.enable_cpu_mem_arena = False
    source = model if isinstance(model, bytes) else str(model)
    with loading_lock:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    # It would always hold the bytes, to load the model again on another device. That would be
    # MiniLM's weights twice.
    session._model_bytes = None
    return session


def run_batches(
    run: Callable[[Batch], Array], batches: Sequence[Batch], *, threads: int
) -> list[Array]:
    """Return the result of `run` for each batch, computed in a thread pool. Results do not depend
    on the number of threads.

    Args:
        run: function of one batch.
        batches: inputs of `run`.
        threads: number of threads.
    """
    if threads == 1 or len(batches) < 2:
        return [run(batch) for batch in batches]
    with ThreadPoolExecutor(min(threads, len(batches), MAX_BATCH_THREADS)) as pool:
        return list(pool.map(run, batches))


def _encode_varint(number: int) -> bytes:
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def _encode_key(number: int, form: int) -> bytes:
    """Return the protobuf key of a field: a varint of its number and wire type.

    Args:
        number: field number in the schema of the message.
        form: wire type, such as VARINT_FORM.
    """
    return _encode_varint(number << 3 | form)


def _encode_field(number: int, value: int | str | Message) -> Message:
    """Return a protobuf field: an integer as a varint, a text or nested message with its length
    before it.

    Args:
        number: field number in the schema of the message.
        value: integer, text, or encoded message.
    """
    if isinstance(value, int):
        return [_encode_key(number, VARINT_FORM), _encode_varint(value)]
    parts: Message = [value.encode()] if isinstance(value, str) else value
    length = sum(map(len, parts))
    return [_encode_key(number, LENGTH_FORM), _encode_varint(length), *parts]


def _encode_fields(number: int, values: Iterable[int | str]) -> Message:
    """Return a repeated protobuf field: every value, encoded as in `_encode_field`, one after the
    other.

    Args:
        number: field number in the schema of the message.
        values: the integers or texts of the field.
    """
    parts: Message = []
    for value in values:
        parts += _encode_field(number, value)
    return parts


def _encode_attribute(name: str, value: int | float | str | list[int]) -> Message:
    # The fields of AttributeProto: the value by its type, and the type itself.
    attribute = _encode_field(1, name)
    if isinstance(value, float):
        attribute.append(_encode_key(2, FOUR_BYTES_FORM))
        attribute.append(np.float32(value).tobytes())
        kind = FLOAT_TYPE
    elif isinstance(value, int):
        attribute += _encode_field(3, value)
        kind = INT_TYPE
    elif isinstance(value, str):
        attribute += _encode_field(4, value)
        kind = STRING_TYPE
    else:
        attribute += _encode_fields(8, value)
        kind = INTS_TYPE
    attribute += _encode_field(20, kind)
    return attribute


def _encode_value_info(
    name: str, dtype: str, shape: tuple[int | str, ...] | None = None
) -> Message:
    """Return an encoded ValueInfoProto: name, number type and shape of a tensor.

    Args:
        name: name of the tensor.
        dtype: NumPy name of the number type.
        shape: size of each dimension, a letter for a size known only at run time. None: ONNX
            Runtime infers it.
    """
    tensor = _encode_field(1, TENSOR_TYPES[dtype])
    if shape is not None:
        sizes: Message = []
        for size in shape:
            # a letter, or a number
            field = 2 if isinstance(size, str) else 1
            sizes += _encode_field(1, _encode_field(field, size))
        tensor += _encode_field(2, sizes)
    value = _encode_field(1, name)
    value += _encode_field(2, _encode_field(1, tensor))
    return value
