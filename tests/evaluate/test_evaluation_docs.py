import re
import shlex
from pathlib import Path

import pytest

from research.cli import research
from stepline.cli import main
from stepline.evaluate.benchmarks import BENCHMARKS

ROOT = Path(__file__).resolve().parents[2]
REPRODUCE, EVALUATION = ROOT / "docs" / "reproduce.md", ROOT / "docs" / "evaluation.md"


def rows():
    lines = REPRODUCE.read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] != "item"]


def commands():
    """The commands that a reader can run: those in the third column that are not marked later."""
    for row in rows():
        if "later" not in row[2]:
            yield from re.findall(r"`(stepline [^`]+|python [^`]+)`", row[2])


def shown_commands():
    yield from re.findall(r"`(stepline evaluate[^`]*)`", EVALUATION.read_text())
    yield from re.findall(r"^    \$ (stepline .+)$", EVALUATION.read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", sorted({*commands(), *shown_commands()}))
def test_every_command_that_is_not_for_later_parses(line):
    program, *words = shlex.split(line)
    if program == "python" and words[:2] == ["-m", "research"]:
        research.commands[words[2]].make_context(words[2], words[3:])
        return
    if program == "python":
        assert (ROOT / words[0]).is_file()
        return
    if words == ["evaluate", "BENCHMARK", "--predictions", "P", "--reference", "R"]:
        return
    context = main.commands[words[0]].make_context(words[0], words[1:])
    benchmark, convention = context.params.get("benchmark"), context.params.get("convention")
    if benchmark is not None:
        assert convention is None or convention in BENCHMARKS[benchmark].conventions


@pytest.mark.parametrize(("paper", "tables", "figures"), [("A", 9, 8), ("B", 5, 17), ("C", 3, 5)])
def test_every_table_and_figure_of_the_papers_has_a_row(paper, tables, figures):
    part = REPRODUCE.read_text().split(f"\n## {paper}. ")[1].split("\n## ")[0]
    names = [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| ")]
    held = {name.rstrip("ab") for name in names}
    for first, last in re.findall(r"Figures (\d+) to (\d+)", part):
        held |= {f"Figure {n}" for n in range(int(first), int(last) + 1)}
    assert {f"Table {n}" for n in range(1, tables + 1)} <= held
    assert {f"Figure {n}" for n in range(1, figures + 1)} <= held


def test_rows_are_whole():
    assert {len(row) for row in rows()} == {6}


def test_the_page_holds_the_exact_rule_of_every_protocol():
    page = EVALUATION.read_text()
    for benchmark in BENCHMARKS.values():
        for convention in benchmark.conventions.values():
            assert convention.rule in page
