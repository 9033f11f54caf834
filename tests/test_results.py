"""The table of docs/results.md: every row has its number and a command or a page that exists."""

import re
import shlex

import click
import pytest
from structure_script import ROOT

from stepline.cli import main

PAGE = (ROOT / "docs" / "results.md").read_text()


def rows():
    """Return the cells of each row of the table."""
    table = re.search(r"\| what \|.*?\n\n", PAGE, re.DOTALL)[0]
    lines = table.strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ROWS = rows()


def test_the_table_has_its_four_columns():
    assert len(ROWS) > 40
    assert {len(row) for row in ROWS} == {4}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_has_a_number_and_says_how_to_measure_it(row):
    assert re.search(r"\d", row[1])
    place = row[-1]
    script = re.search(r"`python (benchmarks/\w+\.py)", place)
    tests = re.search(r"`pytest (tests/[\w/]+(?:\.py)?)", place)
    if script:
        assert (ROOT / script[1]).is_file()
    elif tests:
        assert (ROOT / tests[1]).exists()
    elif place.startswith("`stepline"):
        words = shlex.split(place.strip("`"))[1:]
        command = main
        while isinstance(command, click.Group) and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        assert command is not main
    else:
        assert place.startswith(("the same", "[", "`python -m research ")), place
