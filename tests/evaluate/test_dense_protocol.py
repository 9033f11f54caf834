import json

import numpy as np
import pytest
from metric_cases import CASES, needs_cases

from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import resample, score
from stepline.evaluate.dense_captioning import HarmonicMean

REFERENCE = {
    "v_a": {"duration": 100, "timestamps": [[0, 10], [20, 40]], "sentences": ["cut the onion", "stir the soup"]},
    "v_b": {"duration": 50, "timestamps": [[5, 6], [9, 9]], "sentences": ["pour it", "serve the soup hot"]},
}
PERFECT = {id: [[*s, t] for s, t in zip(v["timestamps"], v["sentences"], strict=True)] for id, v in REFERENCE.items()}


@pytest.fixture
def run(tmp_path):
    (tmp_path / "yc2_val.json").write_text(json.dumps(REFERENCE))

    def scored(tree, **options):
        (tmp_path / "p.json").write_text(json.dumps(tree))
        return evaluate("youcook2", tmp_path / "p.json", tmp_path / "yc2_val.json", **options)

    return scored


def values(scores):
    return {name: score(value) for name, value in scores.statistics.items()}


def test_perfect_is_best_and_empty_is_0(run):
    perfect, empty = values(run(PERFECT)), values(run({}))
    assert perfect["SODA_d"] == pytest.approx((1 + 0.5) / 2)  # a segment without length overlaps nothing
    assert set(empty.values()) == {0.0}
    assert all(perfect[name] > 0 for name in perfect if not name.startswith("BLEU"))
    assert run({}).missing == ("v_a", "v_b")


def test_ids_are_matched_with_and_without_pdvcs_prefix(run):
    plain = {id[2:]: rows for id, rows in PERFECT.items()}
    assert values(run(plain)) == values(run(PERFECT))
    with pytest.raises(DatasetError, match="one video"):
        run({**plain, **PERFECT})


def test_each_version_treats_missing_videos_as_its_program(run):
    one = {"v_a": PERFECT["v_a"]}
    assert values(run(one))["SODA_d"] == pytest.approx(0.5)
    assert values(run(one, convention="2018"))["SODA_d"] == pytest.approx(1)
    assert values(run(one, convention="2018"))["recall"] == pytest.approx(0.5)
    assert values(run(one, convention="vidchapters"))["recall"] == pytest.approx(1)
    assert run(one, convention="vidchapters").missing == ("v_b",)


def test_the_harmonic_mean_is_of_means_and_resamples():
    both = HarmonicMean(np.array([[1.0], [0.0]]), np.array([[0.5], [0.5]]), np.ones(2))
    assert score(both) == pytest.approx(0.5)
    assert both(np.array([[2.0, 0], [0, 2]])).tolist() == pytest.approx([2 / 3, 0])
    assert resample({"f": both}, draws=5)["f"].shape == (5,)


@needs_cases
@pytest.mark.skipif(not (CASES / "yc2_predictions.json").exists(), reason="the YouCook2 cases are not there")
@pytest.mark.parametrize(("convention", "version"), [("2018", "pdvc_2018"), ("vidchapters", "vidchapters")])
def test_it_equals_the_official_programs_on_youcook2(convention, version):
    found = values(
        evaluate("youcook2", CASES / "yc2_predictions.json", CASES / "yc2_ground_truth.json", convention=convention)
    )
    assert found["METEOR"] == pytest.approx({"pdvc_2018": 0.201922, "vidchapters": 0.267375}[version], abs=1e-4)
    assert found["CIDEr"] == pytest.approx({"pdvc_2018": 2.333605, "vidchapters": 2.745418}[version], abs=1e-5)
    assert found["BLEU-4"] == pytest.approx({"pdvc_2018": 0.249385, "vidchapters": 0.293394}[version], abs=1e-5)
    assert found["SODA_c"] == pytest.approx(0.273225, abs=1e-4)  # VidChapters' copy, an empty list scores 0
    for kind, f1 in {"a": 0.271045, "b": 0.348469, "c": 0.281505, "d": 0.515092}.items():
        assert found[f"SODA_{kind}"] == pytest.approx(f1 * 33 / 34, abs=1e-4)  # fujiso/SODA without the empty list


def test_an_empty_caption_counts_as_a_prediction(run):
    full, half = dict(PERFECT), dict(PERFECT)
    half["v_a"] = [[*PERFECT["v_a"][0][:2], ""], PERFECT["v_a"][1]]
    without = {**full, "v_a": PERFECT["v_a"][1:]}
    assert values(run(half))["SODA_c precision"] < values(run(without))["SODA_c precision"]
    assert values(run(half))["SODA_d"] == pytest.approx(values(run(full))["SODA_d"])


def test_each_reason_for_unread_rows_and_predictions_beyond_the_limit_are_told(run):
    rows = [*PERFECT["v_a"], [1, None, "x"], ["soon", 2, "x"], [3, 4, None]]
    notes = run({**PERFECT, "v_a": rows}).notes
    assert any(note.startswith("2 of the predictions could not be read: its start and end") for note in notes)
    assert any(note.startswith("1 of the predictions could not be read: has no text") for note in notes)
    notes = run({**PERFECT, "v_b": [[5, 6, "x"]] * 1001}).notes
    assert notes == ("densevid takes the first 1000 predictions of a video, SODA all: 1 videos have more, such as v_b",)
