"""How hard the code is to enter, counted: python benchmarks/structure.py [FOLDER ...]

Each FOLDER is a checkout, or a file of numbers that --json printed for one. Several are set side by
side, as in docs/design.md. Counted is the package `stepline` alone. With --laboratory it shows some
rows of research/ and benchmarks/ next to it. The option --worst lists the ten densest files, --show
ROW the places behind a row. The option --json prints the numbers, --tighten lowers the bounds of
structure_bounds.json to what is measured.

"Unexplained" names are those of public classes and functions that hold a word of RIDDLE_WORDS:
metaphors, and words that meant many things. A file that is not plain misses a goal of a new
file: 8.5 tokens a line of code, no bare participle, no constant of one word, no line over 100.
"""

import argparse
import ast
import itertools
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import import_arrows
import plain_code
from import_arrows import Layers
from references import Repository, unresolved_references, unset_settings
from source_files import SourceFile, line_count, read_sources

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
BOUNDS_PATH = PROJECT_FOLDER / "benchmarks" / "structure_bounds.json"
WORST_FILES = 10
PRIVATE_NAME = re.compile("_[^_]")
SLACK_SHARE = 0.03  # of a bound: how far a measure may fall below it before it must be tightened
SLACK_COUNT = 3
_RIDDLES_TEXT = """
told tell tells ear tape desk door fate taps looking looked heard listen waiter seats seen bench
twins beside chance chances belief beliefs tilt held apart sure team watched watching kept miss
weighty around picked chosen written given gathered falls fall wanted done taken spoken drafted
placed unread found
"""
RIDDLE_WORDS = frozenset(_RIDDLES_TEXT.split())

# Rows that are counted in each file: name -> the function that lists their places.
FILE_ROWS = {
    "bare participles as variables": plain_code.bare_participles,
    "constants of one word": plain_code.one_word_constants,
    "lines of code over 100 characters": plain_code.long_lines,
    "switches of the formatter": plain_code.formatter_switches,
    "functions over 60 lines": plain_code.long_functions,
    "functions with more than 8 parameters": plain_code.wide_functions,
    "classes with more than 20 methods": plain_code.large_classes,
    "types named by a bare participle": plain_code.participle_types,
}
# Rows that are counted in each file, and per 1,000 lines of code too.
RATE_ROWS = {
    "ternaries": plain_code.ternaries,
    "comprehensions": plain_code.comprehensions,
    "comprehensions with a condition": plain_code.conditional_comprehensions,
    "tuple assignments": plain_code.tuple_assignments,
}
CIRCLE_ROWS = {
    "import circles at the top of modules": 1,
    "import circles, also inside functions": 2,
    "import circles, also for type checkers": 3,
    "import circles, also hidden by a string": 4,
}
# What is not in the package and is held to bounds of its own, in some rows.
LABORATORY_FOLDERS = ("research/", "benchmarks/")
DENSITY_ROW = "tokens per line of code"
LABORATORY_ROWS = (
    "bare participles as variables",
    "constants of one word",
    "lines of code over 100 characters",
    "functions over 60 lines",
)
UPWARD_ROW = "upward imports, of every kind"
MODULES_IN_CIRCLES = "modules in import circles of any kind"
COMMENT_ROW = "comment lines per 100 lines"  # the one row that should rise

Numbers = dict[str, float]  # by row
Sources = list[SourceFile]
Modules = dict[str, SourceFile]  # by dotted name
PlaceLister = Callable[[SourceFile], list[str]]


@dataclass
class Measures:
    """What is counted of a checkout. numbers: by row. places: where what a row counts is.
    laboratory: some rows, of research/ and benchmarks/."""

    numbers: Numbers = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    laboratory: Numbers = field(default_factory=dict)

    def add(self, row: str, places: Iterable[str]) -> None:
        """Count the places of a row."""
        self.places[row] = list(places)
        self.numbers[row] = len(self.places[row])

    def add_from_files(self, row: str, sources: Sources, list_places: PlaceLister) -> None:
        """Count the places of a row in each file."""
        places = []
        for source in sources:
            places += list_places(source)
        self.add(row, places)


