"""What the pages say of the code: its layout, and where things are found."""

import ast
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "design.md").read_text()
PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")
FILES = [path for room in ("stepline", "lab", "tests") for path in (ROOT / room).rglob("*.py")]


def places():
    """Every `file.py:name` of the page, as (path, name)."""
    found = []
    for file, name in PLACE.findall(PAGE):
        path = ROOT / file
        if not path.is_file():
            path = ROOT / "stepline" / file
        found.append((path, name))
    return found


def names(path):
    """Every name that a file defines, methods and fields as Class.name."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        found |= {
            name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
        }
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [
                getattr(part, "name", None) or ast.unparse(getattr(part, "target", part))
                for part in node.body
            ]
            found |= {f"{node.name}.{name}" for name in inner}
    return found


@pytest.mark.parametrize(("path", "name"), sorted(set(places())), ids=str)
def test_a_thing_is_where_the_page_says(path, name):
    assert name in names(path)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_a_name_of_a_page_is_in_its_file(page):
    for file, name in PLACE.findall(page.read_text()):
        found = [path for path in FILES if f"/{path}".endswith(f"/{file}")]
        assert any(name in names(path) for path in found), f"{file}:{name}"


def test_every_package_is_in_the_layout():
    for package in {path.parent for path in (ROOT / "stepline").rglob("*.py")}:
        assert f"\n{package.relative_to(ROOT).as_posix()}/\n" in PAGE


def test_the_pages_made_from_the_code_are_up_to_date(capsys):
    pages = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    assert pages["generate"](check=True) == 0, capsys.readouterr().err
