"""Who imports whom in a package, by every way there is, with circles, and arrows that run upward.

An arrow leads from a module to one that it imports. There are four kinds. The first is
"top" when the module is imported, then "function" when a function of it runs, and "types" for type
checkers alone. The last is "hidden", by a
string that is handed to `import_module` or `__import__`. Where such a call gets no string itself,
every string of its file that names a module counts. The table of lazy names in
`stepline/__init__.py` is read so. Plugins are not arrows: `stepline.plugins` loads entry points of
other packages, which name no module of this one.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from source_files import SourceFile

Kind = Literal["top", "function", "types", "hidden"]
ALL_KINDS: tuple[Kind, ...] = ("top", "function", "types", "hidden")
STRING_IMPORTERS = {"import_module", "__import__"}
Graph = dict[str, set[str]]
Layers = list[list[str]]


@dataclass(frozen=True)
class Arrow:
    """One import: which module names which, how, and in which line."""

    source: str
    target: str
    kind: Kind
    place: str

    def __str__(self) -> str:
        return f"{self.place}: {self.source} -> {self.target} ({self.kind})"


@dataclass(frozen=True)
class Floor:
    """Where a module is in the layers. number: from the top. sibling: its part of that layer."""

    number: int
    sibling: str


class _ImportCollector(ast.NodeVisitor):
    """Collects the imports of one file, each with the dotted name it asks for."""

    def __init__(self, source: SourceFile, modules: Collection[str]) -> None:
        self.source = source
        self.modules = modules
        self.kind: Kind = "top"
        self.arrows: list[Arrow] = []
        self.hidden_arrows: list[Arrow] = []
        self.imports_by_variable = False

    def visit_Import(self, node: ast.Import) -> None:
        """Note `import a.b`."""
        for alias in node.names:
            self.arrows.append(self._arrow(node, alias.name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note `from a import b`: the module a.b where there is one, else a."""
        if node.module is None:
            return
        for alias in node.names:
            target = f"{node.module}.{alias.name}"
            if target not in self.modules:
                target = node.module
            self.arrows.append(self._arrow(node, target))

    def visit_If(self, node: ast.If) -> None:
        """Note what only type checkers import as that."""
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)
            return
        self._visit_as("types", node.body)
        for statement in node.orelse:
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Note what is imported when a function runs."""
        self._visit_as("function", ast.iter_child_nodes(node))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Note what is imported when a coroutine runs."""
        self._visit_as("function", ast.iter_child_nodes(node))

    def visit_Constant(self, node: ast.Constant) -> None:
        """Keep the strings that name a module, for the imports by a variable."""
        if node.value in self.modules:
            self.hidden_arrows.append(self._arrow(node, node.value, "hidden"))

    def visit_Call(self, node: ast.Call) -> None:
        """Note an import by a string."""
        function = ast.unparse(node.func)
        if function.rpartition(".")[2] in STRING_IMPORTERS and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant):
                self.arrows.append(self._arrow(node, name.value, "hidden"))
                return
            self.imports_by_variable = True
        self.generic_visit(node)

    def _arrow(self, node: ast.AST, target: object, kind: Kind | None = None) -> Arrow:
        place = f"{self.source.path}:{getattr(node, 'lineno', 1)}"
        return Arrow(self.source.module, str(target), kind or self.kind, place)

    def _visit_as(self, kind: Kind, nodes: Iterable[ast.AST]) -> None:
        outer = self.kind
        if outer != "types":
            self.kind = kind
        for node in nodes:
            self.visit(node)
        self.kind = outer


def imports(source: SourceFile, modules: Collection[str]) -> list[Arrow]:
    """Return everything that a file imports, of this package and of others."""
    collector = _ImportCollector(source, modules)
    collector.visit(source.tree)
    if collector.imports_by_variable:
        return collector.arrows + collector.hidden_arrows
    return collector.arrows


def arrows(sources: dict[str, SourceFile]) -> list[Arrow]:
    """Return the imports between modules of the package."""
    inner_arrows = []
    for source in sources.values():
        for arrow in imports(source, sources):
            if arrow.target in sources and arrow.target != source.module:
                inner_arrows.append(arrow)
    return inner_arrows


def circles(all_arrows: list[Arrow], kinds: Collection[Kind] = ALL_KINDS) -> Layers:
    """Return the sets of two or more modules that each lead to all others of their set."""
    graph: Graph = defaultdict(set)
    for arrow in all_arrows:
        if arrow.kind in kinds:
            graph[arrow.source].add(arrow.target)
    reach = {}
    for module in list(graph):
        reach[module] = _reachable(graph, module)
    rings = set()
    for module, targets in reach.items():
        ring = []
        for other in sorted(targets):
            if module in reach.get(other, ()):
                ring.append(other)
        if len(ring) > 1:
            rings.add(tuple(ring))
    return sorted(map(list, rings))


def _reachable(graph: Graph, start: str) -> set[str]:
    visited: set[str] = set()
    queue = [start]
    while queue:
        module = queue.pop()
        new = graph[module] - visited
        visited |= new
        queue += new
    return visited


def read_layers(checkout: Path) -> Layers:
    """Return the layers of the first import contract in pyproject.toml, the highest first.

    Each is a list of siblings, which may not import each other.
    """
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    linter = tomllib.loads(text)["tool"]["importlinter"]
    for contract in linter["contracts"]:
        if contract["type"] == "layers":
            return [re.findall(r"[\w.]+", layer) for layer in contract["layers"]]
    return []


def floor_of(module: str, layers: Layers) -> Floor | None:
    """Return where a module is in the layers, None if it is in none."""
    for number, siblings in enumerate(layers):
        for sibling in siblings:
            if f"{module}.".startswith(f"{sibling}."):
                return Floor(number, sibling)
    return None


def upward_arrows(all_arrows: list[Arrow], layers: Layers) -> list[Arrow]:
    """Return the arrows that lead to a higher layer, or to a sibling that is independent."""
    upward = []
    for arrow in all_arrows:
        start = floor_of(arrow.source, layers)
        end = floor_of(arrow.target, layers)
        if start is None or end is None or start == end:
            continue
        if end.number <= start.number:
            upward.append(arrow)
    return upward
