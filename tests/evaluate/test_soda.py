import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_cases import case, needs_cases, needs_tables, predictions, references

from stepline.errors import DatasetError
from stepline.evaluate.events import event_times, segment_iou
from stepline.evaluate.meteor import MeteorScores
from stepline.evaluate.soda import backtracked_pairs, best_ordered_sum, soda

KINDS = ["a", "b", "c", "d"]
NUMBERS = st.one_of(st.floats(-1e4, 1e4), st.sampled_from([0.0, 5.0, 5.0]))
EVENTS = st.lists(
    st.tuples(NUMBERS, NUMBERS, st.sampled_from(["cut it", "", "é 🍕", "cut it"])), max_size=6
)


class Equal:
    """Stands in for METEOR: 1 for equal captions, .5 otherwise; asymmetric when the reference is
    longer."""

    def compare(self, pairs):
        scores = [1.0 if a[0] == b else 0.25 if len(a[0]) > len(b) else 0.5 for a, b in pairs]
        return MeteorScores(tuple(scores), 0.0)


@needs_tables
@needs_cases
@pytest.mark.parametrize("kind", KINDS)
def test_the_official_toy_is_met_with_and_without_a_missing_video(kind):
    wanted = case("soda")
    truth, given_events = references(wanted["gt"]), predictions(wanted["pred"]["results"])
    whole = soda(truth, given_events, kind=kind)
    facts = wanted["expected_[precision,recall,f1]"]
    assert (whole.precision, whole.recall, whole.f1) == pytest.approx(facts[kind])
    del given_events["vid3"]
    present = {id: events for id, events in truth.items() if id in given_events}
    part = soda(present, given_events, kind=kind)
    expected = facts[f"{kind}_missing_vid3"]
    assert (part.precision, part.recall, part.f1) == pytest.approx(expected)
    # ours: missing counts 0
    assert soda(truth, given_events, kind=kind).f1 == pytest.approx(part.f1 * 2 / 3)


def present_in(given_events):
    """Return the YouCook2 references that have predictions: the program leaves the others out."""
    truth = references(case("yc2_ground_truth"))
    return {id: events for id, events in truth.items() if id in given_events}


@needs_tables
@needs_cases
@pytest.mark.parametrize("kind", KINDS)
def test_every_youcook2_video_is_met(kind):
    wanted = case("yc2_soda")["fujiso"][kind]
    given_events = predictions(case("yc2_predictions")["results"])
    # the program stops at []
    given_events = {video: events for video, events in given_events.items() if events}
    scored = soda(present_in(given_events), given_events, kind=kind)
    overall = wanted["overall_precision_recall_f1"]
    assert (scored.precision, scored.recall, scored.f1) == pytest.approx(overall, abs=1e-7)
    for video, triple in wanted["per_video_precision_recall_f1"].items():
        assert scored.per_video[video] == pytest.approx(triple, abs=1e-7), video


@needs_tables
@needs_cases
def test_an_empty_list_scores_zero_as_vidchapters_patched_it():
    wanted = case("yc2_soda")["vidchapters_full_predictions"]["c"]
    given_events = predictions(case("yc2_predictions")["results"])
    scored = soda(present_in(given_events), given_events)
    assert scored.f1 == pytest.approx(wanted["overall_precision_recall_f1"][2], abs=1e-7)
    assert len(scored.per_video) == wanted["n_videos"]


@needs_cases
def test_pairings_and_totals_of_the_official_tables_are_met():
    for table in case("soda")["dp_only"]:
        scores = np.array(table["scores_gt_by_pred"])
        assert best_ordered_sum(scores) == pytest.approx(table["max"])
        assert backtracked_pairs(scores) == [tuple(pair) for pair in table["pairs"]]
    for video in case("soda")["per_video"].values():
        iou = np.array(video["iou_gt_by_pred"])
        assert backtracked_pairs(iou) == [tuple(pair) for pair in video["soda_d_pairs(gt,pred)"]]


