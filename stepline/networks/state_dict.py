"""Reads PyTorch state dicts as numpy arrays, without torch and without running their pickle.

Both formats of torch.save are read: a zip archive (since 1.6), and pickles followed by the numbers
(before). The standard library's unpickler interprets them with an allow-list: the opcodes of
containers and plain values, and the names by which a tensor is rebuilt. Any other opcode or name is
a ValueError.
"""

import io
import math
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError, first_line

Array = npt.NDArray[Any]

BFLOAT16_BITS = np.dtype("<u2")  # numpy has no bfloat16, and torch's other types are signed
STORAGE_DTYPES = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": BFLOAT16_BITS,
    "BoolStorage": np.dtype("?"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
}
TRAINER_KEY = "state_dict"  # of a checkpoint that holds more than a network
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # the first pickle of the older form
ZIP_MAGIC = b"PK\x03\x04"
# names of opcodes in the module `pickle`. BUILD is handled below
ALLOWED_OPCODES = """
    PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE
    SHORT_BINUNICODE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT
    LONG_BINPUT BINGET LONG_BINGET SETITEM SETITEMS APPEND APPENDS GLOBAL BINPERSID REDUCE
"""


class TensorStorage(NamedTuple):
    """Flat buffer of numbers that one or more tensors share.

    Attributes:
        dtype: number type.
        key: name of the buffer in the file.
        length: number of elements.
    """

    dtype: np.dtype[Any]
    key: str
    length: int


class TensorView(NamedTuple):
    """Position and shape of a tensor in a storage that is not read yet.

    Attributes:
        storage: buffer with the tensor's numbers.
        offset: index of the first element in the buffer.
        shape: size of each dimension.
        stride: distance of neighbours along each dimension, in elements.
    """

    storage: TensorStorage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def read_tensors(path: Path, network: str, cure: str) -> dict[str, Array]:
    """Return tensor name -> array of a PyTorch state-dict file. Floating-point tensors become
    float32.

    Args:
        path: the file.
        network: name of the network in error messages.
        cure: advice in error messages.

    Raises ModelError for a file that is not a state dict.
    """
    try:
        tensors = read_state_dict(path)
    except (OSError, ValueError) as error:
        reason = first_line(error)[:200]
        raise ModelError(f"{path}: not {network}'s weights ({reason}); {cure}") from error
    for name, value in tensors.items():
        if value.dtype.kind == "f":
            tensors[name] = value.astype(np.float32)
    return tensors


MAX_WRONG_WEIGHTS = 3  # that an error names


def check_weights(
    path: Path,
    network: str,
    weights: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    cure: str,
) -> None:
    """Raise ModelError unless weights have the names and shapes of a network's weights, and finite
    values.

    Args:
        path: file of the weights, for the message.
        network: name of the network in the message.
        weights: arrays by name.
        shapes: expected shapes by name.
        cure: advice in the message.
    """
    if faults := describe_wrong_weights(weights, shapes):
        raise ModelError(f"{path}: not {network}'s weights: {faults}; {cure}")


def describe_wrong_weights(
    weights: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]
) -> str:
    """Return in words which weights are missing, unknown, of the wrong shape, or not finite. "":
    none. The message names the first three.

    Args:
        weights: arrays by name.
        shapes: expected shapes by name.
    """
    faults = [f"{name} is missing" for name in shapes if name not in weights]
    for name, weight in weights.items():
        if name not in shapes:
            faults.append(f"{name} is unknown")
        elif weight.shape != shapes[name]:
            faults.append(f"{name} is {weight.shape}, not {shapes[name]}")
        elif not np.isfinite(weight).all():
            faults.append(f"{name} holds NaN or infinity")
    names = ", ".join(faults[:MAX_WRONG_WEIGHTS])
    if len(faults) > MAX_WRONG_WEIGHTS:
        names += f" and {len(faults) - MAX_WRONG_WEIGHTS} more"
    return names


def read_state_dict(path: Path) -> dict[str, Array]:
    """Return the tensors of a state-dict file, or of the "state_dict" in a trainer's checkpoint, by
    name.

    bfloat16 becomes float32. Raises ValueError for other content, OSError for an unreadable file.
    """
    with path.open("rb") as file:
        is_zip = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
        file.seek(0)
        try:
            views, read_storage = _open_zip(file) if is_zip else _open_pickles(file)
            if isinstance(views, dict) and isinstance(views.get(TRAINER_KEY), dict):
                views = views[TRAINER_KEY]
            if not isinstance(views, dict) or not all(
                isinstance(view, TensorView) for view in views.values()
            ):
                raise ValueError(f"holds a {type(views).__name__}, no tensors by name")
            # Tensors may share a storage, which is read once.
            storages = {view.storage: read_storage(view.storage) for view in views.values()}
            return {str(name): _array(view, storages[view.storage]) for name, view in views.items()}
        except (
            zipfile.BadZipFile,
            pickle.UnpicklingError,
            struct.error,
            EOFError,
            LookupError,
            TypeError,
            AttributeError,
            OverflowError,
            RuntimeError,
        ) as error:
            raise ValueError(f"no state dict ({type(error).__name__}: {error})") from error


