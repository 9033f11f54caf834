"""What the tests of the caption metrics share: the official tables, and the shared cases in our form."""

from importlib.util import find_spec

import pytest

needs_tables = pytest.mark.skipif(
    find_spec("pycocoevalcap") is None, reason="METEOR's and the tokenizer's tables come with stepline[evaluate]"
)


def references(tree):
    """Turn {video: {timestamps, sentences}} into {video: [(start, end, caption)]}."""
    return {
        video: [(start, end, text) for (start, end), text in zip(entry["timestamps"], entry["sentences"], strict=True)]
        for video, entry in tree.items()
    }


def predictions(tree):
    """Turn {video: [{timestamp, sentence}]} into {video: [(start, end, caption)]}."""
    return {video: [(*entry["timestamp"], entry["sentence"]) for entry in entries] for video, entries in tree.items()}
