"""What docs/design.md says of the code: its layout, where things are found, and the shape that it
keeps."""

import ast
import dataclasses
import json
import re
import runpy
from pathlib import Path

import pytest
from made_once import made_once
from structure_script import (
    import_arrows,
    plain_code,
    private_names,
    references,
    source_files,
    structure,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "design.md").read_text()


CONTENT = json.loads(structure.BOUNDS_PATH.read_text())
BOUNDS = CONTENT["bounds"]
MAX_PRIVATE_ACCESSES = 40  # of tests to private names of the package; it may only fall
# Files that were dense when the bounds were set, and those that moved then, which come first.
NOT_PLAIN = CONTENT["not_plain"] + CONTENT["moved_not_plain"]


@pytest.fixture(scope="session")
def measures(tmp_path_factory):
    """What structure.py counts: 15 CPU s, so that all workers share it."""

    def write(folder):
        measures = structure.measure(ROOT)
        (folder / "measures.json").write_text(json.dumps(dataclasses.asdict(measures)))

    folder = made_once(tmp_path_factory, "measures", write)
    return structure.Measures(**json.loads((folder / "measures.json").read_text()))


@pytest.fixture(scope="module")
def modules():
    return source_files.read_sources(ROOT, "stepline")


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


def walked_calls():
    """The calls of "Five walks": (file:name of the caller, file:name that it calls)."""
    part = PAGE.split("\n## Five walks\n")[1].split("\n## ")[0]
    calls, callers = [], {}
    for indent, place in re.findall(r"^( *)- `([\w/.]+:[\w.]+)`", part, re.MULTILINE):
        callers[len(indent)] = place
        if indent:
            calls.append((callers[len(indent) - 2], place))
    return calls


def module_of(place):
    path = Path("stepline") / place.split(":")[0]
    return ".".join((path.parent if path.stem == "__init__" else path.with_suffix("")).parts)


@pytest.fixture(scope="module")
def import_pairs(modules):
    return {(arrow.source, arrow.target) for arrow in import_arrows.arrows(modules)}


@pytest.mark.parametrize(("caller", "callee"), walked_calls())
def test_a_walk_only_goes_down(caller, callee, import_pairs):
    for place in (caller, callee):
        file, name = place.split(":")
        assert name in names(ROOT / "stepline" / file)
    start, end = module_of(caller), module_of(callee)
    packages = {end.rsplit(".", cut)[0] for cut in range(end.count("."))} | {end}
    assert start in packages or any((start, package) in import_pairs for package in packages)
    layers = import_arrows.read_layers(ROOT)
    assert (
        import_arrows.floor_of(start, layers).number <= import_arrows.floor_of(end, layers).number
    )


def test_every_package_is_in_the_layout():
    for package in {path.parent for path in (ROOT / "stepline").rglob("*.py")}:
        assert f"\n{package.relative_to(ROOT).as_posix()}/\n" in PAGE


def test_every_module_is_in_a_layer(modules):
    layers = import_arrows.read_layers(ROOT)
    without = {name for name in modules if import_arrows.floor_of(name, layers) is None}
    assert without == {"stepline", "stepline.__main__", "stepline.version"}


def test_the_pages_made_from_the_code_are_up_to_date(measures, capsys):
    pages = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    columns = structure.read_columns(pages["MEASURES_BEFORE"]) | {"now": measures}
    # as structure.py prints them, without a second count
    pages["generate"].__globals__["measures"] = lambda: structure.table(columns) + "\n"
    assert pages["generate"](check=True) == 0, capsys.readouterr().err


@pytest.mark.parametrize("row", BOUNDS)
def test_a_measure_stays_within_its_bound(measures, row):
    """Where this fails, `python benchmarks/structure.py --show ROW` lists the places."""
    if row == structure.COMMENT_ROW:
        assert measures.numbers[row] >= BOUNDS[row]
    else:
        assert measures.numbers[row] <= BOUNDS[row]


def test_tests_take_hardly_a_private_name_of_the_package(modules):
    names = set()
    for source in modules.values():
        names |= private_names.private_names(source)
    places = []
    for source in source_files.read_sources(ROOT, "tests").values():
        places += private_names.private_accesses(source, names)
    assert len(places) == MAX_PRIVATE_ACCESSES, "\n".join(places)


@pytest.mark.parametrize("row", BOUNDS)
def test_a_bound_is_no_looser_than_it_must_be(measures, row):
    """Where this fails, `python benchmarks/structure.py --tighten` lowers the bounds."""
    looseness = BOUNDS[row] - measures.numbers[row]
    if row == structure.COMMENT_ROW:
        looseness = -looseness
    assert looseness <= structure.slack(BOUNDS[row])


@pytest.mark.parametrize("row", CONTENT["laboratory"])
def test_a_measure_of_the_laboratory_stays_within_its_bound(measures, row):
    """Where it is looser than it must be, `python benchmarks/structure.py --tighten` lowers it."""
    bound = CONTENT["laboratory"][row]
    assert bound - structure.slack(bound) <= measures.laboratory[row] <= bound


def test_every_new_or_moved_file_is_plain(modules):
    departures = [
        departure
        for source in modules.values()
        if source.path not in NOT_PLAIN
        for departure in plain_code.departures(source)
    ]
    assert departures == []


def test_few_files_are_plain_and_still_listed_as_not(measures):
    plain_now = set(NOT_PLAIN) - set(measures.places["files that are not plain"])
    assert len(plain_now) <= structure.slack(len(NOT_PLAIN))


@pytest.mark.parametrize(
    "script",
    [structure, import_arrows, plain_code, private_names, references, source_files],
    ids=str,
)
def test_what_measures_is_itself_plain(script):
    path = Path(script.__file__)
    source = source_files.SourceFile(path.name, script.__name__, path.read_text())
    assert list(plain_code.departures(source)) == []
    assert plain_code.long_functions(source) == []


def test_the_package_does_not_import_its_laboratory(modules):
    for source in modules.values():
        for arrow in import_arrows.imports(source, modules):
            assert arrow.target.split(".")[0] != "research", arrow