def _open_zip(file: IO[bytes]) -> tuple[Any, Callable[[TensorStorage], bytes]]:
    """Return the unpickled content of a zip file, and a function that reads the bytes of a
    storage."""
    archive = zipfile.ZipFile(file)

    def read_member(name: str) -> bytes:
        # torch packs nothing. What is packed may unpack endlessly.
        if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is compressed")
        return archive.read(name)

    names = archive.namelist()
    content = next((name for name in names if name.endswith("data.pkl")), "data.pkl")
    root = content.removesuffix("data.pkl")
    byte_order = f"{root}byteorder"
    if byte_order in names and read_member(byte_order) != b"little":
        raise ValueError("its numbers are big-endian")
    pickled = io.BytesIO(read_member(content))
    return TensorUnpickler(pickled).load(), lambda storage: read_member(f"{root}data/{storage.key}")


def _open_pickles(file: IO[bytes]) -> tuple[Any, Callable[[TensorStorage], bytes]]:
    """Return the unpickled content of a file in the legacy format, and a function that reads the
    bytes of a storage.

    The format is magic number, version, machine, content and keys, then for each key the number of
    elements and the elements.
    """
    if TensorUnpickler(file).load() != MAGIC_NUMBER:
        raise ValueError("no state dict")
    TensorUnpickler(file).load()  # the version
    if not TensorUnpickler(file).load()["little_endian"]:
        raise ValueError("its numbers are big-endian")
    unpickler = TensorUnpickler(file)
    content = unpickler.load()
    starts: dict[str, int] = {}  # first byte of each storage
    for key in TensorUnpickler(file).load():
        storage = unpickler.storages[key]
        count = int.from_bytes(file.read(8), "little")
        if count != storage.length or count > os.fstat(file.fileno()).st_size:
            raise ValueError(f"{count} numbers in place of {storage.length}")
        starts[key] = file.tell()
        file.seek(count * storage.dtype.itemsize, io.SEEK_CUR)

    def read_storage(storage: TensorStorage) -> bytes:
        file.seek(starts[storage.key])
        return file.read(storage.length * storage.dtype.itemsize)

    return content, read_storage


def _array(view: TensorView, data: bytes) -> Array:
    """Return a tensor as an array. Raises ValueError if it exceeds its storage."""
    dtype = view.storage.dtype
    size = view.storage.length * dtype.itemsize
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes in place of {size}")
    # a stride of 0 could repeat one number without end
    if math.prod(view.shape) > view.storage.length:
        raise ValueError(f"a tensor {view.shape} that {view.storage.length} numbers cannot hold")
    # numpy checks that every number is inside
    strides = [step * dtype.itemsize for step in view.stride]
    array = np.ndarray(view.shape, dtype, data, view.offset * dtype.itemsize, strides).copy()
    if dtype != BFLOAT16_BITS:
        return array
    # The 16 bits of a bfloat16 are the upper ones of a float32.
    return (array.astype(np.uint32) << 16).view(np.float32)


class TensorUnpickler(pickle._Unpickler):
    """Python unpickler that allows only the types of a state dict. Its `storages` are the buffers
    found, by key."""

    dispatch: ClassVar = {
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, name)[0] for name in ALLOWED_OPCODES.split())
    }

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.storages: dict[str, TensorStorage] = {}

    def drop_state(self) -> None:
        """Ignore the BUILD opcode. In a state dict it only sets `_metadata`, which holds module
        versions."""
        self.stack.pop()  # type: ignore[attr-defined]

    dispatch[pickle.BUILD[0]] = drop_state  # type: ignore[assignment]

    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of an allowed class or function. Raises ValueError for any other
        name."""
        if module == "torch" and name in STORAGE_DTYPES:
            return STORAGE_DTYPES[name]
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _rebuild_parameter
        raise ValueError(f"holds {module} {name}, which no state dict has")

    def persistent_load(self, pid: Any) -> TensorStorage:
        """Return the storage of a persistent id: ("storage", type, key, device, count), followed by
        None in the legacy format."""
        what, dtype, key, _, length, *view = pid
        if what != "storage" or not isinstance(dtype, np.dtype) or not isinstance(length, int):
            raise ValueError(f"holds a {what}, which no state dict has")
        if any(part is not None for part in view):
            raise ValueError("holds a view of a storage, which no state dict has")
        storage = TensorStorage(dtype, str(key), length)
        self.storages[storage.key] = storage
        return storage


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> TensorView:
    if not isinstance(storage, TensorStorage):
        raise ValueError("holds a tensor without numbers")
    return TensorView(storage, offset, shape, stride)


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    return tensor
