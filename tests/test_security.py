"""Every test that SECURITY.md names for a promise is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED_TEST.findall(TEXT)}))
def test_a_file_that_a_promise_names_is_there_with_the_tests_it_names(file):
    path = ROOT / file
    assert path.is_file()
    code = path.read_text(encoding="utf-8")
    names = {name for other, name in NAMED_TEST.findall(TEXT) if other == file and name}
    assert {name for name in names if f"\ndef {name}(" not in code} == set()


def test_every_promise_has_a_test():
    tables = [line for line in TEXT.splitlines() if line.startswith("| ")]
    promises = [line for line in tables if not re.match(r"\| (promise|who) \|", line)]
    lacking = []
    for line in promises:
        last_cell = line.rstrip("| ").rpartition("|")[2].strip()
        if not (NAMED_TEST.search(last_cell) or last_cell.startswith("same")):
            lacking.append(line)
    assert lacking == []
    assert len(promises) > 40
