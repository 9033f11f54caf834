"""The second opinions are held to what the official programs gave on recorded cases, where those
are at hand."""

import csv
import json

import numpy as np
import pytest
import second_opinion as opinion


@pytest.fixture
def case(shared_path):
    folder = shared_path("metric_cases")
    return lambda name: json.loads((folder / f"{name}.json").read_text())


def test_htm_align_as_tan_scores_it(case, tmp_path):
    given = case("htm_align")
    answers = {}
    for id, scores in given["similarity"].items():
        scores = np.array(scores)
        scores = scores if len(scores) == len(given["annotations"][id]) else scores.T
        answers[id] = {"seconds": scores.argmax(1).tolist(), "alignability": scores.max(1).tolist()}
    (tmp_path / "answer.json").write_text(json.dumps(answers))
    (tmp_path / "truth.json").write_text(json.dumps(given["annotations"]))
    files = tmp_path / "answer.json", tmp_path / "truth.json"
    official = given["expected"]["global_official"]
    assert opinion.htm_align(*files) == pytest.approx(
        {"R@1": official["Recall"], "ROC-AUC alignable": official["AUC"]}
    )
    # NaSVA's rule as it reads, no official run
    assert (
        opinion.htm_align(*files, rule="nasva")["R@1"] == given["expected"]["nasva_rule"]["Recall"]
    )


def test_ht_step_windows_as_its_program_scores_them(case, tmp_path):
    given = case("htstep_article_grounding_map")
    for name, rows in (("taxonomy", given["taxonomy"]), ("windows", given["predictions"])):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    (tmp_path / "annotations.json").write_text(json.dumps(given["annotations"]))
    found = opinion.ht_step_windows(tmp_path / "windows.csv", tmp_path)
    assert found == pytest.approx(given["mAP_activity_grouped"], abs=1e-12)


@pytest.fixture
def captions(case, tmp_path):
    """Predictions and references of the videos in both, and what SODA's program gave for them."""
    truth, told = case("yc2_ground_truth"), case("yc2_predictions")["results"]
    official = case("yc2_soda")["fujiso"]
    both = [id for id in truth if told.get(id)]
    (tmp_path / "truth.json").write_text(json.dumps({id: truth[id] for id in both}))
    (tmp_path / "answer.json").write_text(json.dumps({"results": {id: told[id] for id in both}}))
    scores = {f"SODA_{kind}": official[kind]["overall_precision_recall_f1"][2] for kind in "cd"}
    return (tmp_path / "answer.json", tmp_path / "truth.json"), scores


def test_soda_as_its_program_scores_it(captions):
    files, official = captions
    found = opinion.soda(*files, meteor=lambda pairs: np.zeros(len(pairs)))
    assert found["SODA_d"] == pytest.approx(official["SODA_d"], abs=1e-6)


@pytest.mark.slow
def test_soda_with_the_program_of_meteor(captions):
    files, official = captions
    assert opinion.soda(*files, meteor=opinion.official_meteor) == pytest.approx(official, abs=1e-6)


def test_two_segments_in_order_by_hand():
    """IoU 5 / 10 of the crossing pair, which may not join the other."""
    assert opinion.segment_iou((0, 10), (5, 15)) == pytest.approx(5 / 15)
    assert opinion.best_in_order(np.array([[0.2, 0.9], [0.8, 0.3]])) == pytest.approx(0.9)
