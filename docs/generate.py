"""Write cli.md, api.md, settings.md, stepline.1, notebook.md, the layout, the import contract and the
code's measures in design.md, the presets in reproduce.md.

With --check, end with 1 where they are out of date. The measures may then be off by a little, for
every commit moves them. With --notebook, run notebook.ipynb before,
which takes seconds, and keep what it prints.
"""

import ast
import copy
import inspect
import json
import re
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import stepline
from stepline.cli import main
from stepline.cli.options import preset_files
from stepline.compare.settings import CompareRunSettings
from stepline.curate.stage import Recipe
from stepline.models.nasva.settings import AlignerRunSettings, RefineRunSettings
from stepline.models.procx.settings import ProcxRunSettings
from stepline.models.wys2.settings import Wys2Settings
from stepline.pipeline.request import StepsSettings
from stepline.settings import load_settings
from stepline.sieve_swap.settings import SieveSwapSettings

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "stepline"
TREE, TREE_END = "<!-- layout: made by docs/generate.py -->", "<!-- end of the layout -->"
CONTRACT = "<!-- layers: made by docs/generate.py -->"
CONTRACT_END = "<!-- end of the layers -->"
OTHERS = {  # commands with settings of their own
    "`stepline compare`": CompareRunSettings,
    "`stepline curate` (a recipe)": Recipe,
    "`stepline refine`": RefineRunSettings,
    "`stepline sieve-swap` and `stepline text-base`": SieveSwapSettings,
    "`stepline train nasva`": AlignerRunSettings,
    "`stepline train procx`": ProcxRunSettings,
    "`stepline train wys2`": Wys2Settings,
}
PRESETS = {  # commands with presets
    "train nasva": AlignerRunSettings,
    "refine": RefineRunSettings,
    "curate run": Recipe,
    "predict": StepsSettings,
    "sieve-swap": SieveSwapSettings,
    "train procx": ProcxRunSettings,
    "train wys2": Wys2Settings,
}
DEFAULTS, DEFAULTS_END = "<!-- presets: made by docs/generate.py -->", "<!-- end of the presets -->"
NOTE = "<!-- made by docs/generate.py; edit the code instead -->\n"


def command_line() -> str:
    """Return the help of every command as Markdown."""
    parts = [f"# Command line\n\n{NOTE}"]
    for name, command in _commands("stepline", main):
        helpful = _with_help(command)
        context = click.Context(
            helpful, info_name=name, max_content_width=100, terminal_width=100, show_default=True
        )
        parts.append(f"## {name}\n\n```\n{helpful.get_help(context)}\n```\n")
    return "\n".join(parts)


MAN_HEAD = r""".TH STEPLINE 1 "" "stepline" "User Commands"
.SH NAME
stepline \- turns narrated how\-to videos into clean, time\-aligned steps
.SH SYNOPSIS
.B stepline
[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]
.SH DESCRIPTION
Gives the steps of a narrated how\-to video: what to do, and the seconds in which it is shown. Data go to standard
output, talk and progress to standard error. \fBstepline\fR \fICOMMAND\fR \fB\-\-help\fR explains a command.
"""
MAN_TAIL = r""".SH ENVIRONMENT
.TP
.B STEPLINE_SECTION__KEY
a setting: STEPLINE_ASR__BEAM=5 is asr.beam=5
.TP
.B STEPLINE_CONFIG
the user's settings file, instead of config.toml in the user's config folder; empty: none
.TP
.B STEPLINE_CACHE
the folder for what can be made again, instead of the user's cache folder
.TP
.B STEPLINE_WEIGHTS
the folder of the networks' files, instead of weights in the cache folder
.SH EXIT STATUS
0 done, 1 an error in one line, 2 wrong usage, 70 a fault of Stepline itself, 130 stopped from the keyboard
"""


def man_page() -> str:
    """Return stepline(1): the options of the program, then each command with the first sentence of
    its help."""

    def entry(term: str, text: str) -> str:
        plain = (
            " ".join(words.split()).replace("\\", r"\e").replace("-", r"\-")
            for words in (term, text)
        )
        return ".TP\n.B {}\n{}\n".format(*plain)

    options = [
        entry(", ".join(option.opts), option.help or "")
        for option in _with_help(main).params
        if isinstance(option, click.Option)
    ]
    commands = [
        entry(name.removeprefix("stepline "), (command.help or "").partition("\n\n")[0])
        for name, command in _commands("stepline", main)
        if command is not main
    ]
    return f"{MAN_HEAD}.SH OPTIONS\n{''.join(options)}.SH COMMANDS\n{''.join(commands)}{MAN_TAIL}"


