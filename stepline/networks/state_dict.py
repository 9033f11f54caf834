"""A network's tensors by name, read from a PyTorch state dict as numpy arrays: nothing is
unpickled, without torch.

Both forms that torch.save has had are read: a zip archive (since 1.6), and pickles followed by the
numbers (before). Their pickle is not run but interpreted here, opcode by opcode, under an
allow-list. It has containers, plain values and the three names by which a tensor is put together.
Any other opcode or name ends in ValueError.
"""

import io
import math
import os
import pickletools
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError, first_line

Array = npt.NDArray[Any]

STORAGE_DTYPES: Final = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "BoolStorage": "?",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
}
TENSOR_REBUILDER: Final = "torch._utils _rebuild_tensor_v2"
PARAMETER_REBUILDER: Final = "torch._utils _rebuild_parameter"
MAPPING_NAME: Final = "collections OrderedDict"
ALLOWED_NAMES: Final = {TENSOR_REBUILDER, PARAMETER_REBUILDER, MAPPING_NAME} | {
    f"torch {storage}" for storage in STORAGE_DTYPES
}
TRAINER_KEY: Final = "state_dict"  # of a checkpoint that holds more than a network
MAGIC_NUMBER: Final = 0x1950A86A20F9469CFC6C  # the first pickle of the older form
ZIP_MAGIC: Final = b"PK\x03\x04"
LITERAL_READERS: Final = {
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
}
EMPTY_MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
CONSTANT_OPCODES: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TUPLE_SIZES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Storage(NamedTuple):
    """Numbers in a row. Tensors are views of them. kind: a key of DTYPES. length: how many."""

    kind: str
    key: str
    length: int


class TensorView(NamedTuple):
    """A tensor before its numbers are read. Offset and stride count numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def read_tensors(path: Path, network: str, cure: str) -> dict[str, Array]:
    """Return the tensors of a network's state dict by their names, numbers with a fraction as
    float32.

    Raises ModelError for any other file, with the cure.
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


def read_state_dict(path: Path) -> dict[str, Array]:
    """Return every tensor of a state dict by its name. bfloat16 becomes float32. Of a trainer's
    checkpoint that is its "state_dict".

    Raises ValueError for any other content, saying what it is, and OSError where the file cannot be
    read.
    """
    with path.open("rb") as file:
        # The two forms that torch.save has had.
        zipped = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
        file.seek(0)
        open_content = _open_pickles
        if zipped:
            open_content = _open_zip
        try:
            views, read_storage = open_content(file)
            if isinstance(views, dict) and isinstance(views.get(TRAINER_KEY), dict):
                views = views[TRAINER_KEY]
            if not isinstance(views, dict) or not _are_tensors(views.values()):
                raise ValueError(f"holds a {type(views).__name__}, no tensors by name")
            # Tensors may share a storage, which is read once.
            storages = {view.storage: read_storage(view.storage) for view in views.values()}
            tensors = {}
            for name, view in views.items():
                tensors[str(name)] = _view(view, storages[view.storage])
            return tensors
        except (
            zipfile.BadZipFile,
            LookupError,
            TypeError,
            AttributeError,
            OverflowError,
            RuntimeError,
        ) as error:
            raise ValueError(f"no state dict ({type(error).__name__}: {error})") from error


def _are_tensors(values: Iterable[object]) -> bool:
    return all(isinstance(value, TensorView) for value in values)


def _open_zip(file: IO[bytes]) -> tuple[Any, Callable[[Storage], bytes]]:
    """Return the content of an archive, and what reads a storage of it."""
    archive = zipfile.ZipFile(file)

    def read_member(name: str) -> bytes:
        # torch packs nothing. What is packed may unpack endlessly.
        if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is compressed")
        return archive.read(name)

    def read_storage(storage: Storage) -> bytes:
        return read_member(f"{root}data/{storage.key}")

    names = archive.namelist()
    content = next((name for name in names if name.endswith("data.pkl")), "data.pkl")
    root = content.removesuffix("data.pkl")
    byte_order = f"{root}byteorder"
    if byte_order in names and read_member(byte_order) != b"little":
        raise ValueError("its numbers are big-endian")
    pickled = io.BytesIO(read_member(content))
    return interpret(pickled), read_storage


