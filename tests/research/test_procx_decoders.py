"""Choices of proposals compared: what each is given and what is kept, not what is measured."""

import json

import numpy as np
import pytest

from research.procx.decoders import (
    CHOICE_SELECTORS,
    COVER_COSTS,
    DecoderStudy,
    as_markdown,
    place_scores,
    placed,
    stretched,
)
from research.procx.rows import ProcxSize
from stepline.models.procx.batch import StepSample
from stepline.models.procx.inference import Proposals

TINY = ProcxSize(
    narrated=3,
    captioned=4,
    withheld=2,
    rows=16,
    width=16,
    heads=2,
    layers=1,
    queries=30,
    pretraining_steps=1,
    finetuning_steps=1,
    steps=1,
)


def test_stretched_steps_meet_half_way():
    spans = np.array([[12.0, 18.0], [2.0, 8.0]])
    np.testing.assert_array_equal(stretched(spans, 30.0), [[0.0, 10.0], [10.0, 30.0]])
    overlapping = np.array([[0.0, 10.0], [4.0, 20.0]])
    np.testing.assert_array_equal(stretched(overlapping, 20.0), [[0.0, 7.0], [7.0, 20.0]])
    assert stretched(np.zeros((0, 2)), 20.0).shape == (0, 2)


def test_every_choice_sees_the_same_proposals():
    boxes = np.array([[0.0, 9.0], [11.0, 20.0], [1.0, 10.0]])
    proposals = Proposals(20.0, np.array([0.9, 0.8, 0.7]), boxes, np.eye(4)[2] * 9)
    sample = StepSample(
        "a", np.zeros((3, 2), np.float32), 20.0, ((0.0, 10.0), (10.0, 20.0)), ("x", "y")
    )
    given = placed([sample], [proposals])
    assert len(given) == 3 + 3 * len(COVER_COSTS)
    assert given["surest"]["a"] == [(0.0, 9.0, ""), (11.0, 20.0, "")]
    assert given["surest, stretched"]["a"] == [(0.0, 10.0, ""), (10.0, 20.0, "")]
    whole = given["tile of true count, cover 4"]["a"]
    assert (whole[0][0], whole[0][1], whole[1][1]) == (0.0, whole[1][0], 20.0)
    truth = {"a": [(0.0, 10.0, "x"), (10.0, 20.0, "y")], "b": [(0.0, 20.0, "z")]}
    more = {name: each | {"b": [(0.0, 20.0, "")]} for name, each in given.items()}
    scores = place_scores(truth, more["surest, stretched"], more["surest"])
    assert scores["SODA-D"] == pytest.approx(100.0)
    assert scores["gain"] == pytest.approx(5.0)  # .9 in one of two videos
    assert scores["low"] < 0 < scores["high"]


def test_a_network_is_scored_once(tmp_path):
    result = tmp_path / "decoders.json"
    study = DecoderStudy(tmp_path, result, "here", TINY)
    study.run("tasty", 0, 0)
    (network,) = json.loads(result.read_text())["networks"]
    assert set(network["described"]) == {*CHOICE_SELECTORS, "oracle"}
    assert set(network["described"]["tile, cover 1"]) == {"SODA-C", "SODA-D", "texts", "steps"}
    before = result.stat().st_mtime_ns
    study.run("tasty", 0, 0)
    assert result.stat().st_mtime_ns == before
    assert "| tile, cover 1 |" in as_markdown(json.loads(result.read_text()))
    # another arm's network is another one
    other = DecoderStudy(tmp_path, result, "here", TINY, arm="vanilla attention", patience=1)
    other.run("tasty", 0, 0)
    arms = [network["arm"] for network in json.loads(result.read_text())["networks"]]
    assert arms == ["ProcX", "vanilla attention"]
