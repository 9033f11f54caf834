"""A network against what needs no training, on what people saw; numbers worked out by hand."""

import math

import pytest

from stepline.annotate import Answer
from stepline.curate.workflow.measure import Measure, measure_aligner, unanswered_places
from stepline.curate.workflow.queue import place_of
from stepline.curate.workflow.review import read_review
from stepline.records import Record, Span, Step, Video


def a_step(id, *spans):
    return Step(id=id, text=f"do {id}", spans=tuple(Span(*span) for span in spans), score=0.6)


def a_record(id, *steps):
    return Record(id=id, video=Video(id=id, duration=60.0), steps=steps)


# The grounding places steps 1 and 2 and not step 3; a network places all three, step 2 elsewhere.
RECORDS = [a_record(id, a_step("1", (0, 4)), a_step("2", (10, 14)), a_step("3")) for id in "ab"]
PLACED = {id: (a_step("1", (0.5, 4)), a_step("2", (30, 34)), a_step("3", (50, 54))) for id in "ab"}


def review_of(*rows):
    """rows: (record, step, where people looked, whether they saw it)."""
    places = []
    answers = []
    for record, step, span, shown in rows:
        source = next(each for each in RECORDS if each.id == record)
        place = place_of(source, source.steps[int(step) - 1], Span(*span))
        places.append(place)
        if shown is not None:
            answers.append(Answer(clip=place.id, annotator="Ann", shown=shown, confidence="very"))
    return read_review(places, answers, people=1)


def seen(record):
    """Step 1 is shown where both place it, step 2 where the network does, step 3 too."""
    return [
        (record, "1", (0, 4), True),
        (record, "2", (10, 14), False),
        (record, "2", (30, 34), True),
        (record, "3", (50, 54), True),
    ]


def test_recall_is_over_the_steps_that_people_saw_somewhere():
    measure = measure_aligner(RECORDS, PLACED, review_of(*seen("a"), *seen("b")), seed=0)
    assert (measure.items, measure.videos) == (6, 2)
    assert (measure.score, measure.baseline) == (pytest.approx(100.0), pytest.approx(100 / 3))
    assert measure.low == pytest.approx(200 / 3)
    assert str(measure).startswith("nasva is recommended: R@1 100.0 against 33.3, the grounding")


def test_a_step_that_no_one_saw_where_a_network_has_it_is_not_scored():
    rows = [*seen("a")[:2], ("a", "2", (30, 34), None), *seen("b")]
    measure = measure_aligner(RECORDS, PLACED, review_of(*rows), seed=0)
    assert measure.items == 4  # of a step 1 alone


def test_clips_that_a_network_needs_are_those_that_no_one_is_asked_about():
    review = review_of(("a", "1", (0, 4), True), ("a", "2", (10, 14), False))
    places = unanswered_places(RECORDS, PLACED, review.places)
    # of b nothing is asked: it is not reviewed
    assert [(place.video, place.step, place.span.start) for place in places] == [
        ("a", "2", 30),
        ("a", "3", 50),
    ]


def test_without_anything_that_people_saw_nothing_is_known():
    measure = measure_aligner(RECORDS, PLACED, review_of(("a", "1", (0, 4), False)), seed=0)
    assert math.isnan(measure.gain)
    assert not measure.is_better
    assert "no held-out clip shows a difference from the grounding" in str(measure)


@pytest.mark.parametrize(
    ("low", "high", "reason"),
    [
        (-1.0, 5.0, "its gain may be none"),
        (-9.0, -1.0, "it is worse"),
        (math.nan, math.nan, "one video"),
    ],
)
def test_a_measure_that_is_no_better_is_refused_with_its_reason(low, high, reason):
    measure = Measure("wys2", "ROC-AUC", "the grounding", 9, 3, 60.0, 62.0, low, high)
    assert not measure.is_better
    assert str(measure).startswith(f"wys2 is refused, {reason}")
