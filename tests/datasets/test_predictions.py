import json

import pytest
from official_forms import write

from stepline.datasets import PredictedSegment, SegmentPredictions, read_predictions
from stepline.errors import DatasetError
from stepline.records import Record, Span, Step, Video
from stepline.storage import write_parquet, write_record

ONE = (PredictedSegment(1.0, 2.5, "mix"),)


def found(path, tree, **options):
    return read_predictions(write(path, tree), **options)


@pytest.mark.parametrize(
    "tree",
    [
        # densevid, Vid2Seq
        {"results": {"a": [{"sentence": "mix", "timestamp": [1, 2.5]}]}, "version": "VERSION 1.0"},
        {"a": {"duration": 9, "timestamps": [[1, 2.5]], "sentences": ["mix"]}},  # the flat form
        {"a": [[1, 2.5, "mix"]]},
        {"a": [{"text": "mix", "start": 1, "end": "2.5"}]},
        {"a": [{"label": "mix", "segment": ["1", 2.5]}]},
    ],
)
def test_every_published_form_of_predictions_gives_the_same_segments(tmp_path, tree):
    assert found(tmp_path / "a.json", tree) == SegmentPredictions({"a": ONE})


def test_pdvcs_prefix_is_left_out_as_from_the_annotations(tmp_path):
    ids = {"v_GLd3aX16zBg": [], "v_xHr8X2Wpmno": []}
    predictions = found(tmp_path / "r.json", {"results": ids})
    assert list(predictions.segments) == ["GLd3aX16zBg", "xHr8X2Wpmno"]
    assert predictions.rules == ('the "v_" before every id is left out, as from the annotations',)
    mixed = found(tmp_path / "r.json", {"results": {"v_LLLLLLLLLLL": [], "xHr8X2Wpmno": []}})
    assert list(mixed.segments) == ["v_LLLLLLLLLLL", "xHr8X2Wpmno"]


def test_the_score_of_a_segment_is_read_from_every_form(tmp_path):
    tree = {"results": {"a": [{"sentence": "mix", "timestamp": [1, 2.5], "proposal_score": 0.25}]}}
    assert found(tmp_path / "r.json", tree).segments["a"][0].score == 0.25
    assert found(tmp_path / "b.json", {"b": [[1, 2.5, "mix", 0.5]]}).segments["b"][0].score == 0.5


def test_odd_times_come_through_for_the_scorer_to_define(tmp_path):
    rows = [[5, 3, "reversed"], [-1, 2, "negative"], [4, 4, "empty"]]
    segments = found(tmp_path / "a.json", {"a": rows}).segments["a"]
    assert segments == tuple(PredictedSegment(*row) for row in rows)


def test_a_video_without_segments_is_kept(tmp_path):
    two = found(tmp_path / "r.json", {"results": {"a": [], "b": []}})
    assert two.segments == {"a": (), "b": ()}
    assert found(tmp_path / "r.json", {"results": {}}).segments == {}


@pytest.mark.parametrize("end", [None, "soon", True, float("nan"), float("inf"), 10**400, "1e999"])
def test_a_row_without_two_times_is_rejected_and_no_end_is_guessed(tmp_path, end):
    rows = [{"text": "mix", "start": 1, "end": 2.5}, {"text": "pour", "start": 3, "end": end}]
    predictions = found(tmp_path / "a.json", {"a": rows})
    assert predictions.segments == {"a": ONE}
    (row,) = predictions.rejected
    assert (row.location, row.text) == (f"{tmp_path}/a.json: a[1]", "pour")
    assert row.reason == "its start and end are not two times"
    assert predictions.rules == ()


def test_a_broken_results_file_is_refused_since_its_parts_have_lost_their_video(tmp_path):
    whole = json.dumps({"results": {"a": [{"sentence": "mix", "timestamp": [1, 2.5]}], "b": []}})
    with pytest.raises(DatasetError, match="not valid JSON"):
        found(tmp_path / "r.json", whole[:-6])


EMPTY, MIX = {"sentence": "", "timestamp": [1, 2.5]}, {"sentence": "mix", "timestamp": [3, 4]}


@pytest.mark.parametrize(
    "form",
    [
        {"a": [[1, 2.5, ""], [3, 4, "mix"]]},
        {"results": {"a": [EMPTY, MIX]}},
        {"a": {"timestamps": [[1, 2.5], [3, 4]], "sentences": [" ", "mix"]}},
    ],
)
def test_a_segment_with_an_empty_text_stays_a_prediction_and_a_missing_text_does_not(
    tmp_path, form
):
    predictions = found(tmp_path / "p.json", form)
    kept = (PredictedSegment(1, 2.5, ""), PredictedSegment(3, 4, "mix"))
    assert predictions.segments == {"a": kept}
    assert predictions.rejected == ()
    assert predictions.rules == ("1 segments have an empty text and stay as they are",)
    (lost,) = found(tmp_path / "p.json", {"a": [[1, 2.5, None], [3, 4, "mix"]]}).rejected
    assert lost.reason == "has no text"


def record(id):
    steps = (
        Step(id="1", text="mix", spans=(Span(1.0, 2.5), Span(7, 8)), score=0.75),
        Step(id="2", text="wait", status="said_only"),
    )
    return Record(id=id, video=Video(id=id), steps=steps)


def test_steplines_own_records_are_read_from_files_folders_and_parquet(tmp_path):
    write_record(record("a"), tmp_path / "out" / "a.json")
    write_record(record("b"), tmp_path / "out" / "b.json")
    write_parquet([record("a"), record("b")], tmp_path / "all.parquet")
    placed = (PredictedSegment(1.0, 2.5, "mix", 0.75),)
    folder = read_predictions(tmp_path / "out")
    assert folder.segments == {"a": placed, "b": placed}
    lost = [(row.text, row.reason) for row in folder.rejected]
    assert lost == [("wait", "has no span (status said_only)")] * 2
    assert read_predictions(tmp_path / "all.parquet").segments == folder.segments
    assert read_predictions(tmp_path / "out" / "a.json").segments == {"a": placed}


def test_in_a_folder_one_bad_file_is_listed_and_a_second_of_one_video_too(tmp_path):
    write(tmp_path / "a.json", {"a": [[1, 2.5, "mix"]]})
    write(tmp_path / "b.json", "{nothing")
    write(tmp_path / "x" / "a.json", {"a": [[3, 4, "pour"]]})
    predictions = read_predictions(tmp_path)
    assert predictions.segments == {"a": ONE}
    assert "not valid JSON" in predictions.rejected[0].reason
    assert predictions.rejected[1].reason == f"this video was read before, in {tmp_path}/a.json: a"


@pytest.mark.parametrize(
    "tree", ["hello", "", {"a": 3}, {"a": "text"}, "42", '"text"', "null", {"x": {"y": {"z": 1}}}]
)
def test_a_file_with_no_predictions_is_an_error_that_says_what_was_seen(tmp_path, tree):
    predictions = None
    try:
        predictions = found(tmp_path / "a.json", tree)
    except DatasetError as error:
        assert "\n" not in str(error)
        return
    assert predictions.rejected


def test_unicode_comes_through(tmp_path):
    (row,) = found(tmp_path / "a.json", {"a": [[1, 2, "把水倒进去 🥣"]]}).segments["a"]
    assert row.sentence == "把水倒进去 🥣"
    spoiled = write(tmp_path / "b.json", '{"b": [[1, 2, "half \\ud800"], [1, 2.5, "mix"]]}')
    assert read_predictions(spoiled).segments == {"b": ONE}