def words(name: str) -> set[str]:
    """Return the words of a name in snake or camel case, in small letters."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def called_once(source: SourceFile) -> list[str]:
    """Return the private functions that their own module names once."""
    uses: Counter[str] = Counter()
    for node in source.nodes:
        if isinstance(node, ast.Name):
            uses[node.id] += 1
        elif isinstance(node, ast.Attribute):
            uses[node.attr] += 1
    places = []
    for function in source.functions:
        if PRIVATE_NAME.match(function.name) and uses[function.name] == 1:
            places.append(source.at(function, function.name))
    return places


def repeated_classes(sources: Sources) -> dict[str, list[str]]:
    """Return class name -> the modules that define it, of names in two modules or more."""
    modules: dict[str, list[str]] = {}
    for source in sources:
        for node in source.classes:
            owners = modules.setdefault(node.name, [])
            if source.module not in owners:
                owners.append(source.module)
    for name in list(modules):
        if len(modules[name]) == 1:
            del modules[name]
    return modules


def files_not_plain(source: SourceFile) -> list[str]:
    """Return the path of a file if it misses a goal of new files."""
    if any(plain_code.departures(source)):
        return [source.path]
    return []


def measure(checkout: Path) -> Measures:
    """Count everything in a checkout."""
    modules = read_sources(checkout, "stepline")
    sources = list(modules.values())
    measures = Measures()
    _measure_sizes(measures, sources)
    _measure_lines(measures, sources)
    _measure_names(measures, sources)
    _measure_imports(measures, modules, import_arrows.read_layers(checkout))
    repository = Repository(checkout, modules)
    measures.add("references that lead nowhere", unresolved_references(repository))
    measures.add("settings that nothing sets", unset_settings(repository))
    _measure_laboratory(measures, list(repository.sources.values()))
    return measures


def _measure_laboratory(measures: Measures, sources: Sources) -> None:
    laboratory = [source for source in sources if source.path.startswith(LABORATORY_FOLDERS)]
    lines = sum(len(source.code_lines) for source in laboratory)
    if lines == 0:
        return
    tokens = sum(len(source.code_tokens) for source in laboratory)
    measures.laboratory[DENSITY_ROW] = tokens / lines
    for row in LABORATORY_ROWS:
        places = []
        for source in laboratory:
            places += FILE_ROWS[row](source)
        measures.places[f"{row}, in the laboratory"] = places
        measures.laboratory[row] = len(places)


def _measure_sizes(measures: Measures, sources: Sources) -> None:
    lengths = [len(source.lines) for source in sources]
    functions = [node for source in sources for node in source.functions]
    numbers = measures.numbers
    numbers["files"] = len(sources)
    numbers["lines"] = sum(lengths)
    numbers["lines of code"] = sum(len(source.code_lines) for source in sources)
    numbers["lines of a file, median"] = statistics.median(lengths)
    numbers["lines of a file, most"] = max(lengths)
    numbers["functions"] = len(functions)
    private_functions = 0
    for node in functions:
        if PRIVATE_NAME.match(node.name):
            private_functions += 1
    numbers["private functions"] = private_functions
    measures.add_from_files("private functions called once", sources, called_once)
    measures.add("files over 500 lines", plain_code.long_files(sources))


def _measure_lines(measures: Measures, sources: Sources) -> None:
    numbers = measures.numbers
    tokens = sum(len(source.code_tokens) for source in sources)
    numbers["tokens"] = tokens
    numbers[DENSITY_ROW] = tokens / numbers["lines of code"]
    comments = sum(plain_code.comment_lines(source) for source in sources)
    numbers[COMMENT_ROW] = 100 * comments / numbers["lines"]
    for row, list_places in FILE_ROWS.items():
        measures.add_from_files(row, sources, list_places)
    for row, list_places in RATE_ROWS.items():
        measures.add_from_files(row, sources, list_places)
        rate = 1000 * numbers[row] / numbers["lines of code"]
        numbers[f"{row} per 1,000 lines of code"] = rate
    measures.add_from_files("files that are not plain", sources, files_not_plain)


def _measure_names(measures: Measures, sources: Sources) -> None:
    unexplained = []
    public_names = 0
    for source in sources:
        for node in source.definitions:
            if not node.name.startswith("_"):
                public_names += 1
                if words(node.name) & RIDDLE_WORDS:
                    unexplained.append(source.at(node, node.name))
    measures.numbers["public names"] = public_names
    measures.add("unexplained public names", unexplained)
    repeated = []
    for name, owners in repeated_classes(sources).items():
        modules = ", ".join(owners)
        repeated.append(f"{name}: {modules}")
    measures.add("class names in two modules", repeated)


def _measure_imports(measures: Measures, modules: Modules, layers: Layers) -> None:
    import_lines = 0
    for source in modules.values():
        for node in source.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                import_lines += line_count(node)
    measures.numbers["lines of imports"] = import_lines
    all_arrows = import_arrows.arrows(modules)
    for row, kinds in CIRCLE_ROWS.items():
        rings = import_arrows.circles(all_arrows, import_arrows.ALL_KINDS[:kinds])
        measures.add(row, map(" <-> ".join, rings))
    every_ring = import_arrows.circles(all_arrows)
    measures.add(MODULES_IN_CIRCLES, itertools.chain(*every_ring))
    upward = import_arrows.upward_arrows(all_arrows, layers)
    measures.add(UPWARD_ROW, map(str, upward))


def worst_files(checkout: Path) -> list[str]:
    """Return the densest files: tokens a line of code, tokens, path."""
    sources = read_sources(checkout, "stepline").values()
    dense_first = sorted(sources, key=plain_code.tokens_per_line, reverse=True)
    lines = []
    for source in dense_first[:WORST_FILES]:
        density = plain_code.tokens_per_line(source)
        tokens = len(source.code_tokens)
        lines.append(f"{density:6.2f} {tokens:7,} {source.path}")
    return lines


def cell_text(measures: Measures, row: str) -> str:
    """Return a number as the tables show it, nothing for a row that was not counted yet."""
    if row not in measures.numbers:
        return ""
    number = measures.numbers[row]
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:.2f}"


def slack(bound: float) -> float:
    """Return how far a measure may be from its bound before the bound is to be tightened."""
    share = SLACK_SHARE * bound
    if bound > 10:
        return max(SLACK_COUNT, share)
    return share


def tightened(bounds: Numbers, numbers: Numbers) -> Numbers:
    """Return the bounds, each lowered to its measure. That of comments is raised."""
    tight = {}
    for row, bound in bounds.items():
        hundredths = 100 * numbers[row]
        if row == COMMENT_ROW:
            tight[row] = max(bound, math.floor(hundredths) / 100)
        else:
            tight[row] = min(bound, math.ceil(hundredths) / 100)
        if tight[row] == int(tight[row]):
            tight[row] = int(tight[row])
    return tight


def tighten() -> None:
    """Write the bounds downwards, and take the files that became plain off the list of the others."""
    measures = measure(PROJECT_FOLDER)
    content = json.loads(BOUNDS_PATH.read_text(encoding="utf-8"))
    still_dense = set(measures.places["files that are not plain"])
    content["bounds"] = tightened(content["bounds"], measures.numbers)
    content["laboratory"] = tightened(content["laboratory"], measures.laboratory)
    for name in ("not_plain", "moved_not_plain"):
        content[name] = sorted(still_dense.intersection(content[name]))
    text = json.dumps(content, indent=1)
    BOUNDS_PATH.write_text(f"{text}\n", encoding="utf-8")


def table_line(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def table(columns: dict[str, Measures]) -> str:
    """Return a Markdown table, a column a checkout."""
    lines = [table_line("", *columns), "|---|" + "---|" * len(columns)]
    *_, last_column = columns.values()
    for row in last_column.numbers:
        cells = [cell_text(column, row) for column in columns.values()]
        lines.append(table_line(row, *cells))
    return "\n".join(lines)


def laboratory_table(measures: Measures) -> str:
    """Return the rows of the laboratory, the package's next to them."""
    package = {row: measures.numbers[row] for row in measures.laboratory}
    return table({"stepline": Measures(package), "laboratory": Measures(measures.laboratory)})


