"""pyproject.toml and the constraints agree: each extra can be installed with the constraints that
it is to take."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# extra -> its own file; of all others constraints.txt
CONSTRAINTS = {"whisperx": "constraints-whisperx.txt"}
MINORS = range(9, 15)
EXTRAS = ["", *PROJECT["optional-dependencies"]]


def pins(file):
    """Return package -> its constraint in a file."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / file).read_text().splitlines())
    return {canonicalize_name(found.name): found for found in map(Requirement, filter(None, lines))}


def requirements(extra):
    """Return what an extra asks for, the requirements of all installations included."""
    asked = PROJECT["optional-dependencies"].get(extra, [])
    return [Requirement(text) for text in (*PROJECT["dependencies"], *asked)]


def declared():
    """Return the Python versions, 3.x, that the project declares."""
    allowed = SpecifierSet(PROJECT["requires-python"])
    return [f"3.{minor}" for minor in MINORS if allowed.contains(f"3.{minor}.5")]


def version(pin):
    (only,) = pin.specifier
    assert only.operator == "==", f"{pin}: pin one version"
    return only.version


@pytest.mark.parametrize("extra", EXTRAS, ids=[extra or "none" for extra in EXTRAS])
def test_the_constraints_admit_what_an_extra_asks_for(extra):
    pinned = pins(CONSTRAINTS.get(extra, "constraints.txt"))
    for asked in requirements(extra):
        pin = pinned.get(canonicalize_name(asked.name))
        assert pin is None or asked.specifier.contains(version(pin)), f"{asked} against {pin}"


def test_whisperx_needs_its_own_constraints():
    """The day that it fits constraints.txt, the second file is to go."""
    pinned = pins("constraints.txt")
    refused = []
    for asked in requirements("whisperx"):
        pin = pinned.get(canonicalize_name(asked.name))
        if pin and not asked.specifier.contains(version(pin)):
            refused.append(str(asked))
    assert refused == ["huggingface-hub<1", "torch<2.9,>=2.8"]


@pytest.mark.parametrize("python", declared())
def test_every_pin_counts_for_every_python_that_the_project_declares(python):
    environment = {"python_version": python, "python_full_version": f"{python}.5"}
    for file in ("constraints.txt", "constraints-whisperx.txt"):
        for name, pin in pins(file).items():
            assert pin.marker is None or pin.marker.evaluate(environment), (
                f"{file}: {name} floats on Python {python}"
            )


def installed():
    """Yield the pins of constraints.txt whose package is here at that version, with what it says of
    itself."""
    for name, pin in pins("constraints.txt").items():
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        if found.version.partition("+")[0] == version(pin):
            yield name, found


def test_what_is_pinned_runs_on_the_least_python_and_wants_no_other_pin():
    pinned, count = pins("constraints.txt"), 0
    for name, found in installed():
        allowed = SpecifierSet(found.metadata.get("Requires-Python") or "")
        assert allowed.contains(f"{declared()[0]}.5"), (
            f"{name} {found.version} needs Python {allowed}"
        )
        for asked in map(Requirement, found.requires or ()):
            pin = pinned.get(canonicalize_name(asked.name))
            if pin is None or (asked.marker and not asked.marker.evaluate({"extra": ""})):
                continue
            assert asked.specifier.contains(version(pin), prereleases=True), (
                f"{name} asks for {asked}, against {pin}"
            )
            count += 1
    assert count > 20


def test_the_readme_and_the_tools_name_the_same_python():
    least = declared()[0]
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["mypy"]["python_version"] == least
    assert tools["ruff"]["target-version"] == f"py{least.replace('.', '')}"
    assert re.search(r"Python (3\.\d+) or newer", (ROOT / "README.md").read_text())[1] == least