def _with_help(command: click.Command) -> click.Command:
    """Return a copy of a command with a help option of its own.

    A command keeps the one that it made first, which lacks -h if a program used the command without
    its parent.
    """
    helpful = copy.copy(command)
    helpful.add_help_option = False
    help_option = click.Option(["-h", "--help"], is_flag=True, help="Show this message and exit.")
    helpful.params = [*command.params, help_option]
    return helpful


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command with its name, then those below it."""
    yield name, command
    if isinstance(command, click.Group):
        for below in sorted(command.commands):
            yield from _commands(f"{name} {below}", command.commands[below])


def settings() -> str:
    """Return a table of every setting: key, default, what it means."""
    rows = "\n".join(_rows(StepsSettings, ""))
    others = "".join(
        f"\n## {command}\n\n| key | default | meaning |\n|---|---|---|\n{chr(10).join(_rows(kind, ''))}\n"
        for command, kind in OTHERS.items()
    )
    return (
        f"# Settings\n\n{NOTE}\nSettings come from four places. A later one overrides those before it:\n\n"
        "1. `config.toml` in your config folder (on Linux `~/.config/stepline/`), or the file that `STEPLINE_CONFIG`\n"
        "   names. If that variable is set and empty, no file is read.\n"
        "2. Environment variables: `STEPLINE_ASR__BEAM=5` is `asr.beam=5`, nested by `__`.\n"
        "3. A TOML file: `--settings run.toml`.\n"
        "4. One by one: `--set asr.beam=5`.\n\n"
        "If a default below is `None`, you can write it as `none`: `--set rounds.refine.seconds=none`,\n"
        'or in TOML `seconds = "none"`. '
        "A file of that name is `./none`.\n\n"
        "Some commands have `--preset paper`, which sets a paper's values\n"
        "([reproduce](reproduce.md#defaults-that-depart-from-the-paper) lists them). It comes between\n"
        "the second and the third place.\n\n"
        "An unknown key is an error that names the nearest known one. The first two places serve every command, "
        "and a\ncommand ignores sections that belong to another one.\n\n"
        f"| key | default | meaning |\n|---|---|---|\n{rows}\n{others}"
    )


def _rows(kind: type[BaseModel], prefix: str, section: BaseModel | None = None) -> list[str]:
    """Return a row a setting; section: the default of the section that they are in, whose values
    they have."""
    rows: list[str] = []
    for name, field in kind.model_fields.items():
        child = field.annotation
        meaning = (field.description or "").replace("|", "\\|")
        if get_origin(child) is Literal and not all(name in meaning for name in get_args(child)):
            meaning = f"{meaning} ({', '.join(get_args(child))})"
        if child in (StepsSettings, *OTHERS.values()):
            commands = [command for command, other in OTHERS.items() if other is child]
            meaning = meaning or f"the settings of {commands[0]}"
            rows.append(f"| `{prefix}{name}.*` | | {meaning}: see its own table |")
            continue
        if isinstance(child, type) and issubclass(child, BaseModel):
            rows += _rows(
                child,
                f"{prefix}{name}.",
                field.default if section is None else getattr(section, name),
            )
            continue
        value = field.default if section is None else getattr(section, name)
        default = "" if value is PydanticUndefined else f"`{value!r}`"
        rows.append(f"| `{prefix}{name}` | {default} | {meaning} |")
    return rows


API_HEAD = """
The names of `import stepline`. Each is imported when it is first used. Everything else is imported from its package, as
`from stepline.features import FeatureStore`. [Design](design.md) says where things are. Times are seconds from the
start of the video.
"""


def python_api() -> str:
    """Return the public names of the package: signatures, fields and docstrings as they stand in
    the code."""
    parts = [f"# Python\n\n{NOTE}{API_HEAD}"]
    for name in sorted(
        set(stepline.__all__) - {"__version__"}, key=lambda name: (name[0].isupper(), name)
    ):
        source = inspect.getsource(sys.modules[getattr(stepline, name).__module__])
        (node,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == name)
        parts.append(f"## stepline.{name}\n\n{_definition(node, source.splitlines())}")
    return "\n".join(parts)


def _definition(node: ast.stmt, lines: list[str]) -> str:
    """Return how a function is called or what a class holds, then its docstring; of a class what it
    offers, too."""
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    shown = lines[node.lineno - 1 : node.body[0].lineno - 1]
    methods = []
    # The first statement is the class's docstring. A later string is the meaning of the field above.
    for part in node.body[1:] if isinstance(node, ast.ClassDef) else ():
        if isinstance(part, ast.AnnAssign | ast.Expr):
            shown += lines[part.lineno - 1 : part.end_lineno]
        elif isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            called = part.name if part.decorator_list else f"{part.name}({ast.unparse(part.args)})"
            methods.append(
                f"- `{re.sub(r'[(]self(?:, )?', '(', called)}`: {ast.get_docstring(part)}\n"
            )
    code = "\n".join(shown).rstrip(":")
    return f"```python\n{code}\n```\n\n{ast.get_docstring(node)}\n" + "".join(
        methods and ["\n", *methods]
    )


def run_notebook(path: Path) -> list[str]:
    """Run a notebook in a fresh kernel and folder; return what each cell prints."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    return [printed(cell) for cell in notebook.cells]


def printed(cell: dict[str, Any]) -> str:
    """Return what a cell of a notebook printed on standard output."""
    return "".join(
        "".join(row["text"]) for row in cell.get("outputs", []) if row.get("name") == "stdout"
    )


