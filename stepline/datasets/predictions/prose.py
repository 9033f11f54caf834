"""JSON inside text, as a language model replies."""

import json
import re

from stepline.datasets.node import Node
from stepline.datasets.predictions.found import Found
from stepline.datasets.predictions.lines import read_lines
from stepline.datasets.predictions.trees import is_row, read_tree, read_video
from stepline.datasets.source import Tree

TRIES = 2000  # brackets at which JSON is looked for; beyond that the rest of a text is not searched
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_BRACKET = re.compile(r"[\[{]")
_BROKEN = re.compile(r"\[\s*\{")


def read_prose(found: Found, text: str, name: str, stem: str) -> None:
    """Add the segments in a text that is no JSON as a whole: JSON in ``` fences, JSON in prose, lines with times."""
    blocks = [(match[1], f"{name}: block {index}") for index, match in enumerate(_FENCE.finditer(text), start=1)]
    parts = [(tree, where) for block, where in blocks for tree in _trees(found, block, where)]
    parts = parts or [(tree, name) for tree in _trees(found, text, name)]
    if parts and all(is_row(tree) for tree, _ in parts):
        read_video(found, Node([tree for tree, _ in parts], name), stem)  # the objects of a list that breaks off
        return
    for index, (tree, where) in enumerate(parts):
        if index == 0:
            read_tree(found, Node(tree, where), stem)
        else:
            found.skip(where, tree, "a reply holds one JSON value; this is a further one")
    if not parts:
        read_lines(found, text, name, stem)


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
