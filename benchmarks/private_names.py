"""Where tests reach into the package: private names of it that they read, set or import."""

import ast
import re

from source_files import SourceFile, bound_names, top_level

OWN_OBJECTS = {"self", "cls", "super"}
PRIVATE_USE = re.compile(r"[\s.]_[A-Za-z]")  # without which a file need not be parsed


def is_private(name: str) -> bool:
    """Say whether a name is private. `__init__`, `_` and IPython's `_repr_html_` are not."""
    if name.startswith("__") or name.endswith("_"):
        return False
    return name.startswith("_")


def private_names(source: SourceFile) -> set[str]:
    """Return the private names that a file of the package defines: functions, classes, variables
    of the module, and attributes."""
    names = set()
    for definition in source.definitions:
        names.add(definition.name)
    for statement in top_level(source.tree.body):
        names.update(bound_names(statement))
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return set(filter(is_private, names))


def private_accesses(source: SourceFile, names: set[str]) -> list[str]:
    """Return where a test takes one of these names, by an attribute or an import.

    It takes it from an object or a module that is not its own.
    """
    if not PRIVATE_USE.search(source.text):
        return []
    places = []
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in names:
            owner = ast.unparse(node.value)
            if owner not in OWN_OBJECTS:
                place = source.at(node, f"{owner}.{node.attr}")
                places.append(place)
        elif isinstance(node, ast.ImportFrom):
            places += _private_imports(source, node)
    return places


def _private_imports(source: SourceFile, node: ast.ImportFrom) -> list[str]:
    module = node.module or ""
    places = []
    if module.startswith("stepline"):
        for alias in node.names:
            if is_private(alias.name):
                place = source.at(node, f"{module}.{alias.name}")
                places.append(place)
    return places
