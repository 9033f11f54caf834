"""Access to the studio with the lowest Starlette that pyproject.toml allows. How a URL is made of the
Host header differs by version, and an environment may hold any that is allowed."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
ATTACKS = ROOT / "tests" / "studio" / "test_attacks.py"


def lowest_starlette():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = (
        one for one in map(Requirement, project["dependencies"]) if one.name == "starlette"
    )
    return next(rule.version for rule in wanted.specifier if rule.operator == ">=")


@pytest.mark.slow
def test_no_host_header_leads_past_the_login_with_the_lowest_starlette(tmp_path):
    version = lowest_starlette()
    target = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target]
    done = subprocess.run([*install, f"starlette=={version}"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot get starlette {version}: {done.stderr.strip()[-200:]}")

    paths = {**os.environ, "PYTHONPATH": f"{target}{os.pathsep}{ROOT}"}
    options = {"env": paths, "capture_output": True, "text": True, "cwd": ROOT, "timeout": 600}
    show = "import starlette; print(starlette.__version__, starlette.__file__)"
    shown = subprocess.run([sys.executable, "-c", show], **options, check=True)
    assert shown.stdout.startswith(f"{version} {target}")
    chosen = ["-k", "https or host or router", "-m", "not slow", "-p", "no:cacheprovider"]
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", *chosen, ATTACKS], **options)
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert "passed" in tests.stdout
