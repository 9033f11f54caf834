"""The size of the package: its code may grow only where someone says so."""

import ast
import io
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_tokens(text):
    """Count the tokens of code, without layout, comments and docstrings. An f-string counts as
    one."""
    docstring_lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            docstring_lines |= set(range(docstring.lineno, docstring.end_lineno + 1))
    count = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        depth -= name == "FSTRING_END"
        if depth == 0 and token.type not in LAYOUT and token.start[0] not in docstring_lines:
            count += 1
        depth += name == "FSTRING_START"
    return count


def test_tokens_of_code_are_counted_without_layout_comments_and_docstrings():
    assert code_tokens('"""A module."""\n\nx = 1  # one\n') == 3
    assert code_tokens('def f(a):\n    """Say a."""\n    return f"{a} {a!r}"\n') == 8


def test_the_package_has_no_more_tokens_than_pyproject_allows():
    limit = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["stepline"]["max-tokens"]
    counts = {
        path.relative_to(ROOT): code_tokens(path.read_text(encoding="utf-8"))
        for path in (ROOT / "stepline").rglob("*.py")
    }
    total = sum(counts.values())
    assert total <= limit, (
        f"{total:,} tokens in stepline/, {limit:,} allowed: take something out, or raise "
        "`max-tokens` in pyproject.toml with a line in CHANGELOG.md that says what it is for"
    )
