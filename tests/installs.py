"""Programs that run as in an installation of Stepline with some extras and nothing else."""

import functools
import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
PROGRAM = """
import json, re, sys
from importlib.machinery import PathFinder

MODULES, PACKAGES = map(set, json.loads(sys.argv.pop(1)))

class InstalledFinder:
    \"\"\"Finds what PathFinder does, but for what is not in the installation.\"\"\"

    @staticmethod
    def find_spec(name, path=None, target=None):
        is_missing = name.partition(".")[0] in MODULES
        return None if is_missing else PathFinder.find_spec(name, path, target)

    @staticmethod
    def find_distributions(*context):
        for found in PathFinder.find_distributions(*context):
            if re.sub("[-_.]+", "-", found.metadata["Name"]).lower() not in PACKAGES:
                yield found

sys.meta_path[sys.meta_path.index(PathFinder)] = InstalledFinder
from stepline.cli import main
main()
"""


def installed_packages(extras):
    """The distributions that `pip install stepline[EXTRAS]` brings, as far as they are here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"]]
    for extra in extras:
        needs += project["optional-dependencies"][extra]
    waiting = [Requirement(need) for need in needs]
    names = set()
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        if (name, *need.extras) in names:
            continue
        names.add((name, *need.extras))
        try:
            further = distribution(name).requires or ()
        except PackageNotFoundError:
            continue
        for text in further:
            requirement = Requirement(text)
            markers = [{"extra": extra} for extra in ("", *need.extras)]
            if requirement.marker is None or any(map(requirement.marker.evaluate, markers)):
                waiting.append(requirement)
    return {name for name, *_ in names}


@functools.cache
def missing_names(extras):
    """The modules and the packages that are here and would not be in such an installation."""
    installed = installed_packages(extras) | {"stepline", "pip", "setuptools"}
    modules, packages = set(), set()
    for module, owners in packages_distributions().items():
        names = set(map(canonicalize_name, owners))
        packages |= names - installed
        if not installed & names:
            modules.add(module)
    return sorted(modules), sorted(packages)


def install_command(extras, *arguments):
    """The command line of `stepline ARGUMENTS` in such an installation."""
    missing = json.dumps(missing_names(tuple(extras)))
    return [sys.executable, "-c", PROGRAM, missing, *map(str, arguments)]


def run_installed(extras, *arguments, **options):
    """Run a command as in such an installation."""
    program = install_command(extras, *arguments)
    return subprocess.run(
        program, env=ENVIRONMENT, capture_output=True, text=True, check=False, **options
    )
