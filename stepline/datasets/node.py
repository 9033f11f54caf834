"""A value in a JSON tree that knows its place in the file, so that an error can name it."""

from collections.abc import Iterator

from stepline.datasets.source import Tree
from stepline.errors import DatasetError

SHOWN = 60  # characters of a value that an error quotes


class Node:
    """A JSON value and its place; every accessor checks the type and raises DatasetError naming file and place."""

    __slots__ = ("key", "parent", "value")

    def __init__(self, value: Tree, key: str, parent: "Node | None" = None) -> None:
        self.value = value
        self.key = key
        self.parent = parent

    @property
    def place(self) -> str:
        """Say where the value stands: the file, then keys and indices."""
        if self.parent is None:
            return self.key
        return self.parent.place + (": " if self.parent.parent is None else "") + on_one_line(self.key)

    def fails(self, need: str) -> DatasetError:
        """Return the error for a value that is not what is needed."""
        return DatasetError(f"{self.place}: {quoted(self.value)} is not {need}; correct it or download the file again")

    def entries(self) -> Iterator[tuple[str, "Node"]]:
        """Yield the keys and values of an object."""
        if not isinstance(self.value, dict):
            raise self.fails("an object")
        for key, value in self.value.items():
            yield key, Node(value, f".{key}" if self.parent else key, self)

    def rows(self) -> Iterator["Node"]:
        """Yield the items of a list."""
        if not isinstance(self.value, list):
            raise self.fails("a list")
        for index, value in enumerate(self.value):
            yield Node(value, f"[{index}]", self)

    def get(self, *keys: str) -> "Node | None":
        """Return the value of the first of these keys that the object holds, None where it holds none or null."""
        if not isinstance(self.value, dict):
            raise self.fails("an object")
        for key in keys:
            if self.value.get(key) is not None:
                return Node(self.value[key], f".{key}" if self.parent else key, self)
        return None

    def __getitem__(self, key: str) -> "Node":
        found = self.get(key)
        if found is None:
            raise DatasetError(f"{self.place}: lacks {key!r}; is this the right file for this dataset?")
        return found

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.fails("text")
        return self.value

    def name(self) -> str:
        """Return an id: a string, or a whole number written out."""
        if isinstance(self.value, bool) or not isinstance(self.value, str | int):
            raise self.fails("an id (text or a whole number)")
        return self.value if isinstance(self.value, str) else _written(self)

    def number(self) -> float:
        """Return a number, also one written as a string; NaN and infinity come through."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float | str):
            raise self.fails("a number")
        try:
            return float(self.value)
        except ValueError as error:
            raise self.fails("a number") from error
        except OverflowError:
            return float("inf")

    def pair(self) -> tuple[float, float]:
        """Return two numbers, as a segment is written."""
        if not isinstance(self.value, list) or len(self.value) != 2:
            raise self.fails("a pair of two numbers")
        start, end = self.rows()
        return start.number(), end.number()


def _written(node: Node) -> str:
    try:
        return str(node.value)
    except ValueError as error:  # more digits than Python writes out
        raise DatasetError(f"{node.place}: a number with thousands of digits is no id; correct it") from error


def on_one_line(text: str) -> str:
    """Return text as an error can show it: line breaks and other unprintable characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def quoted(value: Tree) -> str:
    """Return a value as an error shows it: shortened, on one line."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    try:
        shown = repr(value)
    except ValueError:  # an integer with more digits than Python writes out
        return "a huge number"
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"
