"""Summaries by the number of labels: what the inputs hold and what is kept, not what is
measured."""

import json

import numpy as np
import pytest

from research.wys2.curves import (
    CODE_BINS,
    INPUT_NAMES,
    LABEL_COUNTS,
    CurveSize,
    first_labels,
    inputs_of,
    run_curves,
    segment_scores,
)
from research.wys2.uses import prepare

TINY = CurveSize(
    labelled=12,
    lessons=3,
    tests=2,
    detector_steps=2,
    steps=1,
    draws=1,
    summarizer_epochs=1,
    head_epochs=1,
)


@pytest.fixture(scope="module")
def uses(tmp_path_factory):
    return prepare(0, TINY, tmp_path_factory.mktemp("uses"))


def test_scores_are_there_where_someone_speaks(uses):
    video = uses.lessons[0]
    scores = segment_scores(video, uses.detector)
    for part, score in enumerate(scores.tolist()):
        speaks = any(
            sentence.span.start < 4 * part + 4 and sentence.span.end >= 4 * part
            for sentence in video.record.sentences
        )
        assert np.isfinite(score) == speaks
    assert np.abs(scores[np.isfinite(scores)]).max() <= 1.0


def test_inputs_differ_in_what_they_hold_and_agree_in_what_matters(uses):
    inputs = inputs_of(uses.lessons, uses)
    assert tuple(inputs) == INPUT_NAMES
    widths = {
        name: (one[0].pictures.shape[1], one[0].speech.shape[1]) for name, one in inputs.items()
    }
    assert widths == {
        "raw": (128, 0),
        "detector": (64, 0),
        "score": (CODE_BINS, 0),
        "raw and score": (128, CODE_BINS),
        "detector and score": (64, CODE_BINS),
    }
    for one in inputs.values():
        np.testing.assert_array_equal(one[0].matters, inputs["raw"][0].matters)


def test_labels_are_counted_in_segments(uses):
    samples = inputs_of(uses.lessons, uses)["raw"]
    total = sum(len(one.pictures) for one in samples)
    for count in (1, 16, total, total + 5):
        found = first_labels(samples, count, np.random.default_rng(0))
        assert sum(len(one.matters) for one in found) == min(count, total)


def test_a_world_is_run_once(tmp_path):
    result = tmp_path / "curves.json"
    run_curves([0], TINY, result, "here")
    rows = json.loads(result.read_text())["worlds"]["0"]
    assert [(row["input"], row["labels"]) for row in rows] == [
        (name, labels) for name in INPUT_NAMES for labels in LABEL_COUNTS
    ]
    assert all(0 <= row["F"] <= 1 for row in rows)
    before = result.stat().st_mtime_ns
    run_curves([0], TINY, result, "here")
    assert result.stat().st_mtime_ns == before
