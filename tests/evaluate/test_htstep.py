import csv
import json

import numpy as np
import pytest
from metric_cases import values

from stepline.datasets.htstep import ArticleStep
from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.htstep import AnnotatedVideo, candidate_steps

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


@pytest.fixture
def folder(tmp_path):
    return release(tmp_path, TRUTH, TAXONOMY)


def scored(folder, predictions, **options):
    (folder / "p.json").write_text(json.dumps(predictions))
    return evaluate("ht-step", folder / "p.json", folder, **options)


def test_any_instance_of_a_step_is_a_hit_and_a_step_counts_once(folder):
    for tree, value in (
        ({"v1": [55, 41], "v2": {"pour": 8.0}}, 2 / 3),  # of cut, stir, pour
        ({"v1": {"0": 20, "stir": None}}, 1 / 3),
    ):
        assert values(scored(folder, tree)) == pytest.approx({"R@1": value})


def test_seconds_that_name_no_step_are_reported_and_nan_is_an_error(folder):
    notes = scored(folder, {"v1": {"Cut it!": 5, "1": 41}, "v2": {"pour": 8.0}}).notes
    assert "1 seconds name no single step of their video's article variation: 'Cut it!'" in notes
    with pytest.raises(DatasetError, match="finite"):
        scored(folder, {"v1": {"1": float("nan")}})


def test_a_headline_of_two_steps_names_neither(tmp_path):
    steps = [("0", "Make taho", "none", "add pearls"), ("1", "Make taho", "none", "add pearls")]
    rows = [{"id": n, "segment": [10 * n, 10 * n + 5]} for n in (0, 1)]
    release(tmp_path, {"v1": {"activity": "Make taho", "annotations": rows}}, steps)
    found = scored(tmp_path, {"v1": {"add pearls": 12, "0": 2}})
    assert values(found)["R@1"] == 0.5
    assert any("no single step" in note for note in found.notes)


def test_perfect_is_1_and_empty_is_0_and_one_split_can_be_scored(tmp_path):
    # Seconds without names are in the order of the ids, whatever the order of the taxonomy.
    folder = release(tmp_path, TRUTH, TAXONOMY[::-1])
    assert values(scored(folder, {"v1": [15, 35], "v2": [4]})) == {"R@1": 1.0}
    empty = scored(folder, {})
    assert values(empty)["R@1"] == 0.0
    assert empty.missing == ("v1", "v2")
    assert scored(folder, {}, subset="val_seen").videos == ("v1",)


def test_annotations_without_a_length_are_left_out(tmp_path):
    rows = [{"id": n, "segment": span} for n, span in ((0, [3, 3]), (1, [9, 2]), (1, [5, 6]))]
    release(tmp_path, {"v1": {"activity": "Make A", "annotations": rows}}, TAXONOMY)
    found = scored(tmp_path, {"v1": [3, 5.5]})
    assert (values(found)["R@1"], found.items) == (1.0, 1)


def test_a_table_of_windows_is_refused_since_its_middles_are_not_seconds(folder):
    (folder / "p.csv").write_text("video-id,t-start,t-end,label,score\nv1,10,20,0,0.9\n")
    with pytest.raises(DatasetError, match="a table of windows, and R@1 is scored from seconds"):
        evaluate("ht-step", folder / "p.csv", folder)


def test_mixed_variations_and_unknown_steps_are_errors():
    taxonomy = {2: ArticleStep("2", "B", "A", "pour"), 3: ArticleStep("3", "B", "B", "mix")}
    span = np.array([[0.0, 1.0]])
    with pytest.raises(DatasetError, match="variations"):
        candidate_steps(AnnotatedVideo("B", {2: span, 3: span}), taxonomy)
    with pytest.raises(DatasetError, match="not in the taxonomy"):
        candidate_steps(AnnotatedVideo("B", {7: span}), taxonomy)


def test_annotations_of_another_benchmark_are_named_with_what_is_missing(folder, tmp_path):
    other = tmp_path / "other" / "yc2_val.json"
    other.parent.mkdir()
    other.write_text("{}")
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(DatasetError, match=r"yc2_val.json: has no taxonomy.csv in its folder"):
        evaluate("ht-step", tmp_path / "p.json", other)
