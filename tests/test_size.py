"""The size of the package: its code may grow only where someone says so.

python tests/test_size.py    # tokens, lines and files of each room
"""

import ast
import io
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {getattr(tokenize, name) for name in "COMMENT NL NEWLINE INDENT DEDENT ENDMARKER".split()}
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


def package_files():
    return sorted((ROOT / "stepline").rglob("*.py"))


def print_rooms():
    """Print tokens, lines and files of each room, the largest first, and their totals."""
    tokens, lines, files = Counter(), Counter(), Counter()
    for path in package_files():
        parts = path.relative_to(ROOT / "stepline").parts
        room = parts[0] if len(parts) > 1 else "(no room)"
        text = path.read_text(encoding="utf-8")
        tokens[room] += code_tokens(text)
        lines[room] += text.count("\n")
        files[room] += 1
    for room, count in tokens.most_common():
        print(f"{count:9,} {lines[room]:8,} {files[room]:4}  {room}")
    print(f"{tokens.total():9,} {lines.total():8,} {files.total():4}  in all")


def test_tokens_of_code_are_counted_without_layout_comments_and_docstrings():
    assert code_tokens('"""A module."""\n\nx = 1  # one\n') == 3
    assert code_tokens('def f(a):\n    """Say a."""\n    return f"{a} {a!r}"\n') == 8


def test_the_package_has_no_more_tokens_than_pyproject_allows():
    limit = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["stepline"]["max-tokens"]
    total = sum(code_tokens(path.read_text(encoding="utf-8")) for path in package_files())
    assert total <= limit, (
        f"{total:,} tokens in stepline/, {limit:,} allowed: take something out, or raise "
        "`max-tokens` in pyproject.toml with a line in CHANGELOG.md that says what it is for"
    )


if __name__ == "__main__":
    print_rooms()
