"""Read constant strings out of a compiled Java class, as data: nothing is run.

Source: the class file format, chapter 4 of the Java Virtual Machine Specification.
"""

import struct
from dataclasses import dataclass

_UTF8, _STRING = 1, 8
# bytes that follow the tag of a constant-pool entry, by tag
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_TWO_SLOTS = (5, 6)  # long and double take two indices


@dataclass
class _Cursor:
    data: bytes
    place: int

    def take(self, layout: str) -> int:
        """Return the next big-endian number of `layout` (a struct letter) and step over it."""
        value: int = struct.unpack_from(">" + layout, self.data, self.place)[0]
        self.place += struct.calcsize(">" + layout)
        return value


def constant_strings(data: bytes) -> dict[str, str]:
    """Return field name -> value for every field of a class that is initialised with a constant string."""
    cursor = _Cursor(data, 8)  # past the magic number and the version
    texts, strings = _pool(cursor)
    cursor.place += 6  # access flags, this class, super class
    for _ in range(cursor.take("H")):
        cursor.take("H")  # an interface
    found = {}
    for _ in range(cursor.take("H")):
        cursor.take("H")
        name = texts[cursor.take("H")]
        cursor.take("H")
        for _ in range(cursor.take("H")):
            kind, size = texts[cursor.take("H")], cursor.take("I")
            if kind == "ConstantValue":
                index = struct.unpack_from(">H", data, cursor.place)[0]
                if index in strings:
                    found[name] = texts[strings[index]]
            cursor.place += size
    return found


def _pool(cursor: _Cursor) -> tuple[dict[int, str], dict[int, int]]:
    """Return the pool's texts by index, and its string constants as index -> index of their text."""
    texts: dict[int, str] = {}
    strings: dict[int, int] = {}
    count, index = cursor.take("H"), 1
    while index < count:
        tag = cursor.take("B")
        if tag == _UTF8:
            size = cursor.take("H")
            texts[index] = _text(cursor.data[cursor.place : cursor.place + size])
            cursor.place += size
        else:
            if tag == _STRING:
                strings[index] = struct.unpack_from(">H", cursor.data, cursor.place)[0]
            cursor.place += _SIZES[tag]
        index += 2 if tag in _TWO_SLOTS else 1
    return texts, strings


def _text(data: bytes) -> str:
    """Decode Java's own UTF-8, where zero is two bytes and surrogates stand alone."""
    return data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
