"""The prose of a checkout: what Markdown pages and Python files say to people, with line numbers.

A passage is text that is read in one go. On a page it is a paragraph, an item of a list or a cell
of a table. In code it is a docstring's paragraph, a comment, a help text, a message, or another
string of some words. Code is masked by MASK_SIGN, sign by sign. So a span of code counts as one word,
and every place keeps its line.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Kind = Literal["paragraph", "cell", "docstring", "comment", "label", "help", "message", "string"]
NumberedLines = list[tuple[int, str]]
Columns = list[tuple[int, int]]  # the first of a string, and one past its last
NodeIds = set[int]  # of nodes that were read
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

MASK_SIGN = "¤"  # in place of every sign of code
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK_TARGET = re.compile(r"(?<=\])\([^()\s]*\)|(?<=\])\[[^\]]*\]|<[^<>\s][^<>]*>|https?://\S+")
FENCE_PATTERN = re.compile(r"^\s*(```+|~~~+)")
TABLE_ROW = re.compile(r"^\s*\|.*\|\s*$")
TABLE_RULE = re.compile(r"^[\s|:-]+$")
CELL_BORDER = re.compile(r"(?<!\\)\|")
LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
INDENTED_CODE = re.compile(r"^(?: {4}|\t)")
HEADING_PATTERN = re.compile(r"^#{1,6}\s")
TOOL_COMMENT = re.compile(r"#\s*(?:!|noqa|type:|fmt:|pragma|mypy:|ruff:|-\*-|%%)")
STRING_OPENING = re.compile(r'^\s*[rRuU]?("""|\'\'\'|"|\')')
STRING_END = re.compile(r'("""|\'\'\'|"|\')\s*(?:#.*)?$')
EMPTY_LINES = re.compile(r"\n\s*\n")
# A name in front of what it means, as a docstring lists arguments: "path: from the root".
FIELD_LINE = re.compile(r"^(?:`[^`]+`|[\w*.]+(?:, [\w*.]+)*)(?: \([^)]*\))?: ")

TABLE_OF_BLANKS = re.compile(r"\S {2,}\S")
CLICK_MARK = "\\b"  # which keeps the lines of a help text apart

_MESSAGE_CALLS_TEXT = "print_message print_error warning warn info error exception echo"
MESSAGE_CALLS = frozenset(_MESSAGE_CALLS_TEXT.split())
HELP_KEYWORDS = frozenset({"help", "short_help", "epilog"})
OPTION_MAKERS = ("option", "options")  # ends of names of functions that take a help text
LEAST_MESSAGE_WORDS = 3  # shorter strings are keys, separators and names


@dataclass(frozen=True)
class Passage:
    """Text that is read in one go. starts: (offset in the text, number of the line) of its lines."""

    path: str
    kind: Kind
    text: str
    starts: tuple[tuple[int, int], ...]

    def line_at(self, offset: int) -> int:
        """Return the number of the line that an offset of the text is on."""
        number = self.starts[0][1]
        for start, line in self.starts:
            if start > offset:
                break
            number = line
        return number

    @cached_property
    def masked(self) -> str:
        """The text with its code masked and its links without their targets."""
        text = CODE_SPAN.sub(mask, self.text)
        return LINK_TARGET.sub(_blank, text)


Passages = Iterator[Passage]


def mask(match: re.Match[str]) -> str:
    """Return a match with MASK_SIGN for each sign but the ends of lines."""
    return re.sub(r"[^\n]", MASK_SIGN, match[0])


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def passage(path: str, kind: Kind, lines: NumberedLines) -> Passage:
    """Return the passage of some lines, which its text parts by ends of lines."""
    starts = []
    offset = 0
    for number, line in lines:
        starts.append((offset, number))
        offset += len(line) + 1
    text = "\n".join(line for _, line in lines)
    return Passage(path, kind, text, tuple(starts))


