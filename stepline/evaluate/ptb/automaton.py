"""The finite automaton of Stanford's PTBLexer 3.4.1, unpacked from its compiled class as data:
nothing is run.

Source: the class file format, chapter 4 of the Java Virtual Machine Specification. JFlex packs an
automaton into constant strings. Runs of (count, value) are for the character classes, actions and
attributes. Pairs of 16-bit halves are for the rows, runs of (count, value + 1) for the transitions.

Where the official scorers' tables lie: inside the installed `pycocoevalcap` package, read as data
and never run.

The package carries METEOR's jar and paraphrase table and Stanford's tokenizer. Only their bytes are
used. A folder of the user's own, laid out as that package is, can be given instead.
"""

import hashlib
import importlib.util
import struct
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stepline.errors import ModelError

METEOR_JAR = "meteor/meteor-1.5.jar"
PARAPHRASE_TABLE = "meteor/data/paraphrase-en.gz"
TOKENIZER_JAR = "tokenizer/stanford-corenlp-3.4.1.jar"

# sha256 of the files of pycocoevalcap 1.2
KNOWN_DIGESTS = {
    METEOR_JAR: "1e57b4c72c0830ebe68558f1c799a624e96cbc1b6045c9f6330e26dcff6eafc2",
    PARAPHRASE_TABLE: "c147ac7d2c91f2fbb3ad31e4b352235061eb83145e0434daf217ee9ca5975f48",
    TOKENIZER_JAR: "2fcb91bb7a111f93d71e264f4ee0e3afd19ba0dde6d21b38605088df9e940399",
}
_INSTALL_CURE = "pip install 'stepline[evaluate]'"


def official_file(name: str, folder: Path | None = None) -> Path:
    """Return the path of one official file, in `folder` or in the installed package.

    Raises ModelError when it is not there.
    """
    root = folder if folder is not None else _package()
    path = root / name
    if not path.is_file():
        raise ModelError(
            f"{path}: no such file; {_INSTALL_CURE}, "
            "or give a folder laid out as the pycocoevalcap package is"
        )
    return path


@cache
def fingerprint(path: Path) -> str:
    """Return the sha256 of an official file. The installed package's must be the known one.

    Raises ModelError for a damaged or unknown version inside the package.
    """
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for name, known_digest in KNOWN_DIGESTS.items():
        if path.as_posix().endswith("pycocoevalcap/" + name) and digest != known_digest:
            raise ModelError(
                f"{path}: not the file of pycocoevalcap 1.2 (sha256 {digest[:12]}...); "
                f"{_INSTALL_CURE}"
            )
    return digest


@cache
def _package() -> Path:
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        lack = "METEOR's and the tokenizer's tables are not installed"
        raise ModelError(f"{lack}; {_INSTALL_CURE}, or give the folder that holds them")
    return Path(next(iter(spec.submodule_search_locations)))


# tags of the constant pool
_UTF8_TAG = 1
_STRING_TAG = 8
# bytes that follow the tag of a constant-pool entry, by tag
_CONSTANT_BYTES = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
_TWO_SLOT_TAGS = (5, 6)  # long and double take two indices


@dataclass
class _ByteReader:
    data: bytes
    position: int

    def take(self, layout: str) -> int:
        """Return the next big-endian number of `layout` (a struct letter) and step over it."""
        value: int = struct.unpack_from(">" + layout, self.data, self.position)[0]
        self.position += struct.calcsize(">" + layout)
        return value

    def take_bytes(self, size: int) -> bytes:
        """Return the next bytes and step over them."""
        part = self.data[self.position : self.position + size]
        self.position += size
        return part


def constant_strings(data: bytes) -> dict[str, str]:
    """Return field name -> value for every field of a class that is initialised with a constant
    string."""
    reader = _ByteReader(data, 8)  # past the magic number and the version
    texts, strings = _pool(reader)
    reader.take_bytes(6)  # access flags, this class, super class
    reader.take_bytes(2 * reader.take("H"))  # interfaces
    constants = {}
    # A field: its flags, name and type, then its attributes.
    for _ in range(reader.take("H")):
        reader.take("H")
        name = texts[reader.take("H")]
        reader.take("H")
        for _ in range(reader.take("H")):
            kind = texts[reader.take("H")]
            index = int.from_bytes(reader.take_bytes(reader.take("I")), "big")
            if kind == "ConstantValue" and index in strings:
                constants[name] = texts[strings[index]]
    return constants


def _pool(reader: _ByteReader) -> tuple[dict[int, str], dict[int, int]]:
    """Return the pool's texts by index, and its string constants as index -> index of their
    text."""
    texts: dict[int, str] = {}
    strings: dict[int, int] = {}
    count = reader.take("H")
    index = 1
    while index < count:
        tag = reader.take("B")
        size = reader.take("H") if tag == _UTF8_TAG else _CONSTANT_BYTES[tag]
        value = reader.take_bytes(size)
        if tag == _UTF8_TAG:
            # Java's own UTF-8, where zero is two bytes and surrogates are written one by one
            texts[index] = value.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        elif tag == _STRING_TAG:
            strings[index] = int.from_bytes(value, "big")
        index += 2 if tag in _TWO_SLOT_TAGS else 1
    return texts, strings


