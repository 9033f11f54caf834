"""The help that people read: commands in groups, whole sentences, an example first."""

import re
import shutil

import click
import pytest

from stepline.cli import COMMAND_GROUPS, COMMANDS, main

NAMES = sorted(command.name for command in COMMANDS)
HEADINGS = ["Use", "Correct and search", "Data sets", "Train"]
# what CLARITY.md's readers stumbled over: none of it comes back
RIDDLES = "Tell what|Do again|Hear and look|Write also|Of them|beside|Their numbers".split("|")


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch):
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    assert shutil.get_terminal_size().columns == 80


def groups(group=main, names=()):
    """Every group and command: its words -> itself."""
    found = {names: group}
    for name, command in getattr(group, "commands", {}).items():
        found |= groups(command, (*names, name))
    return found


ALL = groups()


def test_the_commands_are_in_four_groups(stepline):
    text = stepline("--help").stdout
    assert list(COMMAND_GROUPS) == HEADINGS
    assert [heading for heading in HEADINGS if f"\n{heading}:\n" in text] == HEADINGS
    assert sorted(main.commands) == NAMES
    listed = re.findall(r"^  ([a-z-]+)  +[A-Z]", text, re.MULTILINE)
    assert sorted(set(NAMES) & set(listed)) == NAMES


def test_the_first_thing_after_the_summary_is_an_example(stepline):
    text = stepline("--help").stdout
    assert text.index("stepline steps my_video.mp4") < text.index("Options:")


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_a_help_has_whole_sentences_in_80_columns_and_its_example_first(names, stepline):
    text = stepline(*names, "--help").stdout
    lists = text.partition("\nOptions:\n")[2]
    assert not [row for row in lists.splitlines() if row.endswith("...")]
    command = ALL[names]
    summary = (command.help or "").partition("\n\n")[0].replace("\b", "").strip()
    assert "\n" not in summary
    assert re.fullmatch(r"[A-Z].{10,}\.", summary), summary
    assert not [riddle for riddle in RIDDLES if riddle in text]
    # examples are copied as they are, however long
    rows = [row for row in text.splitlines() if not row.startswith("    stepline ")]
    assert max(map(len, rows)) <= 80
    if not names or not isinstance(command, click.Group):
        assert text.split("\n\n")[2].strip().startswith("Example:")