def markdown_passages(path: str, text: str) -> Passages:
    """Yield the paragraphs, items of lists and cells of a Markdown page, without blocks of code."""
    paragraph: NumberedLines = []
    fence = ""
    is_in_list = False
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE_PATTERN.match(line)
        is_item = LIST_ITEM.match(line) is not None
        is_continued = line[:1] in ("", " ")
        is_in_list = is_item or (is_in_list and is_continued)
        if fence:
            if mark and mark[1].startswith(fence):
                fence = ""
            continue
        is_row = TABLE_ROW.match(line) is not None
        is_heading = HEADING_PATTERN.match(line) is not None
        is_border = not line.strip() or mark or is_row or is_heading or is_item
        # a border ends the paragraph before it
        if paragraph and is_border:
            yield passage(path, "paragraph", paragraph)
            paragraph = []
        if mark:
            fence = mark[1]
        elif INDENTED_CODE.match(line) and not paragraph and not is_in_list:
            continue
        elif is_row:
            yield from _cells(path, number, line)
        elif is_heading:
            words = HEADING_PATTERN.sub("", line)
            yield passage(path, "cell", [(number, words)])
        elif is_item:
            paragraph.append((number, LIST_ITEM.sub("", line)))
        elif line.strip():
            paragraph.append((number, line.strip().removeprefix("> ")))
    if paragraph:
        yield passage(path, "paragraph", paragraph)


def _cells(path: str, number: int, line: str) -> Passages:
    if TABLE_RULE.match(line):
        return
    masked = CODE_SPAN.sub(mask, line)
    start = 0
    for border in CELL_BORDER.finditer(masked):
        cell = line[start : border.start()].strip()
        start = border.end()
        if cell:
            yield passage(path, "cell", [(number, cell)])


def python_passages(path: str, text: str) -> Passages:
    """Yield what a Python file says: docstrings, comments, help texts and messages."""
    tree = ast.parse(text)
    lines = text.splitlines()
    string_lines: dict[int, Columns] = {}
    # ast.walk goes from the outside inwards, so a string of a message is met first as that.
    read_nodes: NodeIds = set()
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            yield from _docstring(path, node, lines, read_nodes)
        elif isinstance(node, ast.Call):
            yield from _spoken_by_call(path, node, read_nodes)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                yield from _strings(path, "message", argument, read_nodes)
        if isinstance(node, ast.JoinedStr | ast.Constant):
            _note_string(string_lines, node, lines)
            yield from _strings(path, "string", node, read_nodes)
    yield from _comments(path, lines, string_lines)


def _docstring(path: str, node: Definition, lines: list[str], read_nodes: NodeIds) -> Passages:
    if ast.get_docstring(node, clean=False) is None:
        return
    statement = node.body[0]
    read_nodes.update(id(child) for child in ast.iter_child_nodes(statement))
    first = statement.lineno
    last = statement.end_lineno or first
    texts = lines[first - 1 : last]
    texts[0] = STRING_OPENING.sub("", texts[0])
    texts[-1] = STRING_END.sub("", texts[-1])
    numbered = list(enumerate(texts, first))
    yield from docstring_passages(path, "docstring", numbered, statement.col_offset)


def docstring_passages(path: str, kind: Kind, lines: NumberedLines, indent: int) -> Passages:
    """Yield the paragraphs of a docstring or help text, without indented blocks of code.

    indent: the column that its lines begin at. A line of an argument, or of a list, is a paragraph.
    """
    paragraph: NumberedLines = []
    for number, line in lines:
        words = line.strip()
        is_item = LIST_ITEM.match(line) is not None
        is_first = lines[0][0] == number
        is_code = not is_item and _is_code_line(line, indent, paragraph, is_first)
        is_start = is_item or FIELD_LINE.match(words)
        if paragraph and (not words or is_code or is_start):
            yield passage(path, kind, paragraph)
            paragraph = []
        if words and words != CLICK_MARK and not is_code:
            paragraph.append((number, LIST_ITEM.sub("", words)))
    if paragraph:
        yield passage(path, kind, paragraph)


