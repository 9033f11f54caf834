"""What the documents show must exist: every command line parses, every link leads to a file."""

import re
import shlex
from pathlib import Path

import click
import pytest

from research.cli import research
from stepline.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])


def command_lines(page):
    """Return the `$ stepline ...` lines of a page, without comments and prompts."""
    lines = re.findall(
        r"^\s*\$ (?:\S*/)?(?:stepline |python -m (?=research ))([^\n]*)$", page.read_text(), re.MULTILINE
    )
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_page_parses(page):
    for words in command_lines(page):
        check(words, page.name)


def check(words, place):
    """Fail unless the words after `stepline`, or `python -m`, are a command with its arguments."""
    name, *arguments = words
    known = main.commands | {"research": research}
    assert name in known, f"{place}: no such command: stepline {name}"
    command = known[name]
    while isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
        name, command, arguments = f"{name} {arguments[0]}", command.commands[arguments[0]], arguments[1:]
    try:
        command.make_context(name, list(arguments))
    except click.UsageError as error:
        pytest.fail(f"{place}: stepline {name} {' '.join(arguments)}: {error}")


def test_every_command_in_a_table_of_the_papers_parses():
    """In `docs/reproduce.md` commands stand in cells; what is marked (later) does not exist yet."""
    found = 0
    for row in (ROOT / "docs" / "reproduce.md").read_text().splitlines():
        if not row.startswith("| ") or "(later)" in row or "comes later)" in row:
            continue
        for line in re.findall(r"`(?:stepline |python -m (?=research ))([^`]+)`", row):
            check(shlex.split(line), row)
            found += 1
    assert found > 20


def test_the_readme_shows_commands():
    assert len(command_lines(ROOT / "README.md")) >= 8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_make_knows_what_the_readme_names():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert target in targets


def test_no_page_names_a_place_of_one_machine():
    for page in PAGES:
        assert not re.search(r"(?:^|[\s(`])/(?:home|root|work|tmp|Users)/", page.read_text()), page.name


def test_what_the_walk_from_the_command_to_the_page_names_is_there():
    """Under ten files, each `file:name` of the numbered list is in the package."""
    walk = (ROOT / "docs" / "design.md").read_text().split("## From the command to the page")[1].split("\n## ")[0]
    for file, name in re.findall(r"`([\w/]+\.py):(\w+)`", walk):
        assert re.search(rf"^(?:def|class) {name}\b", (ROOT / "stepline" / file).read_text(), re.MULTILINE), (
            file,
            name,
        )
    assert 5 < len(re.findall(r"^\d\. `[\w/]+\.py:\w+`", walk, re.MULTILINE)) < 10