def read_columns(folder: Path) -> dict[str, Measures]:
    """Return column heading -> what is counted of a checkout, or what a file of numbers holds."""
    if folder.suffix == ".json":
        content = json.loads(folder.read_text(encoding="utf-8"))
        return {heading: Measures(numbers) for heading, numbers in content.items()}
    if folder.resolve() == PROJECT_FOLDER:
        return {"now": measure(folder)}
    return {folder.resolve().name: measure(folder)}


def show(row_text: str, measures: Measures) -> None:
    """Print the places of every row whose name holds a text."""
    for row, places in measures.places.items():
        if row_text in row:
            print(f"{row}: {len(places)}", *places, sep="\n  ")


def main() -> None:
    """Print the table, or what an option asks for."""
    parser = argparse.ArgumentParser(description="Count how hard the code is to enter.")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--laboratory", action="store_true", help="show research/ and benchmarks/ too"
    )
    parser.add_argument("--worst", action="store_true", help="list the ten densest files")
    parser.add_argument("--show", metavar="ROW", help="list the places of the rows with this text")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--tighten", action="store_true", help="lower the bounds to the measures")
    options = parser.parse_args()
    folders = options.folders or [PROJECT_FOLDER]
    if options.tighten:
        tighten()
        return
    if options.worst:
        for folder in folders:
            print(*worst_files(folder), sep="\n")
        return
    columns: dict[str, Measures] = {}
    for folder in folders:
        columns.update(read_columns(folder))
    if options.show:
        for measures in columns.values():
            show(options.show, measures)
    elif options.laboratory:
        for measures in columns.values():
            print(laboratory_table(measures))
    elif options.json:
        numbers = {name: measures.numbers for name, measures in columns.items()}
        print(json.dumps(numbers, indent=1))
    else:
        print(table(columns))


if __name__ == "__main__":
    main()