# ---------------------------------------------------------------- the automaton


_LEXER_CLASS = "edu/stanford/nlp/process/PTBLexer.class"
# bits of a state's attribute
_ACCEPTING_BIT = 1  # it ends a token
_FINAL_BIT = 8  # nothing longer can match
_MAX_OVERRUN_CHARS = 64  # read in vain from which on a dead end is remembered


@dataclass(frozen=True)
class Automaton:
    """classes: 65536 UTF-16 units -> class. The next state = steps[rows[state] + class], -1 for no
    state."""

    classes: list[int]
    rows: list[int]
    steps: list[int]
    attributes: list[int]
    actions: list[int]

    def longest(
        self, units: list[int], start: int, state: int, dead: set[tuple[int, int]]
    ) -> tuple[int, int]:
        """Return (action, end) of the longest token that starts at `start` in `state`. units hold
        character classes.

        dead: (place, state) pairs from which no token end was found, shared over one text, so that
        time stays linear. Action 0 and end = start mean that nothing matches.
        """
        rows, steps, attributes = self.rows, self.steps, self.attributes
        end, action_state = start, -1
        position, size = start, len(units)
        trail: list[tuple[int, int]] = []
        # As far as any token can reach.
        while position < size:
            state = steps[rows[state] + units[position]]
            if state < 0:
                break
            position += 1
            attribute = attributes[state]
            if attribute & _ACCEPTING_BIT:
                # A token may end here, so the places since the last end led somewhere.
                end, action_state = position, state
                trail.clear()
                if attribute & _FINAL_BIT:
                    break
            elif position - end > _MAX_OVERRUN_CHARS:
                # Far behind the last end: a way that failed before is not tried again.
                if (position, state) in dead:
                    break
                trail.append((position, state))
        dead.update(trail)
        return (self.actions[action_state], end) if action_state >= 0 else (0, start)

    def split(self, units: list[int], start: int, end: int, forward: int, backward: int) -> int:
        """Return where a token ends that must be followed by something (JFlex's general lookahead).

        The token matches automaton `forward` from the left and what follows matches `backward` from
        the right.
        """
        # for each place in [start, end]: whether `forward` may end there
        accepted = [False] * (end - start + 1)
        state = forward
        for position in range(start, end + 1):
            accepted[position - start] = bool(self.attributes[state] & _ACCEPTING_BIT)
            if position == end:
                break
            state = self.steps[self.rows[state] + units[position]]
            if state < 0:
                break
        # Back from the right, until both automata accept.
        state, position = backward, end
        while not (accepted[position - start] and self.attributes[state] & _ACCEPTING_BIT):
            position -= 1
            state = self.steps[self.rows[state] + units[position]]
        return position


@cache
def load(jar: Path) -> Automaton:
    """Return the automaton that the tokenizer's jar holds.

    Raises ModelError if the jar is damaged or of another version.
    """
    fingerprint(jar)
    try:
        with zipfile.ZipFile(jar) as archive:
            fields = constant_strings(archive.read(_LEXER_CLASS))
        rows = _packed(fields, "ZZ_ROWMAP_PACKED")
        return Automaton(
            _runs(fields, "ZZ_CMAP_PACKED"),
            # A row's start is a 32-bit number in two characters.
            [ord(high) << 16 | ord(low) for high, low in zip(rows[::2], rows[1::2], strict=True)],
            # -1, no state, is packed as 0.
            [value - 1 for value in _runs(fields, "ZZ_TRANS_PACKED")],
            _runs(fields, "ZZ_ATTRIBUTE_PACKED"),
            _runs(fields, "ZZ_ACTION_PACKED"),
        )
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"{jar}: not Stanford CoreNLP 3.4.1 ({error}); pip install 'stepline[evaluate]'"
        ) from error


def _packed(fields: dict[str, str], name: str) -> str:
    """Join the parts name, name_0, name_1, ... of one packed table."""
    keys = [key for key in fields if key == name or key.startswith(name + "_")]
    # By number: as texts, part 10 would come before part 2.
    parts = [fields[key] for key in sorted(keys, key=lambda key: int(key[len(name) + 1 :] or 0))]
    if not parts:
        raise KeyError(name)
    return "".join(parts)


def _runs(fields: dict[str, str], name: str) -> list[int]:
    packed = _packed(fields, name)
    values: list[int] = []
    for count, value in zip(packed[::2], packed[1::2], strict=True):
        values.extend([ord(value)] * ord(count))
    return values
