"""How hard the code is to enter, counted by a parse: python benchmarks/structure.py [FOLDER ...]

Each FOLDER is a checkout; several are set side by side, as in docs/design.md. Counted is the
package `stepline` alone, `research` where it was part of it. "Unexplained" names are those of
public classes and functions that hold a word of RIDDLES: metaphors, and words that stood for many
things.
"""

import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

PARTICIPLE = re.compile(r"_?[A-Z][a-z]+(ed|en|pt|ld|ng)$")
NOUNS = {  # that only look like participles, and the one word for what is left out
    "Drawing",
    "Finding",
    "Grounding",
    "Pairing",
    "Prompt",
    "Ranking",
    "Script",
    "Thing",
    "Transcript",
    "Rejected",
}
RIDDLES = {
    *(
        "told",
        "tell",
        "tells",
        "ear",
        "tape",
        "desk",
        "door",
        "fate",
        "taps",
        "looking",
        "looked",
        "heard",
        "listen",
    ),
    *(
        "waiter",
        "seats",
        "seen",
        "bench",
        "twins",
        "beside",
        "chance",
        "chances",
        "belief",
        "beliefs",
        "tilt",
        "held",
    ),
    *(
        "apart",
        "sure",
        "team",
        "watched",
        "watching",
        "kept",
        "miss",
        "weighty",
        "around",
        "picked",
        "chosen",
        "written",
    ),
    *(
        "given",
        "gathered",
        "falls",
        "fall",
        "wanted",
        "done",
        "taken",
        "spoken",
        "drafted",
        "placed",
        "unread",
        "found",
    ),
}


def trees(package: Path) -> dict[str, ast.Module]:
    """Return dotted module name -> syntax tree, of every module of a package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(
            path.read_text(encoding="utf-8")
        )
    return found


def definitions(
    tree: ast.Module,
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every class and function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def called_once(tree: ast.Module) -> int:
    """Count the private functions that their own module names once."""
    named = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    named += Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    private = (
        node.name
        for node in definitions(tree)
        if not isinstance(node, ast.ClassDef) and re.match("_[^_]", node.name)
    )
    return sum(named[name] == 1 for name in private)


def words(name: str) -> set[str]:
    """Return the words of a name in snake or camel case, in small letters."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def imports(tree: ast.Module, modules: Collection[str] = ()) -> Iterator[str]:
    """Yield what a module imports when it is imported: not inside functions, nor for type checkers
    alone."""
    nodes: list[ast.AST] = list(tree.body)
    modules = set(modules)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{name.name}" for name in node.names]
            yield from below
            if not set(below) <= modules:  # something of the package itself, not only modules in it
                yield node.module
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            nodes += node.body + node.orelse
        elif isinstance(node, ast.Try):
            nodes += node.body


def circles(modules: dict[str, ast.Module]) -> list[set[str]]:
    """Return the sets of modules that import each other in a ring (strongly connected, of two or
    more)."""
    graph = {
        name: {other for other in imports(tree, modules) if other in modules} - {name}
        for name, tree in modules.items()
    }
    reach: dict[str, set[str]] = {}
    for name in graph:
        seen, waiting = set(), [name]
        while waiting:
            for other in graph[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        reach[name] = seen
    rings = {
        frozenset({name} | {other for other in reach[name] if name in reach[other]})
        for name in graph
    }
    return [set(ring) for ring in rings if len(ring) > 1]


def participles(modules: dict[str, ast.Module]) -> set[str]:
    """Return the classes named by a bare participle."""
    classes = {
        node.name
        for tree in modules.values()
        for node in definitions(tree)
        if isinstance(node, ast.ClassDef)
    }
    return {name for name in classes if PARTICIPLE.match(name) and name not in NOUNS}


def repeated_classes(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return class name -> the modules that define it, of names in two modules or more."""
    where = defaultdict(set)
    for module, tree in modules.items():
        for node in definitions(tree):
            if isinstance(node, ast.ClassDef):
                where[node.name].add(module)
    return {name: found for name, found in where.items() if len(found) > 1}


def measure(checkout: Path) -> dict[str, str]:
    """Return what is counted of the package in a checkout."""
    modules = trees(checkout / "stepline")
    texts = [path.read_text(encoding="utf-8") for path in (checkout / "stepline").rglob("*.py")]
    lengths = [text.count("\n") for text in texts]
    nodes = [node for tree in modules.values() for node in definitions(tree)]
    functions = [node for node in nodes if not isinstance(node, ast.ClassDef)]
    public = [node.name for node in nodes if not node.name.startswith("_")]
    riddles = sum(bool(words(name) & RIDDLES) for name in public)
    imported = sum(
        node.end_lineno - node.lineno + 1
        for tree in modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and node.end_lineno
    )
    return {
        "files": str(len(lengths)),
        "lines": f"{sum(lengths):,}",
        "files per 1,000 lines": f"{1000 * len(lengths) / sum(lengths):.2f}",
        "file, median / longest": f"{statistics.median(lengths):.0f} / {max(lengths)}",
        "functions": f"{len(functions):,}",
        "private functions": f"{sum(node.name.startswith('_') and node.name[1] != '_' for node in functions):,}",
        "private functions called once": f"{sum(map(called_once, modules.values())):,}",
        "public names with a word that explains nothing": f"{riddles} of {len(public):,}",
        "lines of imports": f"{imported:,}",
        "classes named by a bare participle": str(len(participles(modules))),
        "class names in two modules": str(len(repeated_classes(modules))),
        "import circles": str(len(circles(modules))),
    }


def main() -> None:
    """Print a table, a column a checkout."""
    checkouts = [Path(given) for given in sys.argv[1:]] or [Path(__file__).resolve().parents[1]]
    columns = [measure(checkout) for checkout in checkouts]
    print("| | " + " | ".join(checkout.resolve().name for checkout in checkouts) + " |")
    print("|---|" + "---|" * len(columns))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")


if __name__ == "__main__":
    main()
