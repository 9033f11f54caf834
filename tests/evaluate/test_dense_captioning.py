import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_cases import (
    CASES,
    case,
    needs_cases,
    needs_tables,
    predictions,
    references,
    segments,
    values,
)

from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import bootstrap_scores, point_estimate
from stepline.evaluate.dense_captioning import CAPTION_METRICS, densevid, harmonic_mean_statistic

pytestmark = needs_tables

TOLERANCE = 1e-7
OURS = {"ROUGE_L": "ROUGE-L", "Rouge-L": "ROUGE-L", "Recall": "recall", "Precision": "precision"}
OURS |= {f"Bleu_{n}": f"BLEU-{n}" for n in range(1, 5)}
OURS |= {name: name for name in ("METEOR", "CIDEr", "F1")}
VERSIONS = {"pdvc_2018": "2018", "pdvc_2021": "2021", "vidchapters": "vidchapters"}
NUMBERS = st.one_of(st.floats(-1e4, 1e4), st.sampled_from([0.0, 5.0, 5.0]))
EVENTS = st.lists(
    st.tuples(NUMBERS, NUMBERS, st.sampled_from(["cut it", "", "é 🍕", "!!"])), max_size=5
)


def require_equal(scored, wanted):
    for theirs, row in wanted.items():
        ours = scored.per_tiou[OURS[theirs]]
        # VidChapters adds precision and recall by distance of starts.
        assert ours == pytest.approx(row[: len(ours)], abs=TOLERANCE), theirs


@needs_cases
@pytest.mark.parametrize("which", ["all_videos", "missing_vid3"])
def test_the_official_toy_is_met_in_every_version(which):
    tree = case("densevid_eval")
    truth, given_events = references(tree["gt"]), predictions(tree["pred"]["results"])
    if which == "missing_vid3":
        del given_events["vid3"]
    for name, wanted in tree["expected"][which].items():
        if "avg" not in name:
            version = next(VERSIONS[theirs] for theirs in VERSIONS if name.startswith(theirs))
            scored = truth
            if version == "vidchapters":  # it leaves out videos without predictions
                scored = {id: events for id, events in truth.items() if id in given_events}
            require_equal(densevid(scored, given_events, version=version), wanted)


@needs_cases
@pytest.mark.parametrize("theirs", VERSIONS)
def test_youcook2_is_met_over_all_and_video_by_video(theirs):
    wanted = case("yc2_densevid")[theirs]
    truth = references(case("yc2_ground_truth"))
    given_events = predictions(case("yc2_predictions")["results"])
    if theirs == "vidchapters":
        truth = {id: events for id, events in truth.items() if id in given_events}
    scored = densevid(truth, given_events, version=VERSIONS[theirs])
    require_equal(scored, wanted["overall"])
    for metric, mean in wanted["mean_over_first_4"].items():
        assert scored.mean[OURS[metric]] == pytest.approx(mean, abs=TOLERANCE)
    for video, metrics in wanted["per_video"].items():
        for metric in OURS.keys() & metrics.keys():
            if metrics[metric] and isinstance(metrics[metric][0], float):
                ours = scored.per_video[video][OURS[metric]]
                assert ours == pytest.approx(metrics[metric], abs=TOLERANCE), (video, metric)


@needs_cases
def test_an_empty_list_is_met_as_vidchapters_scores_it():
    tree = case("densevid_eval")
    given_events = {**predictions(tree["pred"]["results"]), "vid3": []}
    wanted = case("caption_edge_cases")["densevid_vidchapters_empty_pred"]
    scored = densevid(references(tree["gt"]), given_events, version="vidchapters")
    for metric, mean in wanted.items():
        assert scored.mean[OURS[metric]] == pytest.approx(mean, abs=TOLERANCE)


def test_a_prediction_counts_once_for_every_event_that_it_overlaps():
    truth = {"v": [(0.0, 10.0, "cut the onion"), (0.0, 9.0, "fry an egg")]}
    scored = densevid(truth, {"v": [(0.0, 10.0, "cut the onion")]}, tious=(0.5,))
    # 1 against the first, 0 against the second
    assert scored.per_tiou["ROUGE-L"] == pytest.approx((0.5,))


def test_captions_ask_for_the_threshold_and_segments_for_more():
    truth = {"v": [(0.0, 10.0, "cut the onion")]}
    same = 10.0 / (10.0 + 1e-8)  # the scorers' IoU of equal segments
    scored = densevid(truth, {"v": [(0.0, 10.0, "cut the onion")]}, tious=(same,))
    assert scored.per_tiou["METEOR"] == (1.0,)
    assert scored.per_tiou["precision"] == (0.0,)


def test_only_the_garbage_of_2018_shares_nothing_but_costs_recall():
    truth = {"v": [(0.0, 10.0, "cut the onion"), (50.0, 60.0, "fry it")]}
    given_events = {"v": [(0.0, 10.0, "cut the onion"), (90.0, 99.0, "serve it")]}
    old, ours = (densevid(truth, given_events, version=v) for v in ("2018", "stepline"))
    assert old.mean["METEOR"] < ours.mean["METEOR"]


