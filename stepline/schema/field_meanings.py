"""What the code says of the fields of its classes, in docstrings and comments."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from pydantic import BaseModel

FIELD_PATTERN = re.compile(r"^    (\w+): (?:.*?  +# (.+))?")  # its name, and the comment behind it
COMMENT_PATTERN = re.compile(r"^    # ")
NEXT_SENTENCE_PATTERN = re.compile(r"\. (?=[A-Z])")


def field_names(kind: type) -> tuple[str, ...]:
    """Return the fields of a pydantic class, or of a dataclass."""
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def field_meanings(kind: type) -> dict[str, str]:
    """Return field -> what its docstring says of it, or its comment, which is nearer."""
    return docstring_meanings(kind) | comment_meanings(kind)


def comment_meanings(kind: type) -> dict[str, str]:
    """Return field -> the comment at the end of its line, or in the lines above it."""
    meanings: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if owner is BaseModel or not field_names(owner):
            continue
        above: list[str] = []
        for line in inspect.getsource(owner).splitlines():
            if COMMENT_PATTERN.match(line):
                above.append(line.strip("# "))
                continue
            field = FIELD_PATTERN.match(line)
            if field is not None and (field[2] or above):
                meanings[field[1]] = field[2] or " ".join(above)
            above = []
    return meanings


def docstring_meanings(kind: type) -> dict[str, str]:
    """Return field -> the words after "field: " or "field, other: " in the class's docstring."""
    names = "|".join(field_names(kind))
    text = " ".join((inspect.getdoc(kind) or "").split())
    pattern = re.compile(rf"(?:^|(?<=[.;]) )((?:{names})(?:, (?:{names}))*): ")
    meanings: dict[str, str] = {}
    # what stands before the first, then names and words in turn
    _, *parts = pattern.split(text)
    for names_before, words_after in zip(parts[::2], parts[1::2], strict=True):
        # the sentence after it speaks of the whole class
        words = NEXT_SENTENCE_PATTERN.split(words_after)[0].rstrip(".;")
        for name in names_before.split(", "):
            meanings[name] = words
    return meanings


def nested_classes(kind: type) -> dict[str, type]:
    """Return the classes that the values of a class's fields have, it among them, by their names."""
    classes: dict[str, type] = {}
    waiting: list[Any] = [kind]
    while waiting:
        annotation = waiting.pop()
        waiting += get_args(annotation)
        if isinstance(annotation, type) and annotation.__name__ not in classes:
            names = field_names(annotation)
            if names:
                classes[annotation.__name__] = annotation
                waiting += _annotations(annotation)
    return classes


def _annotations(kind: type) -> Iterator[Any]:
    if issubclass(kind, BaseModel):
        for field in kind.model_fields.values():
            yield field.annotation
    else:
        yield from inspect.get_annotations(kind, eval_str=True).values()
