import json

import pytest
from metric_cases import case, needs_cases, values

from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.video_summaries import frames_overlap, kendall_tau, spearman_rho

FACTS = case("ivsum")


def facts(start):
    return next((rows for name, rows in FACTS.items() if name.startswith(start)), [])


@needs_cases
@pytest.mark.parametrize("row", facts("f_score"))
def test_f_equals_the_official_one(row):
    found = frames_overlap(row["machine"], row["gt"], official=True)
    measures = [found.f1, found.precision, found.recall]
    assert measures == pytest.approx(row["f_precision_recall"], abs=1e-6)


@needs_cases
@pytest.mark.parametrize("row", facts("rank"))
def test_rank_correlations_equal_scipys(row):
    assert kendall_tau(row["x"], row["y"]) == pytest.approx(row["kendall_tau_b"], abs=1e-12)
    assert spearman_rho(row["x"], row["y"]) == pytest.approx(row["spearman_rho"], abs=1e-12)


def test_the_official_overlap_of_soft_frames_is_an_option():
    soft, truth = [0.4, 1, 0.2, 1], [1, 1, 0, 0]
    assert frames_overlap(soft, truth).f1 == pytest.approx(0.5)
    assert frames_overlap(soft, truth, official=True).f1 == pytest.approx(0.6086957)
    assert frames_overlap(soft, [0, 0, 0, 0]) is None
    assert frames_overlap(soft, [0, 0, 0, 0], official=True).f1 == 1


@pytest.mark.parametrize("frames", [[float("nan")], [float("inf")]])
def test_what_has_no_score_is_undefined_or_an_error(frames):
    assert kendall_tau([1, 1, 1], [1, 0, 1]) is None
    assert spearman_rho([1], [1]) is None
    with pytest.raises(DatasetError):
        frames_overlap(frames, [1])
    with pytest.raises(DatasetError):
        kendall_tau(frames, [1])
    with pytest.raises(DatasetError, match="neither 0 nor 1"):
        frames_overlap([1], [0.5])


def run(folder, truth, given, **options):
    for name, tree in (("truth", truth), ("given", given)):
        (folder / f"{name}.json").write_text(json.dumps(tree))
    return evaluate("ivsum", folder / "given.json", folder / "truth.json", **options)


def test_perfect_is_1_and_empty_is_0(tmp_path):
    truth = {"a": [1, 0, 1, 0], "b": [0, 0, 1, 1]}
    assert all(value == pytest.approx(1) for value in values(run(tmp_path, truth, truth)).values())
    assert set(values(run(tmp_path, truth, {})).values()) == {0.0}


def test_videos_without_a_summary_are_left_out_and_told_but_officially_score_1(tmp_path):
    truth, given = {"a": [1, 0], "b": [0, 0]}, {"a": [0, 1], "b": [0, 0]}
    found = run(tmp_path, truth, given)
    assert values(found)["F"] == 0
    assert any("F is undefined for 1 videos" in note for note in found.notes)
    assert values(run(tmp_path, truth, given, convention="official"))["F"] == 0.5


def test_missing_videos_count_0_and_officially_nothing(tmp_path):
    truth, given = {"a": [1, 0], "b": [1, 0]}, {"a": [1, 0]}
    assert values(run(tmp_path, truth, given))["F"] == pytest.approx(0.5)
    official = run(tmp_path, truth, given, convention="official")
    assert values(official)["F"] == pytest.approx(1)
    assert official.missing == ("b",)


def test_equal_scores_rank_nothing(tmp_path):
    truth, given = {"a": [1, 0, 0]}, {"a": [0.7, 0.7, 0.7]}
    assert values(run(tmp_path, truth, given))["Kendall tau"] == 0
    assert "Kendall tau" not in values(run(tmp_path, truth, given, convention="official"))


def test_ivsums_own_results_file_is_read(tmp_path):
    summary = {"machine_summary": [1, 0], "scores": [0.6, 0.9], "score": 1.0}
    given = {"a": summary, "Avg F-Score": 1.0, "Top Bottom 10": ["a"]}
    found = run(tmp_path, {"a": [1, 0]}, given)
    assert values(found)["F"] == pytest.approx(1)
    assert values(found)["Spearman rho"] == pytest.approx(-1)
    assert found.extra == ()


def test_an_entry_of_a_known_video_without_its_summary_is_an_error_and_no_zero(tmp_path):
    with pytest.raises(DatasetError, match="machine_summary"):
        run(tmp_path, {"a": [1, 0]}, {"a": {"scores": [0.6, 0.9]}})