def notebook(check: bool) -> int:
    """Run notebook.ipynb and keep what it prints, or compare that with what is kept; return the
    exit code."""
    path = DOCS / "notebook.ipynb"
    content = json.loads(path.read_text(encoding="utf-8"))
    texts = run_notebook(path)
    if check:
        changed = [
            text
            for text, cell in zip(texts, content["cells"], strict=True)
            if text != printed(cell)
        ]
        for text in changed:
            print(
                f"docs/notebook.ipynb prints something else; run `make docs`:\n{text}",
                file=sys.stderr,
            )
        return 1 if changed else 0
    for text, cell in zip(texts, content["cells"], strict=True):
        if cell["cell_type"] == "code":
            lines = text.splitlines(keepends=True)
            cell["outputs"] = (
                [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
            )
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


def notebook_page() -> str:
    """Return notebook.ipynb as Markdown, what its cells printed under each."""
    cells = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            text = f"```python\n{text}\n```" + (
                f"\n\n```text\n{printed(cell).rstrip()}\n```" if printed(cell) else ""
            )
        parts.append(text)
    head, *rest = parts
    opening, _, lead = head.partition("\n\n")
    return (
        "\n\n".join(
            (
                opening,
                NOTE.rstrip(),
                lead,
                "To run it yourself: [notebook.ipynb](notebook.ipynb).",
                *rest,
            )
        )
        + "\n"
    )


def tree() -> str:
    """Return the layout of the package: each folder with the first line of its docstring, then its
    modules."""
    lines = []
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")}):
        name = folder.relative_to(PACKAGE.parent).as_posix()
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        opening = " ".join(docstring.split("\n\n")[0].split())
        modules = sorted(
            path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")
        )
        lines.append(f"{name}/\n    {opening}")
        lines += textwrap.wrap(
            " ".join(modules), 112, initial_indent="    > ", subsequent_indent="      "
        )
    return "```\n" + "\n".join(lines) + "\n```\n"


def layers() -> str:
    """Return the layers of the import contract, the highest first, as pyproject.toml has them."""
    text = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    contract = next(contract for contract in contracts if contract["type"] == "layers")
    lines = []
    for layer in contract["layers"]:
        siblings = re.findall(r"[\w.]+", layer)
        lines.append(" | ".join(sibling.removeprefix("stepline.") for sibling in siblings))
    return "```\n" + "\n".join(lines) + "\n```\n"


def departures() -> str:
    """Return a table a preset: each setting whose default is not the paper's, the paper's value,
    its source, why."""
    parts = []
    for command, kind in PRESETS.items():
        for name, path in preset_files(command).items():
            rows = []
            for key, _, comment in preset_lines(path):
                default, value = (
                    _value(settings, key) for settings in (kind(), load_settings(kind, preset=path))
                )
                source, _, why = comment.partition("; ")
                if default != value:
                    rows.append(f"| `{key}` | `{default!r}` | `{value!r}` | {source} | {why} |")
            head = "| setting | default | paper | source | why the default is another |\n|---|---|---|---|---|"
            table = f"{head}\n{chr(10).join(rows)}" if rows else "No default departs from it."
            parts.append(f"### `stepline {command} --preset {name}`\n\n{table}\n")
    return "\n".join(parts)


def preset_lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield key, value as written and comment of each line of a preset."""
    section = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = f"{line.strip('[]')}."
        elif line and not line.startswith("#"):
            setting, _, comment = line.partition("  # ")
            key, _, value = setting.partition(" = ")
            yield section + key, value, comment


def _value(settings: BaseModel, key: str) -> object:
    value: object = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def page_with(name: str, start: str, end: str, text: str) -> str:
    """Return a page of docs with a new text between two marks."""
    return with_part((DOCS / name).read_text(), start, end, text)


def with_part(page: str, start: str, end: str, text: str) -> str:
    """Return a page with a new text between two marks."""
    before, _, rest = page.partition(start)
    return f"{before}{start}\n\n{text}\n{rest[rest.index(end) :]}"


def design_page() -> str:
    """Return design.md with its layout and its import contract."""
    page = page_with("design.md", TREE, TREE_END, tree())
    return with_part(page, CONTRACT, CONTRACT_END, layers())


def presets_page() -> str:
    """Return reproduce.md with its tables of presets."""
    return page_with("reproduce.md", DEFAULTS, DEFAULTS_END, departures())


# Page -> what makes it.
PAGES = {
    "cli.md": command_line,
    "api.md": python_api,
    "settings.md": settings,
    "stepline.1": man_page,
    "notebook.md": notebook_page,
    "reproduce.md": presets_page,
    "design.md": design_page,
}


def generate(check: bool) -> int:
    """Write the pages, or compare them; return the exit code."""
    exit_code = 0
    for name, make_page in PAGES.items():
        path = DOCS / name
        text = make_page()
        if not check:
            path.write_text(text)
            continue
        present = path.read_text() if path.exists() else ""
        if present != text:
            exit_code = 1
            print(f"docs/{name} is out of date; run `make docs`", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    check = "--check" in sys.argv
    failed = notebook(check) if "--notebook" in sys.argv else 0
    sys.exit(generate(check) or failed)
