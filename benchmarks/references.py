"""Names in backticks that lead nowhere, and settings that nothing ever sets.

A reference in backticks is a file, a file and a name, or names with dots between them. It is in
docstrings and comments of the Python files and in the pages of docs/. It must be something of this
repository: a file, a module and a name of it, a class and its attribute, a setting of
docs/settings.md, or a path of fields. Not checked is what belongs to others (a module that some
file imports from outside, the attributes of a variable in the same file). Neither are files that
programs write, as run.json, which the ending of a data file shows.
"""

import ast
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

from source_files import Definition, SourceFile, bound_names, read_sources, top_level

PYTHON_FOLDERS = ("stepline", "research", "benchmarks", "tests", "docs", "examples")
FOLDERS_WITH_PROSE = ("stepline", "research", "benchmarks")  # what tests say is not checked
UNCHECKED_PAGES = {"CHANGELOG.md"}  # it is about what is gone
_ENDINGS_TEXT = """
json jsonl toml txt csv tsv md html css js xml yaml yml parquet safetensors npy npz pth pt bin gguf
onnx zip tar gz mp4 webm wav vtt srt pdf docx svg png webp log lock sqlite db part pkl ipynb sh pem
jsonld bz2 mat tflite ass edl otio
"""
DATA_ENDINGS = frozenset(_ENDINGS_TEXT.split())

