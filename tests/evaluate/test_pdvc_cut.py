"""PDVC's own results hold all its proposals; --cut pdvc ranks and cuts them as PDVC does."""

import json

import pytest
from click.testing import CliRunner

from stepline.cli import main
from stepline.datasets import read_predictions
from stepline.errors import DatasetError

TRUTH = {
    "a": {"duration": 60, "timestamps": [[5, 15], [30, 45]], "sentences": ["cut it", "fry it"]},
    "b": {"duration": 60, "timestamps": [[0, 20]], "sentences": ["boil the rice"]},
}


def proposal(start, end, sentence, confidence, likelihood, count):
    scores = {"proposal_score": confidence, "sentence_score": likelihood}
    row = {"timestamp": [start, end], "raw_box": [0.5, 0.1], "sentence": sentence, **scores}
    return {**row, "query_id": 0, "vid_duration": 60, "pred_event_count": count}


def junk(count):
    return [proposal(50 - n / 2, 58, "add salt", 0.1, -9.0, count) for n in range(20)]


# joint scores of a: .6 - 1/4 = .35, .8 - 4/4 = -.2, .3 + 0 = .3, junk .1 - 9/4 = -2.15
PROPOSALS = {
    "v_a": [
        *junk(2),
        proposal(30, 45, "fry it", 0.6, -1.0, 2),
        proposal(48, 50, "stir it", 0.8, -4.0, 2),
        proposal(5, 15, "cut it", 0.3, 0.0, 2),
    ],
    "v_b": [*junk(1), proposal(0, 20, "boil the rice", 0.7, -0.9, 1)],
}
RESULT = {"version": "VERSION 1.0", "results": PROPOSALS, "valid_video_num": 2}
RESULT["avg_proposal_num"] = 22.0


@pytest.fixture
def files(tmp_path):
    for name, tree in (("pdvc", RESULT), ("truth", TRUTH)):
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    plain = {id: [{"sentence": "stir", "timestamp": [0, 9]}] for id in TRUTH}
    (tmp_path / "plain.json").write_text(json.dumps({"results": plain}))
    return tmp_path


def run(files, name, *more, benchmark="youcook2"):
    sources = ("--predictions", files / f"{name}.json", "--reference", files / "truth.json")
    words = ["evaluate", benchmark, *sources, *more, "--json", "--draws", 10]
    return CliRunner().invoke(main, [str(word) for word in words])


def soda(done):
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    return report["metrics"]["SODA_c"]["value"], report["notes"]


def test_the_best_by_joint_score_stay_as_many_as_are_counted_in_order_of_time(files):
    cut = read_predictions(files / "pdvc.json", cut="pdvc").segments
    assert [segment[:3] for segment in cut["v_a"]] == [(5, 15, "cut it"), (30, 45, "fry it")]
    assert [segment[:3] for segment in cut["v_b"]] == [(0, 20, "boil the rice")]


def test_the_score_is_that_of_the_cut_proposals(files):
    whole, notes = soda(run(files, "pdvc"))
    assert whole < 0.2
    assert any("2 videos: proposals of PDVC" in note and "--cut pdvc" in note for note in notes)
    best, notes = soda(run(files, "pdvc", "--cut", "pdvc"))
    assert best == pytest.approx(1.0, abs=0.02)
    assert any(note.startswith("2 videos: ranked and cut") for note in notes)


def test_what_is_not_a_result_of_pdvc_stays_as_it_is(files):
    value, notes = soda(run(files, "plain"))
    assert not any("PDVC" in note for note in notes)
    done = run(files, "plain", "--cut", "pdvc")
    assert done.exit_code == 1
    assert "no prediction has PDVC's proposal_score" in done.stderr
    against = run(files, "pdvc", "--cut", "pdvc", "--against", files / "plain.json")
    assert against.exit_code == 0
    report = json.loads(against.stdout)
    difference = report["against"]["differences"]["SODA_c"]["value"]
    assert report["metrics"]["SODA_c"]["value"] - difference == pytest.approx(value)


def test_other_benchmarks_have_nothing_to_cut(files):
    done = run(files, "pdvc", "--cut", "pdvc", benchmark="vnd")
    assert "its predictions are not proposals; leave --cut out" in done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sentence_score": None}, "lacks 'sentence_score'"),
        ({"pred_event_count": "many"}, "is not a number"),
        ({"timestamp": [1]}, "is not a pair of two numbers"),
    ],
)
def test_a_damaged_proposal_is_named(tmp_path, change, message):
    rows = [{**proposal(0, 9, "fry it", 0.9, 0.0, 1), **change}, proposal(0, 9, "mix", 0.1, -1, 1)]
    (tmp_path / "pdvc.json").write_text(json.dumps({"results": {"v_a": rows}}))
    with pytest.raises(DatasetError, match=message):
        read_predictions(tmp_path / "pdvc.json", cut="pdvc")


def test_fewer_proposals_than_counted_are_all_kept_and_no_note_is_made(tmp_path):
    rows = [proposal(0, 9, "fry it", 0.9, 0.0, 3), proposal(9, 12, "", 0.2, -1.0, 3)]
    (tmp_path / "pdvc.json").write_text(json.dumps({"results": {"v_a": rows, "v_b": []}}))
    assert not any("cut" in rule for rule in read_predictions(tmp_path / "pdvc.json").rules)
    cut = read_predictions(tmp_path / "pdvc.json", cut="pdvc").segments
    assert [len(cut[id]) for id in ("v_a", "v_b")] == [2, 0]
