import csv
import json

import numpy as np
import pytest
from metric_cases import case, needs_cases

from stepline.datasets.htstep import ArticleStep
from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import point_estimate, resample
from stepline.evaluate.htstep import (
    TIOU_THRESHOLDS,
    AnnotatedVideo,
    PredictedSegments,
    candidate_steps,
    grounding_map,
    without_duplicates,
)

COLUMNS = ("video-id", "t-start", "t-end", "label", "score")
TAXONOMY = [
    ("0", "Make A", "none", "cut"),
    ("1", "Make A", "none", "stir"),
    ("2", "Make B", "A", "pour"),
    ("3", "Make B", "B", "mix"),
]
SHOWN = [
    {"id": 0, "segment": [10, 20]},
    {"id": 1, "segment": [30, 40]},
    {"id": 0, "segment": [50, 60]},
]
TRUTH = {
    "v1": {"subset": "val_seen", "activity": "Make A", "annotations": SHOWN},
    "v2": {"subset": "test", "activity": "Make B", "annotations": [{"id": 2, "segment": [0, 8]}]},
}


def release(folder, truth, taxonomy):
    (folder / "annotations.json").write_text(json.dumps(truth))
    with (folder / "taxonomy.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["global_step_index", "activity", "variation", "headline"])
        writer.writerows(taxonomy)
    return folder


def table(folder, rows):
    with (folder / "p.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return folder / "p.csv"


@pytest.fixture
def folder(tmp_path):
    return release(tmp_path, TRUTH, TAXONOMY)


def official(folder, facts, truth, predictions):
    rows = [
        (r["global_step_index"], r["activity"], r["variation"], r["headline"])
        for r in facts["taxonomy"]
    ]
    release(folder, truth, rows)
    return evaluate(
        "ht-step", table(folder, [[row[c] for c in COLUMNS] for row in predictions]), folder
    ).statistics


@needs_cases
def test_the_map_equals_the_official_one(tmp_path):
    facts = case("htstep_article_grounding_map")
    found = official(tmp_path, facts, facts["annotations"], facts["predictions"])
    assert point_estimate(found["mAP"]) == pytest.approx(facts["mAP_activity_grouped"], abs=1e-12)


@needs_cases
def test_each_threshold_equals_the_official_one():
    facts = case("htstep_article_grounding_map")
    truths, found = {}, {}
    for id, video in facts["annotations"].items():
        if video["activity"] == "Make A":
            segments = np.array([row["segment"] for row in video["annotations"]])
            truths[id] = AnnotatedVideo(
                "Make A", segments, tuple(row["id"] for row in video["annotations"])
            )
            rows = [(n, row) for n, row in enumerate(facts["predictions"]) if row["video-id"] == id]
            found[id] = PredictedSegments(
                np.array([[r["t-start"], r["t-end"]] for _, r in rows]),
                np.array([r["label"] for _, r in rows]),
                np.array([r["score"] for _, r in rows]),
                np.array([n for n, _ in rows]),
            )
    expected = next(value for key, value in facts.items() if key.startswith("ap_make_A"))
    assert [
        point_estimate(grounding_map(truths, found, tious=[t])) for t in TIOU_THRESHOLDS
    ] == pytest.approx(expected, abs=1e-12)


@needs_cases
def test_exchanged_labels_keep_the_official_map_and_lose_the_label_aware_one(tmp_path):
    facts = case("htstep_article_grounding_map")
    check = facts["label_agnostic_within_activity_check"]
    right = official(tmp_path, facts, check["gt"], check["pred_right"])
    swapped = official(tmp_path, facts, check["gt"], check["pred_swapped_labels"])
    assert (
        point_estimate(right["mAP"])
        == check["mAP_right"]
        == point_estimate(right["mAP label-aware"])
    )
    assert point_estimate(swapped["mAP"]) == check["mAP_swapped"]
    assert point_estimate(swapped["mAP label-aware"]) == 0


def test_perfect_is_1_and_empty_is_0_everywhere(folder):
    rows = [
        ["v1", 10, 20, 0, 0.9],
        ["v1", 30, 40, 1, 0.8],
        ["v1", 50, 60, 0, 0.7],
        ["v2", 0, 8, 2, 0.5],
    ]
    perfect = evaluate("ht-step", table(folder, rows), folder)
    assert {
        name: point_estimate(value) for name, value in perfect.statistics.items()
    } == dict.fromkeys(perfect.statistics, 1.0)
    empty = evaluate("ht-step", table(folder, []), folder)
    assert {
        name: point_estimate(value) for name, value in empty.statistics.items()
    } == dict.fromkeys(empty.statistics, 0.0)
    assert empty.missing == ("v1", "v2")


def test_any_instance_of_a_step_is_a_hit_and_a_step_counts_once(folder):
    (folder / "p.json").write_text(json.dumps({"v1": [55, 41], "v2": {"pour": 8.0}}))
    found = evaluate("ht-step", folder / "p.json", folder)
    assert point_estimate(found.statistics["R@1"]) == pytest.approx(2 / 3)  # of cut, stir, pour
    (folder / "p.json").write_text(json.dumps({"v1": {"0": 20, "stir": None}}))
    assert point_estimate(
        evaluate("ht-step", folder / "p.json", folder).statistics["R@1"]
    ) == pytest.approx(1 / 3)


def test_seconds_that_name_no_step_are_reported_and_nan_is_an_error(folder):
    (folder / "p.json").write_text(json.dumps({"v1": {"Cut it!": 5, "1": 41}, "v2": {"pour": 8.0}}))
    notes = evaluate("ht-step", folder / "p.json", folder).notes
    assert "1 seconds name no single step of their video's article variation: 'Cut it!'" in notes
    (folder / "p.json").write_text('{"v1": {"1": NaN}}')
    with pytest.raises(DatasetError, match="finite"):
        evaluate("ht-step", folder / "p.json", folder)


def test_a_headline_of_two_steps_names_neither(tmp_path):
    steps = [("0", "Make taho", "none", "add pearls"), ("1", "Make taho", "none", "add pearls")]
    rows = [{"id": n, "segment": [10 * n, 10 * n + 5]} for n in (0, 1)]
    release(tmp_path, {"v1": {"activity": "Make taho", "annotations": rows}}, steps)
    (tmp_path / "p.json").write_text(json.dumps({"v1": {"add pearls": 12, "0": 2}}))
    found = evaluate("ht-step", tmp_path / "p.json", tmp_path)
    assert point_estimate(found.statistics["R@1"]) == 0.5
    assert any("no single step" in note for note in found.notes)


def test_only_one_split_can_be_scored(folder):
    found = evaluate("ht-step", table(folder, []), folder, subset="val_seen")
    assert found.videos == ("v1",)


def test_predictions_of_another_variation_are_left_out(folder):
    right = [["v2", 0, 8, 2, 0.5]]
    alone = evaluate("ht-step", table(folder, right), folder).statistics["mAP"]
    beside = evaluate("ht-step", table(folder, [["v2", 0, 8, 3, 0.9], *right]), folder)
    assert point_estimate(beside.statistics["mAP"]) == point_estimate(alone) == 0.5
    assert "1 of 2" in beside.notes[0]


def test_of_equal_scores_the_later_row_comes_first():
    truth = {"v": AnnotatedVideo("A", np.array([[0.0, 10]]), (0,))}
    segments, steps, scores = (
        np.array([[0.0, 10], [50, 60]]),
        np.array([0, 0]),
        np.array([0.5, 0.5]),
    )
    first_right = grounding_map(
        truth, {"v": PredictedSegments(segments, steps, scores, np.array([0, 1]))}
    )
    last_right = grounding_map(
        truth, {"v": PredictedSegments(segments[::-1], steps, scores, np.array([0, 1]))}
    )
    assert (point_estimate(first_right), point_estimate(last_right)) == (0.5, 1.0)


def test_an_annotation_is_taken_once_and_the_second_prediction_is_wrong():
    truth = {"v": AnnotatedVideo("A", np.array([[0.0, 10], [20, 30]]), (0, 0))}
    found = PredictedSegments(
        np.array([[0.0, 10], [0, 10], [20, 30]]),
        np.zeros(3, int),
        np.array([0.9, 0.8, 0.7]),
        np.arange(3),
    )
    # right, wrong, right: precision 1 then 2/3
    assert point_estimate(grounding_map(truth, {"v": found})) == pytest.approx((1 + 2 / 3) / 2)


def test_short_and_repeated_annotations_are_left_out():
    segments = np.array([[0.0, 5], [0.0005, 5], [3, 3], [9, 2], [0, 5]])
    kept, steps = without_duplicates(segments, [1, 1, 1, 1, 2])
    assert kept.tolist() == [[0, 5], [0, 5]]
    assert steps == (1, 2)


def test_resampling_equals_scoring_the_drawn_videos():
    truths = {n: AnnotatedVideo("AB"[n == "z"], np.array([[0.0, 10]]), (0,)) for n in "xyz"}
    starts = {"x": [0.0], "y": [2.0, 50], "z": [50.0]}
    found = {}
    for name, at in starts.items():
        segments = np.array([[second, second + 10] for second in at])
        found[name] = PredictedSegments(
            segments, np.zeros(len(at), int), np.array([0.3, 0.9])[: len(at)], np.arange(len(at))
        )
    whole = grounding_map(truths, found)
    some = grounding_map({"x": truths["x"], "y": truths["y"]}, found)
    assert whole.score(np.array([[1.0, 1, 0]]))[0] == pytest.approx(point_estimate(some))
    assert resample({"m": whole}, draws=20)["m"].shape == (20,)


def test_mixed_variations_and_unknown_steps_are_errors(folder):
    taxonomy = {2: ArticleStep("2", "B", "A", "pour"), 3: ArticleStep("3", "B", "B", "mix")}
    with pytest.raises(DatasetError, match="variations"):
        candidate_steps(AnnotatedVideo("B", np.zeros((2, 2)), (2, 3)), taxonomy)
    with pytest.raises(DatasetError, match="not in the taxonomy"):
        candidate_steps(AnnotatedVideo("B", np.zeros((1, 2)), (7,)), taxonomy)


@pytest.mark.parametrize(
    "row",
    [
        ["v1", "x", 2, 0, 1],
        ["v1", "nan", 2, 0, 1],
        ["v1", 1, "inf", 0, 1],
        ["v1", 1, 2, "cut", 1],
        ["v1", 1, 2, 0, "nan"],
        ["v1"],
    ],
)
def test_a_bad_row_is_an_error_that_names_its_line(folder, row):
    with pytest.raises(DatasetError, match="line 2"):
        evaluate("ht-step", table(folder, [row]), folder)


@pytest.mark.parametrize("span", [(40, 30), (-5, -1), (35, 35), (1e6, 2e6), (-1e6, 1e6)])
def test_odd_segments_have_a_defined_score(folder, span):
    found = evaluate("ht-step", table(folder, [["v1", *span, 1, 0.9]]), folder)
    assert all(0 <= point_estimate(value) <= 1 for value in found.statistics.values())
