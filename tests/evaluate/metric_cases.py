"""The shared metric cases: facts obtained by running the official evaluators."""

import json
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parents[2] / ".." / "shared" / "metric_cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the shared metric cases are not beside the project")


def case(name):
    path = CASES / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}