def _is_code_line(line: str, indent: int, paragraph: NumberedLines, is_first: bool) -> bool:
    """Say whether a line of a docstring is code, or a row of a table drawn with blanks."""
    if is_first:
        return False
    if TABLE_OF_BLANKS.search(line.strip()):
        return True
    is_indented = len(line) - len(line.lstrip()) >= indent + 2
    if not is_indented:
        return False
    return not paragraph or paragraph[-1][1].endswith(":")


def _spoken_by_call(path: str, call: ast.Call, read_nodes: NodeIds) -> Passages:
    function = call.func
    own_name = getattr(function, "id", "")
    name = getattr(function, "attr", own_name)
    owner_node = getattr(function, "value", None)
    owner = getattr(owner_node, "id", "")
    for keyword in call.keywords:
        if keyword.arg in HELP_KEYWORDS:
            yield from _strings(path, "help", keyword.value, read_nodes)
    if name.endswith(OPTION_MAKERS):
        for argument in call.args:
            yield from _strings(path, "help", argument, read_nodes)
    if name in MESSAGE_CALLS or (name == "append" and owner == "warnings"):
        for argument in call.args:
            yield from _strings(path, "message", argument, read_nodes)


def _strings(path: str, kind: Kind, node: ast.expr, read_nodes: NodeIds) -> Passages:
    """Yield each text below a node that was not read before. Filled-in values are masked."""
    if id(node) in read_nodes:
        return
    read_nodes.add(id(node))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        read_nodes.update(id(part) for part in node.values)
        text = "".join(map(_masked_part, node.values))
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _strings(path, kind, child, read_nodes)
        return
    is_pattern = "(?:" in text
    if len(text.split()) >= LEAST_MESSAGE_WORDS and not is_pattern:
        for paragraph in EMPTY_LINES.split(text):
            words = " ".join(paragraph.split())
            yield passage(path, kind, [(node.lineno, words)])


def _masked_part(part: ast.expr) -> str:
    """Return the text of a part of an f-string, MASK_SIGN for a value that is filled in."""
    return str(part.value) if isinstance(part, ast.Constant) else MASK_SIGN


def _note_string(string_lines: dict[int, Columns], node: ast.expr, lines: list[str]) -> None:
    """Note the columns that a string with a hash takes, line by line."""
    last = node.end_lineno or node.lineno
    for number in range(node.lineno, last + 1):
        line = lines[number - 1]
        if "#" not in line:
            continue
        encoded = line.encode()
        start = 0
        end = len(line)
        if number == node.lineno:
            start = len(encoded[: node.col_offset].decode())
        if number == last:
            end = len(encoded[: node.end_col_offset].decode())
        string_lines.setdefault(number, []).append((start, end))


def _comments(path: str, lines: list[str], string_lines: dict[int, Columns]) -> Passages:
    """Yield comments: those of lines of their own together, one behind code as a label."""
    block: NumberedLines = []
    block_column = 0
    for number, line in enumerate(lines, 1):
        column = _comment_column(line, string_lines.get(number, []))
        is_own_line = column is not None and not line[:column].strip()
        if block and not (is_own_line and column == block_column):
            yield passage(path, "comment", block)
            block = []
        if column is None or TOOL_COMMENT.match(line[column:]):
            continue
        words = line[column:].lstrip("#:").strip()
        if is_own_line:
            block_column = column
            block.append((number, words))
        elif words:
            yield passage(path, "label", [(number, words)])
    if block:
        yield passage(path, "comment", block)


def _comment_column(line: str, strings: Columns) -> int | None:
    """Return the column of the hash that begins a comment, or None."""
    column = line.find("#")
    while column >= 0:
        if not any(start <= column < end for start, end in strings):
            return column
        column = line.find("#", column + 1)
    return None