def test_kind_d_is_the_overlap_alone():
    truth = {"v": [(0.0, 10.0, "cut"), (10.0, 20.0, "fry")]}
    scored = soda(truth, {"v": [(0.0, 5.0, "x")]}, kind="d")
    assert scored.per_video["v"] == pytest.approx((0.5, 0.25, 1 / 3))
    # a pair comes out even without overlap
    assert backtracked_pairs(np.zeros((2, 2))) == [(0, 0)]


@needs_tables
def test_the_prediction_is_meteors_reference_as_officially():
    truth, given_events = {"v": [(0.0, 10.0, "cut the onion")]}, {"v": [(0.0, 10.0, "cut")]}
    assert soda(truth, given_events, meteor=Equal()).f1 == pytest.approx(0.5)


@needs_tables
@pytest.mark.parametrize("kind", KINDS)
def test_perfect_is_one_and_empty_is_zero(kind):
    truth = {"v": [(0.0, 10.0, "cut the onion"), (10.0, 20.0, "fry it")]}
    truth["w"] = [(3.0, 4.0, "serve it now")]
    assert soda(truth, truth, kind=kind).f1 == pytest.approx(1.0, abs=1e-6)
    assert soda(truth, {"v": [], "w": []}, kind=kind).f1 == 0.0


@pytest.mark.parametrize(
    ("truth", "given_events", "message"),
    [
        ({"v": []}, {"v": [(0, 1, "a")]}, "no event"),
        ({"v": [(0, 1, "a")]}, {"v": [(0, math.nan, "a")]}, "v, predicted event 0.*not finite"),
        ({"v": [(0, math.inf, "a")]}, {"v": [(0, 1, "a")]}, "v, reference event 0.*not finite"),
    ],
)
def test_what_has_no_score_is_refused_by_name(truth, given_events, message):
    with pytest.raises(DatasetError, match=message):
        soda(truth, given_events, kind="d")


@needs_tables
def test_a_caption_beyond_meteor_names_its_video():
    long = "the pan " * 20_000
    with pytest.raises(DatasetError, match="clip7: captions of"):
        soda({"clip7": [(0, 1, long)]}, {"clip7": [(0, 1, long)]})


@needs_tables
@settings(max_examples=60, deadline=None)
@given(EVENTS.filter(len), EVENTS, st.sampled_from(KINDS))
def test_any_finite_events_have_a_score_between_zero_and_one(truth, given_events, kind):
    scored = soda({"v": truth}, {"v": given_events}, kind=kind, meteor=Equal())
    assert all(0.0 <= value <= 1.0 + 1e-9 for value in scored.per_video["v"])


def test_thousands_of_events_in_one_video_do_not_recurse_and_more_than_fit_are_refused():
    truth = {"v": [(float(second), second + 1.0, "cut") for second in range(2_000)]}
    assert soda(truth, truth, kind="d").f1 == pytest.approx(1.0, abs=1e-6)
    many = {"v": [(0.0, 1.0, "cut")] * 6_000}
    with pytest.raises(DatasetError, match="v: 6000 x 6000 segments"):
        soda(many, many, kind="d")


@needs_tables
def test_a_caption_in_another_script_is_reported_once_and_scores_nothing(caplog):
    foreign = {"v": [(0.0, 10.0, "切洋葱"), (10.0, 20.0, "炒鸡蛋")]}
    with caplog.at_level("WARNING"):
        assert soda(foreign, foreign).f1 == 0.0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no ASCII letter" in caplog.text


def test_reversed_and_empty_segments_overlap_nothing():
    first = event_times([(10.0, 5.0, ""), (5.0, 5.0, "")])
    second = event_times([(0.0, 20.0, ""), (5.0, 5.0, ""), (9.0, 4.0, "")])
    assert segment_iou(first, second) == pytest.approx(np.zeros((2, 3)))
