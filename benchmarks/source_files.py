"""The Python files of a checkout, read and parsed once for everything that structure.py counts."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

# Tokens that lay a file out, and do not belong to its code.
LAYOUT_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class SourceFile:
    """One Python file. path: from the root of its checkout. module: its dotted name."""

    path: str
    module: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, the first of them number 1 elsewhere."""
        return self.text.splitlines()

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """Every token with layout and comments. An f-string is one token, as before Python 3.12."""
        tokens: list[tokenize.TokenInfo] = []
        depth = 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            kind = tokenize.tok_name[token.type]
            if kind == "FSTRING_END":
                depth -= 1
            elif kind == "FSTRING_START":
                depth += 1
                if depth == 1:
                    tokens.append(token)
            elif depth == 0:
                tokens.append(token)
        return tokens

    @cached_property
    def code_tokens(self) -> list[tokenize.TokenInfo]:
        """The tokens of its code: no layout, no comment, nothing on the lines of a docstring."""
        docstring_lines: set[int] = set()
        for docstring in self.docstrings:
            first = docstring.lineno
            docstring_lines.update(range(first, first + line_count(docstring)))
        return [
            token
            for token in self.tokens
            if token.type not in LAYOUT_TOKENS and token.start[0] not in docstring_lines
        ]

    @cached_property
    def code_lines(self) -> list[int]:
        """The numbers of the lines on which a token of code begins."""
        return sorted({token.start[0] for token in self.code_tokens})

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of its tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def definitions(self) -> list[Definition]:
        """Every class and function of the file."""
        return [node for node in self.nodes if isinstance(node, Definition)]

    @cached_property
    def functions(self) -> list[FunctionNode]:
        """Every function and method of the file."""
        return [node for node in self.nodes if isinstance(node, FunctionNode)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Every class of the file."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def docstrings(self) -> list[ast.stmt]:
        """The statement of every docstring, that of the file first."""
        statements = []
        for node in self.nodes:
            if isinstance(node, Definition | ast.Module) and ast.get_docstring(node) is not None:
                statements.append(node.body[0])
        return statements

    def at(self, node: ast.AST, remark: str) -> str:
        """Return where a node is, with a remark on it."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {remark}"


def read_sources(checkout: Path, folder: str) -> dict[str, SourceFile]:
    """Return dotted module name -> file, of every Python file below a folder of a checkout."""
    sources = {}
    for path in sorted((checkout / folder).rglob("*.py")):
        relative = path.relative_to(checkout)
        parts = relative.with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        module = ".".join(parts)
        text = path.read_text(encoding="utf-8")
        sources[module] = SourceFile(relative.as_posix(), module, text)
    return sources


def line_count(node: ast.stmt) -> int:
    """Return the number of lines that a statement takes."""
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def top_level(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module that run when it is imported, those of `if` and `try` too."""
    for statement in statements:
        yield statement
        for block in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
                yield from top_level(getattr(statement, block, []))


def bound_names(statement: ast.stmt) -> list[str]:
    """Return the names that an assignment binds, of other statements none."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return []
    return [
        node.id
        for target in targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
