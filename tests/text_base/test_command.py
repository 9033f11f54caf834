"""`stepline text-base`: build, show, ask."""

import json

import pytest
from click.testing import CliRunner

from stepline.cli import main

ITEMS = [
    {"id": "tea", "title": "Tea", "steps": ["Boil the water.", "Pour the tea."], "source": "book"},
    {"id": "x"},
]


def run(*arguments):
    return CliRunner().invoke(main, ["text-base", *map(str, arguments)])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    (folder / "tea.json").write_text(json.dumps(ITEMS))
    done = run("build", folder / "tea.json", "--out", folder / "base", "--licence", "CC0")
    assert done.exit_code == 0, done.output
    return folder / "base"


def test_a_base_reports_what_it_holds_and_what_was_left_out(base):
    assert run("show", base).stdout.splitlines() == [
        "1 documents, 2 different steps, embedded by minilm",
        "2 steps read, 0 of them merged",
        "  tea.json: 1 documents, 2 steps (CC0)",
        "    left out: 1 (no steps), e.g. tea.json, 1: fields id",
    ]
    assert json.loads(run("show", base, "--json").stdout)["steps"] == 2


def test_a_text_is_answered_with_the_nearest_steps_and_where_they_are_from(base):
    first, second, third = run("ask", base, "pour some tea", "-k", "5").stdout.splitlines()
    assert first == "pour some tea:"
    assert second.endswith("Pour the tea.  [book, CC0]")
    assert third.endswith("Boil the water.  [book, CC0]")


def test_a_source_that_is_not_there_is_one_line_and_exit_code_1(tmp_path):
    done = run("build", tmp_path / "none.csv", "--out", tmp_path / "base")
    assert done.exit_code == 1
    assert done.stderr.startswith("stepline: ")
    assert "no such file or folder" in done.stderr
