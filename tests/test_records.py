import numpy as np
import pytest
from numpy.testing import assert_array_equal
from pydantic import ValidationError

from stepline.errors import ShapeError
from stepline.records import (
    Alignment,
    FeatureSequence,
    Record,
    Rejected,
    Sentence,
    Span,
    Step,
    Transcript,
    Video,
    count_reasons,
)


def test_a_span_is_half_open():
    span = Span(1.0, 3.0)
    assert 1.0 in span
    assert 3.0 not in span
    assert span.duration == 2.0
    assert span.center == 2.0


def test_iou_of_spans_that_share_one_of_three_seconds():
    assert Span(0.0, 2.0).iou(Span(1.0, 3.0)) == pytest.approx(1 / 3)
    assert Span(0.0, 1.0).iou(Span(1.0, 2.0)) == 0.0


def test_gap_is_zero_inside_and_the_distance_outside():
    span = Span(2.0, 4.0)
    assert [span.gap(second) for second in (0.5, 3.0, 6.0)] == [1.5, 0.0, 2.0]


@pytest.mark.parametrize(
    ("start", "end"),
    [(2.0, 2.0), (3.0, 1.0), (-1.0, 1.0), (0.0, float("nan")), (0.0, float("inf"))],
)
def test_a_span_refuses_what_is_not_a_time(start, end):
    with pytest.raises((ValueError, ValidationError), match="span"):
        Span(start, end)


def test_a_transcript_must_be_sorted_but_may_overlap():
    early, late = Sentence(text="a", span=Span(0.0, 5.0)), Sentence(text="b", span=Span(1.0, 2.0))
    assert Transcript(sentences=(early, late)).sentences == (early, late)
    with pytest.raises(ValidationError, match="sorted"):
        Transcript(sentences=(late, early))


def test_a_step_may_not_cite_a_sentence_that_does_not_exist():
    transcript = Transcript(sentences=(Sentence(text="a", span=Span(0.0, 1.0)),))
    steps = (Step(id="1", text="cut", sources=(1,)),)
    with pytest.raises(ValidationError, match="cites sentence 1"):
        Record(id="v", video=Video(id="v"), transcript=transcript, steps=steps)


def test_records_are_frozen_and_know_their_fields():
    video = Video(id="v")
    with pytest.raises(ValidationError):
        video.id = "w"
    with pytest.raises(ValidationError):
        Video(id="v", length=3.0)


@pytest.mark.parametrize(
    ("span", "rows"),
    [
        (Span(0.0, 1.0), (0, 2)),
        (Span(0.6, 1.1), (1, 3)),
        (Span(1.9, 9.0), (3, 5)),
        (Span(7.0, 8.0), (5, 5)),
    ],
)
def test_rows_are_those_that_the_span_overlaps(span, rows):
    features = FeatureSequence(np.zeros((5, 3), np.float32), rate=2.0, backbone="test")
    assert features.rows(span) == slice(*rows)
    assert features.duration == 2.5


def test_features_refuse_nan_and_wrong_shapes():
    with pytest.raises(ShapeError, match="NaN"):
        FeatureSequence(np.full((2, 2), np.nan, np.float32), 1.0, "test")
    with pytest.raises(ShapeError, match="float32"):
        FeatureSequence(np.zeros((2, 2)), 1.0, "test")
    with pytest.raises(ShapeError, match="rate"):
        FeatureSequence(np.zeros((2, 2), np.float32), 0.0, "test")


def test_runs_become_spans_best_first():
    scores = np.array([[0.1, 0.6, 0.7, 0.1, 0.9, 0.1]], np.float32)
    alignment = Alignment(("cut",), scores, rate=1.0, kind="probability")
    assert alignment.spans(0.5) == [[Span(4.0, 5.0), Span(1.0, 3.0)]]
    assert alignment.spans(0.95) == [[]]
    assert_array_equal(alignment.scores, scores)


def test_an_alignment_refuses_scores_outside_its_kind():
    with pytest.raises(ShapeError, match="probability"):
        Alignment(("a",), np.array([[-0.5]], np.float32), 1.0, "probability")
    with pytest.raises(ShapeError, match="texts"):
        Alignment(("a", "b"), np.zeros((1, 3), np.float32), 1.0, "cosine")


def test_what_was_left_out_is_stored_with_no_more_than_is_known():
    plain = Rejected("step", "it is no step", text="hello")
    whole = Rejected(
        "span", "has no length", text="mix", id="v", value="[2, 2]", location="a.json: .v[0]"
    )
    record = Record(id="v", video=Video(id="v"), dropped=(plain, whole))
    first, second = record.model_dump(mode="json")["dropped"]
    assert first == {"what": "step", "text": "hello", "reason": "it is no step"}
    assert list(second) == ["what", "text", "reason", "id", "value", "location"]
    assert Record.model_validate_json(record.model_dump_json()) == record
    assert count_reasons([plain, whole, plain]) == {"it is no step": 2, "has no length": 1}
    for flaw in ({"what": "banana"}, {"text": 1}, {"cause": "none"}):
        with pytest.raises(ValidationError):
            Record.model_validate({"id": "v", "video": {"id": "v"}, "dropped": [first | flaw]})