PYTHON_FILE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.py)(?:::?([\w.]+))?`")
DOTTED_NAME = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
FENCED_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SETTING_ROW = re.compile(r"^\| `([\w.]+)(?:\.\*)?` \|", re.MULTILINE)

# Where a setting is set, the pages that list all settings left out.
SETTING_FOLDERS = (
    "tests",
    "docs",
    "research",
    "benchmarks",
    "examples",
    "stepline/presets",
    "stepline/curate/recipes",
)
SETTING_FILES = {".py", ".md", ".toml", ".ipynb"}
PAGES_OF_ALL_SETTINGS = {"settings.md", "cli.md"}

Names = set[str]
NumberedLines = Iterator[tuple[int, str]]


class Repository:
    """What a reference may mean: the files, modules, classes and settings of a checkout."""

    def __init__(self, checkout: Path, package: dict[str, SourceFile] | None = None) -> None:
        """package: the files of `stepline`, where they were read and parsed before."""
        self.checkout = checkout
        self.sources: dict[str, SourceFile] = {}
        for folder in PYTHON_FOLDERS:
            if folder == "stepline" and package is not None:
                self.sources |= package
            else:
                self.sources |= read_sources(checkout, folder)

    @cached_property
    def modules_by_name(self) -> dict[str, list[str]]:
        """Last part of a module's name -> the modules."""
        modules = defaultdict(list)
        for module in self.sources:
            name = module.split(".")[-1]
            modules[name].append(module)
        return modules

    @cached_property
    def names(self) -> dict[str, Names]:
        """Module -> what can be taken from it: what it defines and imports, and its submodules."""
        names = {}
        for module, source in self.sources.items():
            names[module] = _names_of(source)
        for module in self.sources:
            parent, _, name = module.rpartition(".")
            if parent in names:
                names[parent].add(name)
        return names

    @cached_property
    def classes(self) -> dict[str, list[ast.ClassDef]]:
        """Class name -> the classes of that name."""
        classes = defaultdict(list)
        for source in self.sources.values():
            for node in source.classes:
                classes[node.name].append(node)
        return classes

    @cached_property
    def field_types(self) -> dict[str, Names]:
        """Field of a class -> the words of its annotations, among them the classes it may hold."""
        types = defaultdict(set)
        for nodes in self.classes.values():
            for node in nodes:
                for field, annotation in _fields(node):
                    types[field].update(re.findall(r"\w+", annotation))
        return types

    @cached_property
    def record_tables(self) -> Names:
        """The fields of a record that are dicts, whose keys are not in the code."""
        tables = set()
        for node in self.sources["stepline.records"].classes:
            for field, annotation in _fields(node):
                if annotation.startswith("dict"):
                    tables.add(field)
        return tables

    @cached_property
    def settings(self) -> Names:
        """Every key of docs/settings.md, and every part of one: `data.slack` of a longer key."""
        page = self.checkout / "docs" / "settings.md"
        keys = set()
        for key in SETTING_ROW.findall(page.read_text(encoding="utf-8")):
            parts = key.split(".")
            for start in range(len(parts)):
                for end in range(start, len(parts)):
                    keys.add(".".join(parts[start : end + 1]))
        return keys

    @cached_property
    def outside_modules(self) -> Names:
        """The libraries of others: Python's own, and what a file of this repository imports."""
        modules = set(sys.stdlib_module_names)
        for source in self.sources.values():
            for node in source.nodes:
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        modules.add(alias.name.split(".")[0])
                elif isinstance(node, ast.ImportFrom) and node.module:
                    modules.add(node.module.split(".")[0])
        for module in self.sources:
            modules.discard(module.split(".")[0])
        return modules

    def modules_at(self, path: str) -> Iterator[str]:
        """Yield the modules whose file has this path, from the root or from any folder."""
        for module, source in self.sources.items():
            if f"/{source.path}".endswith(f"/{path}"):
                yield module

    def has_folder(self, name: str) -> bool:
        """Say whether a folder of Python files has this name."""
        return any(f".{name}." in f".{module}" for module in self.sources)

    def resolves_file(self, path: str, name: str) -> bool:
        """Say whether a file has this path, and a name in it. name: may be empty."""
        folder, slash, _ = path.partition("/")
        if slash and not self.has_folder(folder):
            return True  # a file of someone else's repository
        modules = list(self.modules_at(path))
        if not name:
            return bool(modules)
        return any(self.resolves_in(module, name.split(".")) for module in modules)

    def resolves_in(self, module: str, parts: list[str]) -> bool:
        """Say whether a module holds a name, and its class the attribute that follows."""
        name, *rest = parts
        if name not in self.names[module]:
            return False
        if not rest:
            return True
        submodule = f"{module}.{name}"
        if submodule in self.sources and self.resolves_in(submodule, rest):
            return True
        return name not in self.classes or self.has_attribute(name, rest[0])

    def has_attribute(self, class_name: str, attribute: str) -> bool:
        """Say whether a class of this name, or one that it derives from, has an attribute.

        Of a base that comes from outside the repository, everything is believed. Of pydantic's,
        only the names that it keeps for itself.
        """
        for node in self.classes.get(class_name, []):
            if attribute in _attributes(node):
                return True
            for base in base_names(node):
                if base in self.classes:
                    inherited = self.has_attribute(base, attribute)
                elif base in {"BaseModel", "Protocol"}:
                    inherited = attribute.startswith("model_")
                else:
                    inherited = True
                if inherited:
                    return True
        return False

    def resolves_as_field(self, field: str, attribute: str) -> bool:
        """Say whether a class has this field, and what it holds this attribute."""
        if field in self.record_tables:
            return True
        class_names = self.field_types.get(field, set())
        return any(self.has_attribute(name, attribute) for name in class_names)

    def resolves(self, reference: str) -> bool:
        """Say whether a dotted name means something in this repository, whatever its file."""
        if reference in self.settings or reference in self.sources:
            return True
        parts = reference.split(".")
        first, second = parts[:2]
        if first in self.outside_modules:
            return True
        for length in range(1, len(parts)):
            path = ".".join(parts[:length])
            for module in self.modules_by_name.get(parts[length - 1], []):
                is_module = f".{module}".endswith(f".{path}")
                if is_module and self.resolves_in(module, parts[length:]):
                    return True
        if first in self.classes:
            return self.has_attribute(first, second)
        return self.resolves_as_field(first, second)


def _names_of(source: SourceFile) -> Names:
    names = set()
    for statement in top_level(source.tree.body):
        names.update(bound_names(statement))
        if isinstance(statement, Definition):
            names.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                names.add(alias.asname or alias.name)
        elif isinstance(statement, ast.Assign):
            target = ast.unparse(statement.targets[0])
            if target == "__all__":  # lazy names, which nothing binds
                names.update(ast.literal_eval(statement.value))
    return names


@cache
def base_names(node: ast.ClassDef) -> list[str]:
    """Return the names of the classes that a class derives from, without module and parameters."""
    names = []
    for base in node.bases:
        expression = base
        if isinstance(base, ast.Subscript):
            expression = base.value
        names.append(ast.unparse(expression).split(".")[-1])
    return names


@cache
def _attributes(node: ast.ClassDef) -> Names:
    attributes = set()
    for part in node.body:
        attributes.update(bound_names(part))
        if isinstance(part, Definition):
            attributes.add(part.name)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            attributes.add(inner.attr)
    return attributes


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield name and annotation of the fields of a class."""
    for part in node.body:
        if isinstance(part, ast.AnnAssign):
            annotation = ast.unparse(part.annotation)
            if "ClassVar" not in annotation:
                yield ast.unparse(part.target), annotation


def variables(source: SourceFile) -> Names:
    """Return the names that mean a value in a file: variables, parameters and attributes."""
    names = {"self", "cls"}
    for node in source.nodes:
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    return names


def prose(source: SourceFile) -> NumberedLines:
    """Yield line number and text of the docstrings and comments of a file."""
    for statement in source.docstrings:
        lines = source.lines[statement.lineno - 1 : statement.end_lineno]
        yield from enumerate(lines, start=statement.lineno)
    for token in source.tokens:
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def page_lines(path: Path) -> NumberedLines:
    """Yield line number and text of a page, its blocks of code left out."""

    def empty_lines(block: re.Match[str]) -> str:
        return "\n" * block[0].count("\n")

    text = path.read_text(encoding="utf-8")
    prose_text = FENCED_CODE.sub(empty_lines, text)
    yield from enumerate(prose_text.splitlines(), start=1)


def unresolved_references(repository: Repository) -> list[str]:
    """Return the references of code and docs that lead nowhere."""
    places = []
    for source in repository.sources.values():
        if source.path.startswith(FOLDERS_WITH_PROSE):
            local_names = variables(source)
            for number, line in prose(source):
                for reference in _unresolved(repository, line, local_names):
                    places.append(f"{source.path}:{number}: `{reference}`")
    for path in pages(repository.checkout):
        name = path.relative_to(repository.checkout)
        for number, line in page_lines(path):
            for reference in _unresolved(repository, line, set()):
                places.append(f"{name}:{number}: `{reference}`")
    return places


def pages(checkout: Path) -> Iterator[Path]:
    """Yield the pages whose references are checked."""
    yield from sorted((checkout / "docs").rglob("*.md"))
    for path in sorted(checkout.glob("*.md")):
        if path.name not in UNCHECKED_PAGES:
            yield path


def _unresolved(repository: Repository, line: str, local_names: Names) -> Iterator[str]:
    for path, name in PYTHON_FILE.findall(line):
        if not repository.resolves_file(path, name):
            yield f"{path}:{name}".rstrip(":")
    for reference in DOTTED_NAME.findall(line):
        first, *rest = reference.split(".")
        is_file = "py" in rest or not DATA_ENDINGS.isdisjoint(rest)
        if is_file or first in local_names:
            continue
        if not repository.resolves(reference):
            yield reference


def unset_settings(repository: Repository) -> list[str]:
    """Return the settings that no test, page, preset, recipe, benchmark or research file sets."""
    names_set = _names_set_anywhere(repository.checkout)
    settings_classes = _settings_classes(repository)
    places = []
    for source in repository.sources.values():
        if not source.path.startswith("stepline/"):
            continue
        for node in source.classes:
            if node.name not in settings_classes:
                continue
            for field, annotation in _fields(node):
                is_section = annotation in settings_classes
                if not is_section and field not in names_set:
                    places.append(f"{source.path}: {node.name}.{field}")
    return places


def _settings_classes(repository: Repository) -> Names:
    """Return Settings and the classes that derive from it, at any distance."""
    names = {"Settings"}
    size = 0
    while len(names) > size:
        size = len(names)
        for name, nodes in repository.classes.items():
            for node in nodes:
                if not names.isdisjoint(base_names(node)):
                    names.add(name)
    return names


def _names_set_anywhere(checkout: Path) -> Names:
    """Return every name that is followed by `=`, or in quotes by `:`, where settings are set."""
    names = set()
    for folder in SETTING_FOLDERS:
        for path in (checkout / folder).rglob("*"):
            if path.suffix not in SETTING_FILES or "golden" in path.parts:
                continue
            if path.name not in PAGES_OF_ALL_SETTINGS:
                text = path.read_text(encoding="utf-8", errors="replace")
                names.update(re.findall(r"(\w+)\s*=(?!=)", text))
                names.update(re.findall(r"[\"'](\w+)[\"']\s*:", text))
    return names
