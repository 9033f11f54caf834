"""What docs/design.md says of the code: its layout, where things are found, and the shape that it
keeps."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "design.md").read_text()


@pytest.fixture(scope="module")
def structure():
    spec = importlib.util.spec_from_file_location("structure", ROOT / "benchmarks" / "structure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def modules(structure):
    return structure.trees(ROOT / "stepline")


def answers():
    """The rows of "Where do I find ...": (question, file:name)."""
    part = PAGE.split("\n## Where do I find ...\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in part.splitlines()
        if line.startswith("| ")
    ]
    return [(row[0], place) for row in rows for place in re.findall(r"`([\w/.]+:[\w.]+)`", row[1])]


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


def test_thirty_questions_are_answered():
    assert len({question for question, _ in answers()}) >= 30


@pytest.mark.parametrize(("question", "place"), answers())
def test_a_thing_is_where_the_page_says(question, place):
    file, name = place.split(":")
    assert name in names(ROOT / file), question


def test_every_package_is_in_the_layout():
    for package in {path.parent for path in (ROOT / "stepline").rglob("*.py")}:
        assert f"\n{package.relative_to(ROOT).as_posix()}/\n" in PAGE


def test_no_modules_import_each_other_in_a_circle(structure, modules):
    assert structure.circles(modules) == []


def test_no_class_is_named_by_a_bare_participle(structure, modules):
    assert structure.participles(modules) == set()


def test_a_class_name_means_one_thing(structure, modules):
    assert len(structure.repeated_classes(modules)) <= 20


def test_the_package_does_not_import_its_laboratory(structure, modules):
    for name, tree in modules.items():
        assert not {used for used in structure.imports(tree) if used.split(".")[0] == "research"}, (
            name
        )
