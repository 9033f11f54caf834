"""The shared metric cases, facts obtained by running the official evaluators, and the captions'
official tables."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

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


def references(tree):
    """Turn {video: {timestamps, sentences}} into {video: [(start, end, caption)]}."""
    return {
        video: [
            (start, end, text)
            for (start, end), text in zip(entry["timestamps"], entry["sentences"], strict=True)
        ]
        for video, entry in tree.items()
    }


def predictions(tree):
    """Turn {video: [{timestamp, sentence}]} into {video: [(start, end, caption)]}."""
    return {
        video: [(*entry["timestamp"], entry["sentence"]) for entry in entries]
        for video, entries in tree.items()
    }