def test_perfect_is_best_and_empty_is_zero():
    truth = {"v": [(0.0, 10.0, "cut the ripe onion now"), (10.0, 20.0, "fry it in hot oil")]}
    best, worst = densevid(truth, truth).mean, densevid(truth, {"v": []}).mean
    metrics = (*CAPTION_METRICS, "precision", "recall", "F1")
    wanted = dict.fromkeys(metrics, 1.0) | {"CIDEr": 10.0}
    assert {metric: best[metric] for metric in metrics} == pytest.approx(wanted, abs=1e-6)
    assert {worst[metric] for metric in metrics} == {0.0}


@settings(max_examples=40, deadline=None)
@given(EVENTS.filter(len), EVENTS)
def test_any_finite_events_have_a_score(truth, given_events):
    scored = densevid({"v": truth}, {"v": given_events})
    for metric, value in scored.mean.items():
        assert 0.0 <= value <= (10.0 if metric == "CIDEr" else 1.0) + 1e-6


REFERENCE = {
    "v_a": {"timestamps": [[0, 10], [20, 40]], "sentences": ["cut the onion", "stir the soup"]},
    "v_b": {"timestamps": [[5, 6], [9, 9]], "sentences": ["pour it", "serve the soup hot"]},
}
REFERENCE["v_a"]["duration"], REFERENCE["v_b"]["duration"] = 100, 50
PERFECT = segments(REFERENCE)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "yc2_val.json").write_text(json.dumps(REFERENCE))

    def scored(tree, **options):
        (tmp_path / "p.json").write_text(json.dumps(tree))
        return evaluate("youcook2", tmp_path / "p.json", tmp_path / "yc2_val.json", **options)

    return scored


def test_perfect_is_best_and_empty_is_0(run):
    perfect, empty = values(run(PERFECT)), values(run({}))
    # a segment without length overlaps nothing
    assert perfect["SODA_d"] == pytest.approx((1 + 0.5) / 2)
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
    both = harmonic_mean_statistic(np.array([[1.0], [0.0]]), np.array([[0.5], [0.5]]))
    assert point_estimate(both) == pytest.approx(0.5)
    assert both.score(np.array([[2.0, 0], [0, 2]])).tolist() == pytest.approx([2 / 3, 0])
    assert bootstrap_scores({"f": both}, draws=5)["f"].shape == (5,)


@needs_cases
@pytest.mark.skipif(
    not (CASES / "yc2_predictions.json").exists(), reason="the YouCook2 cases are not there"
)
@pytest.mark.parametrize(
    ("convention", "scores"),
    [("2018", (0.201922, 2.333605, 0.249385)), ("vidchapters", (0.267375, 2.745418, 0.293394))],
)
def test_it_equals_the_official_programs_on_youcook2(convention, scores):
    files = (CASES / "yc2_predictions.json", CASES / "yc2_ground_truth.json")
    found = values(evaluate("youcook2", *files, convention=convention))
    meteor, cider, bleu = scores
    assert found["METEOR"] == pytest.approx(meteor, abs=1e-4)
    assert found["CIDEr"] == pytest.approx(cider, abs=1e-5)
    assert found["BLEU-4"] == pytest.approx(bleu, abs=1e-5)
    # VidChapters' copy, an empty list scores 0
    assert found["SODA_c"] == pytest.approx(0.273225, abs=1e-4)
    for kind, f1 in {"a": 0.271045, "b": 0.348469, "c": 0.281505, "d": 0.515092}.items():
        # fujiso/SODA without the empty list
        assert found[f"SODA_{kind}"] == pytest.approx(f1 * 33 / 34, abs=1e-4)


def test_an_empty_caption_counts_as_a_prediction(run):
    full, half = dict(PERFECT), dict(PERFECT)
    half["v_a"] = [[*PERFECT["v_a"][0][:2], ""], PERFECT["v_a"][1]]
    without = {**full, "v_a": PERFECT["v_a"][1:]}
    assert values(run(half))["SODA_c precision"] < values(run(without))["SODA_c precision"]
    assert values(run(half))["SODA_d"] == pytest.approx(values(run(full))["SODA_d"])


def test_each_reason_for_unread_rows_and_predictions_beyond_the_limit_are_reported(run):
    rows = [*PERFECT["v_a"], [1, None, "x"], ["soon", 2, "x"], [3, 4, None]]
    notes = run({**PERFECT, "v_a": rows}).notes
    for start in (
        "2 of the predictions could not be read: its start and end",
        "1 of the predictions could not be read: has no text",
    ):
        assert any(note.startswith(start) for note in notes)
    (note,) = run({**PERFECT, "v_b": [[5, 6, "x"]] * 1001}).notes
    limit = "densevid takes the first 1000 predictions of a video, SODA all"
    assert note == f"{limit}: 1 videos have more, such as v_b"
