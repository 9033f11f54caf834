"""Programs that run as in an installation of Stepline with some extras and nothing else."""

import functools
import json
import os
import re
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
"""
RUN_ONE = "main()"
RUN_ALL = """
import contextlib
from click.testing import CliRunner

results = []
for folder, arguments in json.loads(sys.argv[1]):
    with contextlib.chdir(folder):
        result = CliRunner().invoke(main, arguments)
    results.append((result.exit_code, result.stderr))
print(json.dumps(results))
"""
ROW = re.compile(r"\| `pip install -c constraints.txt (?:\.|'stepline\[(\w+)\]')` \| (.*) \|")


def documented_installs():
    """The extra that docs/install.md names for each command, "" for none."""
    extras = {}
    for row in ROW.finditer((ROOT / "docs" / "install.md").read_text()):
        for command in re.findall(r"`([\w -]+)`", row[2]):
            extras[command] = row[1] or ""
    return extras


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


def install_command(extras, *arguments, program=RUN_ONE):
    """The command line of `stepline ARGUMENTS` in such an installation."""
    missing = json.dumps(missing_names(tuple(extras)))
    return [sys.executable, "-c", PROGRAM + program, missing, *map(str, arguments)]


def run_installed(extras, *arguments, **options):
    """Run a command as in such an installation."""
    command = install_command(extras, *arguments)
    return subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False, **options
    )


def run_all_installed(extras, calls):
    """Run commands in one process as in such an installation: (folder, arguments) of each ->
    (exit code, standard error) of each."""
    command = install_command(extras, json.dumps(calls), program=RUN_ALL)
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
