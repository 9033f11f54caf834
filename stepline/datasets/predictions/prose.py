"""JSON and lines with times inside text: what a language model replies, and lists of chapters."""

import json
import re

from stepline.datasets.node import Node
from stepline.datasets.predictions.clock import seconds
from stepline.datasets.predictions.found import Found, Segment
from stepline.datasets.predictions.trees import NO_END, read_tree, read_video
from stepline.datasets.source import Tree

TRIES = 2000  # brackets at which JSON is looked for; beyond that the rest of a text is not searched
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_BRACKET = re.compile(r"[\[{]")
_BROKEN = re.compile(r"\[\s*\{")
_TIME = r"\[?(?:\d{1,4}:)?\d{1,5}:\d{2}(?:[.,]\d{1,9})?\]?"
_LINE = re.compile(
    rf"\W{{0,8}}(?:\d{{1,3}}[.)]\W{{1,8}})?({_TIME})(?:\s*(?:-->|–|—|-|to)\s*({_TIME}))?[\s\-–—:.|]+(\S.*)"
)


def read_prose(found: Found, text: str, name: str, stem: str) -> None:
    """Add the segments in a text that is no JSON as a whole: JSON in ``` fences, JSON in prose, lines with times."""
    blocks = [(match[1], f"{name}: block {index}") for index, match in enumerate(_FENCE.finditer(text), start=1)]
    parts = [(tree, where) for block, where in blocks for tree in _trees(found, block, where)]
    parts = parts or [(tree, name) for tree in _trees(found, text, name)]
    if parts and all(isinstance(tree, dict) and not _nested(tree) for tree, _ in parts):
        read_video(found, Node([tree for tree, _ in parts], name), stem)  # the objects of a list that breaks off
        return
    for index, (tree, where) in enumerate(parts):
        if index == 0:
            read_tree(found, Node(tree, where), stem)
        else:
            found.skip(where, tree, "a reply holds one JSON value; this is a further one")
    if not parts:
        _lines(found, text, name, stem)


def _nested(tree: dict[str, Tree]) -> bool:
    return any(isinstance(value, list | dict) and len(value) != 2 for value in tree.values())


def _trees(found: Found, text: str, name: str) -> list[Tree]:
    """Return the JSON lists and objects in a text that could hold segments; a list that breaks off is noted."""
    decoder, trees, position = json.JSONDecoder(), [], 0
    for _ in range(TRIES):
        bracket = _BRACKET.search(text, position)
        if bracket is None:
            break
        try:
            tree, position = decoder.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            position = bracket.start() + 1
            if _BROKEN.match(text, bracket.start()):
                found.skip(name, text[bracket.start() :][:40], "a JSON list that breaks off; its whole items are read")
            continue
        if tree and (isinstance(tree, dict) or isinstance(tree[0], list | dict)):
            trees.append(tree)
    return trees


def _lines(found: Found, text: str, name: str, stem: str) -> None:
    """Add lines such as "00:01:20 - title" (chapters) or "01:20 - 01:35: text"."""
    lines = [(number, match) for number, line in enumerate(text.split("\n"), start=1) if (match := _LINE.match(line))]
    if not lines or not found.opens(stem, name):
        return
    ended = [match[2] is not None for _, match in lines]
    starts = [(seconds(match[1]), match[3].strip(), f"{name}: line {number}") for number, match in lines]
    known = [(start, title, where) for start, title, where in starts if start is not None]
    if not any(ended):
        found.chapters(stem, known)
        return
    for number, match in lines:
        start, end, where = seconds(match[1]), seconds(match[2]), f"{name}: line {number}"
        if start is None or end is None:
            found.skip(where, match[3], NO_END)
        else:
            found.segments[stem].append(Segment(start, end, match[3].strip()))
