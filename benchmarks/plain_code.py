"""How plain the lines and names of a file are: what STYLE asks of each, counted by structure.py."""

import ast
import re
from collections.abc import Iterable, Iterator

from source_files import FunctionNode, SourceFile, bound_names, line_count, top_level

MAX_TOKENS_PER_LINE = 8.5  # the goal of a new file; good code bases have 6 to 9
MIN_LINES_OF_RATE = 5  # of code: a file of two imports has no density
MAX_LINE_CHARS = 100  # of code, as ruff lays it out
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 500
MAX_CLASS_METHODS = 20
MAX_PARAMETERS = 8

# As the whole name of a variable or a parameter these say what happened to a value, not what it is.
_PARTICIPLES_TEXT = """
told kept given found seen said shown known held chosen taken wanted done made asked heard read left
"""
PARTICIPLE_WORDS = frozenset(_PARTICIPLES_TEXT.split())
PARTICIPLE_ENDINGS = re.compile(r"(ed|en|pt|ld|ng)$")
ONE_WORD_TYPE = re.compile(r"_?[A-Z][a-z]+$")
# Nouns that only look like participles, and the one word for what is left out.
_NOUNS_TEXT = """
Drawing Finding Grounding Pairing Prompt Ranking Script Thing Transcript Rejected Setting Warning
Heading String Timing Reading Writing Meaning Listing Token Padding Seed Embed
"""
PARTICIPLE_LIKE_NOUNS = frozenset(_NOUNS_TEXT.split())
COMPREHENSION_TYPES = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
FORMATTER_SWITCH = re.compile(r"#.*\bfmt: *(skip|off)")
TYPE_VARIABLE_KINDS = {"TypeVar", "ParamSpec", "TypeVarTuple"}


def bare_participles(source: SourceFile) -> list[str]:
    """Return the variables and parameters whose whole name is a participle."""
    places = []
    for node in source.nodes:
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if name in PARTICIPLE_WORDS:
            places.append(source.at(node, name))
    return places


def participle_types(source: SourceFile) -> list[str]:
    """Return the classes and aliases of types whose whole name is a participle."""
    places = []
    for node in source.classes:
        if is_participle(node.name):
            places.append(source.at(node, node.name))
    for statement in top_level(source.tree.body):
        for name in bound_names(statement):
            if is_participle(name):
                places.append(source.at(statement, name))
    return places


def is_participle(name: str) -> bool:
    """Say whether a name in camel case is one word, and that word a participle."""
    if not ONE_WORD_TYPE.match(name) or name.lstrip("_") in PARTICIPLE_LIKE_NOUNS:
        return False
    word = name.lstrip("_").lower()
    return word in PARTICIPLE_WORDS or PARTICIPLE_ENDINGS.search(word) is not None


def one_word_constants(source: SourceFile) -> list[str]:
    """Return the constants of a module that are one bare word: noun and unit are missing."""
    places = []
    for statement in top_level(source.tree.body):
        if _makes_type_variable(statement):
            continue
        for name in bound_names(statement):
            if name.isupper() and "_" not in name.strip("_"):
                places.append(source.at(statement, name))
    return places


def _makes_type_variable(statement: ast.stmt) -> bool:
    call = getattr(statement, "value", None)
    return isinstance(call, ast.Call) and ast.unparse(call.func) in TYPE_VARIABLE_KINDS


def ternaries(source: SourceFile) -> list[str]:
    """Return every `x if condition else y`."""
    places = []
    for node in source.nodes:
        if isinstance(node, ast.IfExp):
            places.append(source.at(node, "ternary"))
    return places


def comprehensions(source: SourceFile) -> list[str]:
    """Return every comprehension and generator expression."""
    return [
        source.at(node, type(node).__name__)
        for node in source.nodes
        if isinstance(node, COMPREHENSION_TYPES)
    ]


def conditional_comprehensions(source: SourceFile) -> list[str]:
    """Return the comprehensions that have a condition."""
    places = []
    for node in source.nodes:
        if isinstance(node, COMPREHENSION_TYPES) and any(loop.ifs for loop in node.generators):
            places.append(source.at(node, type(node).__name__))
    return places


def tuple_assignments(source: SourceFile) -> list[str]:
    """Return every `a, b = x, y`."""
    places = []
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                places.append(source.at(node, ast.unparse(target)))
    return places


def long_lines(source: SourceFile) -> list[str]:
    """Return the lines of code with more than MAX_LINE_CHARS characters."""
    places = []
    for number in source.code_lines:
        length = len(source.lines[number - 1])
        if length > MAX_LINE_CHARS:
            places.append(f"{source.path}:{number}: {length} characters")
    return places


def formatter_switches(source: SourceFile) -> list[str]:
    """Return the comments that switch the formatter off."""
    return [
        f"{source.path}:{number}: {line.strip()}"
        for number, line in enumerate(source.lines, start=1)
        if FORMATTER_SWITCH.search(line)
    ]


def comment_lines(source: SourceFile) -> int:
    """Return the number of lines that hold a comment alone."""
    return sum(line.strip().startswith("#") for line in source.lines)


def long_functions(source: SourceFile) -> list[str]:
    """Return the functions of more than MAX_FUNCTION_LINES lines."""
    places = []
    for node in source.functions:
        length = line_count(node)
        if length > MAX_FUNCTION_LINES:
            places.append(source.at(node, f"{node.name}, {length} lines"))
    return places


def wide_functions(source: SourceFile) -> list[str]:
    """Return the functions that take more than MAX_PARAMETERS parameters."""
    places = []
    for node in source.functions:
        arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        names = {argument.arg for argument in arguments} - {"self", "cls"}
        if len(names) > MAX_PARAMETERS:
            places.append(source.at(node, f"{node.name}, {len(names)} parameters"))
    return places


def large_classes(source: SourceFile) -> list[str]:
    """Return the classes of more than MAX_CLASS_METHODS methods."""
    places = []
    for node in source.classes:
        methods = [part for part in node.body if isinstance(part, FunctionNode)]
        if len(methods) > MAX_CLASS_METHODS:
            places.append(source.at(node, f"{node.name}, {len(methods)} methods"))
    return places


def long_files(sources: Iterable[SourceFile]) -> list[str]:
    """Return the files of more than MAX_FILE_LINES lines."""
    return [
        f"{source.path}: {len(source.lines)} lines"
        for source in sources
        if len(source.lines) > MAX_FILE_LINES
    ]


def tokens_per_line(source: SourceFile) -> float:
    """Return the tokens of a line of code, on average. 0 for a file without code."""
    if not source.code_lines:
        return 0.0
    return len(source.code_tokens) / len(source.code_lines)


def departures(source: SourceFile) -> Iterator[str]:
    """Yield why a file is not plain yet: each goal of a new file that it misses."""
    density = tokens_per_line(source)
    has_rate = len(source.code_lines) >= MIN_LINES_OF_RATE
    if has_rate and density > MAX_TOKENS_PER_LINE:
        yield f"{source.path}: {density:.2f} tokens a line of code, over {MAX_TOKENS_PER_LINE}"
    for place in bare_participles(source):
        yield f"{place} is a bare participle"
    for place in one_word_constants(source):
        yield f"{place} is a constant of one word; name its noun and unit"
    for place in long_lines(source):
        yield f"{place}, over {MAX_LINE_CHARS}"
