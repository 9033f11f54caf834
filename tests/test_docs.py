"""What the documents show must exist: every command line parses, every link leads to a file."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import stepline
from lab.cli import lab
from stepline.cli import main
from stepline.storage import read_record

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES = sorted([*ROOT_PAGES, *(ROOT / "docs").rglob("*.md")])


def command_lines(page):
    """Return the `$ stepline ...` lines of a page, without comments and prompts."""
    lines = re.findall(
        r"^\s*\$ (?:\S*/)?(?:stepline |python -m (?=lab ))([^\n]*)$", page.read_text(), re.MULTILINE
    )
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_in_a_page_parses(page):
    for words in command_lines(page):
        check(words, page.name)


def check(words, place):
    """Fail unless the words after `stepline`, or `python -m`, are a command with its arguments."""
    name, *arguments = words
    known = main.commands | {"lab": lab}
    assert name in known, f"{place}: no such command: stepline {name}"
    command = known[name]
    while isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
        word, *arguments = arguments
        name, command = f"{name} {word}", command.commands[word]
    try:
        command.make_context(name, list(arguments))
    except click.UsageError as error:
        pytest.fail(f"{place}: stepline {name} {' '.join(arguments)}: {error}")


def messages(file):
    """Yield the texts of a module, with X for each value in them."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            values = [getattr(part, "value", "X") for part in node.values]
            yield "".join(value if isinstance(value, str) else "X" for value in values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_command_that_a_message_names_is_there_with_its_options():
    named = {
        line
        for file in (ROOT / "stepline").rglob("*.py")
        for text in messages(file)
        for line in re.findall(r"`stepline ([a-z][^`]+)`", " ".join(text.split()))
    }
    assert "steps --format json" in named
    for line in named:
        command, words = main, line.split()
        while isinstance(command, click.Group) and words:
            assert words[0] in command.commands, f"`stepline {line}`"
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, f"`stepline {line}`"


def prose(page):
    """Return a page with every run of white space as one blank."""
    return " ".join((ROOT / page).read_text().split())


def test_the_readme_names_everything_that_import_stepline_offers():
    names = re.search(r"From Python, (.*?) and the error `SteplineError`", prose("README.md"))[0]
    offered = set(stepline.__all__) - {"__version__"}
    assert set(re.findall(r"`(?:stepline\.)?(\w+)`", names)) == offered


RUNS_NO_NETWORK = set(
    "annotate vnd, curate excluded, curate status, datasets, doctor, evaluate, features check, "
    "features import, keys add, keys list, keys revoke, schema, text-base show, weights check, "
    "weights get, weights list".split(", ")
)


def commands_below(command, name=""):
    """Yield name and command of every command that is no group."""
    if not isinstance(command, click.Group):
        yield name.strip(), command
        return
    for word, below in command.commands.items():
        yield from commands_below(below, f"{name} {word}")


def test_every_command_that_runs_networks_takes_a_device():
    assert "every command that runs networks takes `--device" in prose("README.md")
    without = set()
    for name, command in commands_below(main):
        options = {option for parameter in command.params for option in parameter.opts}
        if "--device" not in options:
            without.add(name)
    assert without == RUNS_NO_NETWORK


def paper_items():
    """Return the rows of the three tables of `docs/reproduce.md`: (paper, its six cells)."""
    page = (ROOT / "docs" / "reproduce.md").read_text()
    tables = page.split("## Paper items")[1].split("\n## ")[0]
    papers = re.split(r"^### ", tables, flags=re.MULTILINE)[1:]
    rows = [
        (text[0], line.strip("| ").split(" | "))
        for text in papers
        for line in text.splitlines()
        if line[:2] == "| "
    ]
    return [(paper, cells) for paper, cells in rows if cells[0] != "item"]


def numbered(kind, numbers):
    return [f"{kind} {number}" for number in numbers]


ITEMS = {
    "A": [*numbered("Table", "123456789"), *numbered("Figure", "12345678")],
    "B": [
        *numbered("Table", "1 2a 2b 3 4 5".split()),
        *numbered("Figure", "1 2 3 4 5 6 7a 7b 8".split()),
        *("Figures 9 to 12", "Figures 13 to 17"),
    ],
    "C": [
        *numbered("Table", "123"),
        *numbered("Figure", "12345"),
        *("Section 4.1", "Supplement, table 1", "Supplement, figure 1"),
    ],
}
VERIFIED = {*"scorer layout annotations world drawn shape".split(), "the paper's own transcript"}


def test_every_table_and_figure_of_the_papers_has_its_row():
    rows = paper_items()
    for paper, names in ITEMS.items():
        found = {cells[0].partition(":")[0] for letter, cells in rows if letter == paper}
        assert found == set(names)


@pytest.mark.parametrize("paper", ITEMS)
def test_a_row_of_a_paper_names_commands_that_parse_and_tests_that_exist(paper):
    rows = [cells for letter, cells in paper_items() if letter == paper]
    for item, command, tests, verified, _, _ in rows:
        lines = re.findall(r"`(?:stepline |python -m (?=lab ))([^`]+)`", command)
        for line in lines:
            check(shlex.split(line), item)
        scripts = re.findall(r"`python (lab/\S+\.py)", command)
        for script in scripts:
            assert (ROOT / script).is_file(), f"{item}: {script}"
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        for file, name in named:
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (
                f"{item}: {file}::{name}"
            )
        assert lines or scripts or command.startswith("none: "), item
        assert bool(lines or scripts) == bool(named), (
            f"{item}: a command has its test, and no row has one without the other"
        )
        kinds = {part.strip() for part in re.sub(r"\([^)]*\)", "", verified).split(",")}
        assert kinds <= (VERIFIED if lines or scripts else {"–"}), f"{item}: {verified}"


PROOF = {"scorer": "tests/evaluate/", "layout": "tests/rehearsal/", "world": "tests/lab/"}


def test_a_row_says_no_more_than_its_tests_hold():
    for _, (item, _, tests, verified, _, _) in paper_items():
        for kind, folder in PROOF.items():
            assert folder in tests or kind not in re.sub(r"\([^)]*\)", "", verified), (
                f"{item}: {kind}, and no test of {folder}"
            )


def run(*command, **environment):
    """Run a program of this environment on the checkout; fail with what it said."""
    known = os.environ | {"PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, env=known, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of docs/, built strictly: a page outside of its menu and a link into nothing end the
    build."""
    folder = tmp_path_factory.mktemp("site")
    build = ("mkdocs", "build", "--strict", "--site-dir", folder)
    run(sys.executable, "-m", *build, NO_MKDOCS_2_WARNING="1")
    return folder


def test_the_site_has_every_page_and_asks_no_one_else_for_anything(site):
    pages = sorted(site.rglob("index.html"))
    assert len(pages) == len([page for page in PAGES if page.parent != ROOT])
    for page in pages:
        loaded = re.findall(
            r"<(?:link|script|img|iframe|source)\b[^>]*?\b(?:href|src)=[\"']?((?:https?:)?//[^\"'\s>]+)",
            page.read_text(),
        )
        assert not loaded, page


def test_the_notebook_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    """Its cells run in this process; of the demo they get the record that tests/test_golden.py
    finds in what is written today."""
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    asked = []

    def steps(video, *, settings):
        asked.append((video.name, settings.asr.compute))
        return read_record(ROOT / "tests" / "golden" / "expected" / "demo" / "demo.json")

    monkeypatch.setattr(stepline, "steps", steps)
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            shown = ["".join(output["text"]) for output in cell["outputs"]]
            assert capsys.readouterr().out == "".join(shown)
    assert asked == [("demo.mp4", "float32")]


@pytest.mark.slow
def test_the_notebook_prints_what_it_shows_in_a_fresh_kernel(tmp_path):
    places = {
        name: str(tmp_path) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")
    }
    run(sys.executable, ROOT / "docs" / "generate.py", "--notebook", "--check", **places)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_make_knows_what_the_readme_names():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert target in targets


def test_no_page_names_a_place_of_one_machine():
    for page in PAGES:
        assert not re.search(r"(?:^|[\s(`])/(?:home|root|work|tmp|Users)/", page.read_text()), (
            page.name
        )


def test_a_benchmark_runs_as_the_pages_type_it():
    """From the root of a checkout whose environment `make setup-dev` made: what it imports is
    found."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = [sys.executable, "lab/search.py", "--help"]
    done = subprocess.run(run, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "--steps" in done.stdout
