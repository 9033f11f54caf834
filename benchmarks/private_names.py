"""Where tests reach into the package: private names of it that they read, set or import."""

import ast
import re

from source_files import SourceFile, bound_names, top_level

OWN_OBJECTS = {"self", "cls", "super"}
PRIVATE_USE = re.compile(r"[\s.]_[A-Za-z]")  # without which a file need not be parsed


def is_private(name: str) -> bool:
    """Say whether a name is private; `__init__`, `_` and IPython's `_repr_html_` are not."""
    return name.startswith("_") and not name.startswith("__") and not name.endswith("_")


def private_names(source: SourceFile) -> set[str]:
    """Return the private names that a file of the package defines: functions, classes, variables
    of the module, and attributes."""
    names = {node.name for node in source.definitions}
    for statement in top_level(source.tree.body):
        names.update(bound_names(statement))
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return set(filter(is_private, names))


def private_accesses(source: SourceFile, names: set[str]) -> list[str]:
    """Return where a test takes one of these names from an object or a module that is not its
    own, by an attribute or an import."""
    if not PRIVATE_USE.search(source.text):
        return []
    places = []
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in names:
            owner = ast.unparse(node.value)
            if owner not in OWN_OBJECTS:
                places.append(source.at(node, f"{owner}.{node.attr}"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stepline"):
            for alias in node.names:
                if is_private(alias.name):
                    places.append(source.at(node, f"{node.module}.{alias.name}"))
    return places
