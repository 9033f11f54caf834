"""The shared metric cases, facts obtained by running the official evaluators, and the captions'
official tables."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from stepline.evaluate.bootstrap import point_estimate

CASES = Path(__file__).resolve().parents[2] / ".." / "shared" / "metric_cases"
needs_cases = pytest.mark.skipif(
    not CASES.is_dir(), reason="the shared metric cases are not beside the project"
)
needs_tables = pytest.mark.skipif(
    find_spec("pycocoevalcap") is None,
    reason="METEOR's and the tokenizer's tables come with stepline[evaluate]",
)


def case(name):
    path = CASES / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def values(scores):
    """Metric -> value of a system's scores."""
    return {name: point_estimate(value) for name, value in scores.statistics.items()}


def segments(reference):
    """The predictions that are YouCook2's reference itself: id -> [start, end, text]."""
    return {
        id: [[*s, text] for s, text in zip(v["timestamps"], v["sentences"], strict=True)]
        for id, v in reference.items()
    }


def references(tree):
    """Turn {video: {timestamps, sentences}} into {video: [(start, end, caption)]}."""
    return {video: [tuple(row) for row in rows] for video, rows in segments(tree).items()}


def predictions(tree):
    """Turn {video: [{timestamp, sentence}]} into {video: [(start, end, caption)]}."""
    return {
        video: [(*entry["timestamp"], entry["sentence"]) for entry in entries]
        for video, entries in tree.items()
    }
