from pathlib import Path

import pytest

from stepline.datasets import DATASETS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"


@pytest.mark.parametrize("name", DATASETS)
def test_the_page_states_every_row_as_the_table_does(name):
    line = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |"))
    row = DATASETS[name]
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert cells[1:2] + cells[3:] == [row.what, row.where, row.licence, row.reads, row.rejects]
    assert cells[2].replace("`", "") == ", ".join(row.files)