def _open_pickles(file: IO[bytes]) -> tuple[Any, Callable[[Storage], bytes]]:
    """Return the content of the older form: magic number, version, machine, content, keys. Then
    comes each key's numbers."""
    if interpret(file) != MAGIC_NUMBER:
        raise ValueError("no state dict")
    interpret(file)  # the version
    machine = interpret(file)
    content = interpret(file)
    if not machine["little_endian"]:
        raise ValueError("its numbers are big-endian")
    sizes = {}  # bytes of a number
    for view in _views(content):
        storage = view.storage
        sizes[storage.key] = np.dtype(STORAGE_DTYPES[storage.kind]).itemsize
    locations: dict[str, tuple[int, int]] = {}  # first byte and count of numbers
    # The numbers follow the keys, each behind its count.
    for key in interpret(file):
        count = int.from_bytes(file.read(8), "little")
        locations[key] = file.tell(), count
        if count > os.fstat(file.fileno()).st_size:
            raise ValueError(f"{count} numbers, more than the file holds")
        file.seek(count * sizes[key], io.SEEK_CUR)

    def read_storage(storage: Storage) -> bytes:
        start, count = locations[storage.key]
        if count != storage.length:
            raise ValueError(f"{count} numbers in place of {storage.length}")
        file.seek(start)
        return file.read(count * sizes[storage.key])

    return content, read_storage


def _views(content: Any) -> list[TensorView]:
    """Return every tensor of a content, also those inside what it holds."""
    if isinstance(content, TensorView):
        return [content]
    if isinstance(content, dict):
        content = list(content.values())
    if not isinstance(content, list | tuple):
        return []
    return [view for part in content for view in _views(part)]


def _view(view: TensorView, data: bytes) -> Array:
    """Return a tensor's numbers, in their order. Raises ValueError where it reaches beyond its
    storage."""
    storage, offset, shape, stride = view
    kind = np.dtype(STORAGE_DTYPES[storage.kind])
    size = storage.length * kind.itemsize
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes in place of {size}")

    # Every number of it must be in the storage.
    last = offset
    for count, step in zip(shape, stride, strict=True):
        last += (count - 1) * step
    numbers = np.frombuffer(data, kind)
    is_negative = min((offset, *shape, *stride)) < 0
    is_too_large = math.prod(shape) > len(numbers)
    reaches_beyond = 0 not in shape and last >= len(numbers)
    if is_negative or is_too_large or reaches_beyond:
        raise ValueError(f"a tensor {shape} that {len(numbers)} numbers cannot hold")

    steps = [step * kind.itemsize for step in stride]
    array = np.lib.stride_tricks.as_strided(numbers[offset:], shape, steps).copy()
    if storage.kind != "BFloat16Storage":
        return array
    # The 16 bits of a bfloat16 are the upper ones of a float32.
    bits = array.astype(np.uint32) << 16
    return bits.view(np.float32)


def interpret(stream: IO[bytes]) -> Any:  # noqa: C901, PLR0915 - a branch per opcode
    """Return what a pickle describes, a TensorView for each tensor. Raises ValueError for what is
    not allowed."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}

    def pop_marked() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for opcode, value, _ in pickletools.genops(stream):
        name = opcode.name
        if name in LITERAL_READERS:
            stack.append(value)
        elif name in CONSTANT_OPCODES:
            stack.append(CONSTANT_OPCODES[name])
        elif name in EMPTY_MAKERS:
            stack.append(EMPTY_MAKERS[name]())
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(pop_marked()))
        elif name in TUPLE_SIZES:
            size = TUPLE_SIZES[name]
            stack[-size:] = [tuple(stack[-size:])]
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[value] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[value])
        elif name == "SETITEM":
            key = stack.pop(-2)
            item = stack.pop()
            stack[-1].update({key: item})
        elif name == "SETITEMS":
            items = pop_marked()
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name == "APPEND":
            item = stack.pop()
            stack[-1].extend([item])
        elif name == "APPENDS":
            items = pop_marked()
            stack[-1].extend(items)
        elif name == "GLOBAL" and value in ALLOWED_NAMES:
            stack.append(value)
        elif name == "BINPERSID":
            stack.append(_storage(*stack.pop()))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_put_together(stack.pop(), arguments))
        elif name == "BUILD":  # a state dict's `_metadata`: versions of its modules, useless here
            stack.pop()
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            wrong = value if name == "GLOBAL" else name
            raise ValueError(f"holds {wrong}, which no state dict has")
    raise ValueError("a pickle without an end")


def _storage(
    what: str,
    kind: str,
    key: str,
    device: str,  # noqa: ARG001
    count: int,
    view: None = None,
) -> Storage:
    """Return a storage by its persistent id. device: that it was saved from."""
    if what != "storage" or view is not None or not isinstance(count, int):
        raise ValueError(f"holds a {what}, which no state dict has")
    return Storage(kind.removeprefix("torch "), str(key), count)


def _put_together(name: str, arguments: Any) -> Any:
    """Return what one of the allowed names makes of its arguments."""
    if name == MAPPING_NAME and not arguments:
        return {}
    if name == TENSOR_REBUILDER:
        storage, offset, shape, stride = arguments[:4]
        if isinstance(storage, Storage):
            return TensorView(storage, offset, shape, stride)
    if name == PARAMETER_REBUILDER and isinstance(arguments[0], TensorView):
        return arguments[0]
    raise ValueError(f"calls {name}, which no state dict does")
