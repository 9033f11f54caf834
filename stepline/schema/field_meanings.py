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
    if not is_dataclass(kind):
        return ()
    return tuple(field.name for field in fields(kind))


def field_meanings(kind: type) -> dict[str, str]:
    """Return field -> its description, or what the docstring of its class says of it."""
    meanings = docstring_meanings(kind) | comment_meanings(kind)
    if issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if field.description:
                meanings[name] = field.description
    return meanings


def comment_meanings(kind: type) -> dict[str, str]:
    """Return field -> the comment at the end of its line, or in the lines above it."""
    meanings: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if owner is not BaseModel and field_names(owner):
            source = inspect.getsource(owner)
            meanings |= _comments(source)
    return meanings


def _comments(source: str) -> dict[str, str]:
    """Return field -> its comment in the source of a class."""
    meanings: dict[str, str] = {}
    above: list[str] = []
    for line in source.splitlines():
        if COMMENT_PATTERN.match(line):
            above.append(line.strip("# "))
            continue
        field = FIELD_PATTERN.match(line)
        if field is not None:
            name, behind = field.groups()
            meaning = behind or " ".join(above)
            if meaning:
                meanings[name] = meaning
        above = []
    return meanings


def docstring_meanings(kind: type) -> dict[str, str]:
    """Return field -> the words after "field: " or "field, other: " in the class's docstring."""
    names = "|".join(field_names(kind))
    pattern = re.compile(rf"(?:^|(?<=[.;]) )((?:{names})(?:, (?:{names}))*): ")
    docstring = inspect.getdoc(kind) or ""
    text = " ".join(docstring.split())
    meanings: dict[str, str] = {}
    # what is before the first, then names and words in turn
    _, *parts = pattern.split(text)
    for place in range(0, len(parts), 2):
        described_names = parts[place].split(", ")
        # the sentence after it speaks of the whole class
        sentences = NEXT_SENTENCE_PATTERN.split(parts[place + 1])
        meaning = sentences[0].rstrip(".;")
        meanings |= dict.fromkeys(described_names, meaning)
    return meanings


def nested_classes(kind: type) -> dict[str, type]:
    """Return the classes that the values of a class's fields have, it among them, by their names."""
    classes: dict[str, type] = {}
    waiting: list[Any] = [kind]
    while waiting:
        annotation = waiting.pop()
        waiting += get_args(annotation)
        if not isinstance(annotation, type):
            continue
        name = annotation.__name__
        if name not in classes and field_names(annotation):
            classes[name] = annotation
            waiting += _annotations(annotation)
    return classes


def _annotations(kind: type) -> Iterator[Any]:
    if issubclass(kind, BaseModel):
        for field in kind.model_fields.values():
            yield field.annotation
    else:
        yield from inspect.get_annotations(kind, eval_str=True).values()
