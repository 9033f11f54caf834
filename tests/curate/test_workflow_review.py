"""What people answered, and what it makes of the records."""

import pytest

from stepline.annotate import Answer
from stepline.curate.workflow.queue import place_of, step_places
from stepline.curate.workflow.review import read_review, reviewed_record
from stepline.records import Record, Span, Step, Video

RECORD = Record(
    id="a",
    video=Video(id="a", duration=60.0),
    steps=(
        Step(
            id="1", text="slice", spans=(Span(0, 4),), said=Span(10, 14), status="shown", score=0.9
        ),
        Step(
            id="2", text="pour", spans=(Span(20, 24),), said=Span(20, 24), status="shown", score=0.8
        ),
        Step(id="3", text="whisk", spans=(Span(30, 34),), status="shown", score=0.7),
    ),
)
PLACES = step_places(RECORD, is_held_out=True)  # step 1 twice: where it is shown, and where said


def answers(*rows):
    """rows: (number of the place, who, whether it is shown)."""
    return [
        Answer(clip=PLACES[number].id, annotator=name, shown=shown, confidence="very")
        for number, name, shown in rows
    ]


def test_most_decide_and_as_many_no_as_yes_decide_nothing():
    review = read_review(
        PLACES,
        answers((0, "Ann", True), (1, "Ann", True), (1, "Ben", False), (2, "Ann", False)),
        people=2,
    )
    assert [review.verdicts.get(place.id, "open") for place in PLACES] == [
        True,
        None,
        False,
        "open",
    ]
    assert (review.answered, review.shown, review.people) == (3, 1, ("Ann", "Ben"))
    assert review.open_places == [PLACES[3]]


def test_agreement_is_over_the_clips_that_have_all_their_answers():
    both = [(number, name, number < 2) for number in range(3) for name in ("Ann", "Ben")]
    agreement = read_review(PLACES, answers(*both, (3, "Ann", True)), people=2).agreement
    assert (agreement.complete, agreement.kappa) == (3, pytest.approx(1.0))
    assert read_review(PLACES, answers((0, "Ann", True)), people=2).agreement.complete == 0


def test_an_answer_about_another_queue_does_not_count():
    other = Answer(clip="b/1/000000", annotator="Cleo", shown=True, confidence="very")
    review = read_review(PLACES, [other], people=2)
    assert (review.answered, review.people) == (0, ())


def test_a_confirmed_step_has_the_seconds_that_people_saw():
    review = read_review(PLACES, answers((0, "Ann", False), (1, "Ann", True)), people=2)
    step = reviewed_record(RECORD, review).steps[0]
    assert (step.spans, step.at, step.status) == ((Span(10, 14),), 12.0, "shown")


def test_a_denied_step_keeps_no_seconds_and_an_unseen_one_all():
    review = read_review(PLACES, answers((2, "Ann", False)), people=2)
    reviewed = reviewed_record(RECORD, review)
    assert (reviewed.steps[1].spans, reviewed.steps[1].status) == ((), "said")
    assert reviewed.steps[2] == RECORD.steps[2]
    assert [(step.id, step.spans) for step in reviewed.reference] == [("2", ())]


def test_where_a_network_places_a_step_is_asked_about_by_its_own_id():
    place = place_of(RECORD, RECORD.steps[2], Span(50, 54))
    assert place.id not in {other.id for other in PLACES}
    assert not PLACES[3].is_near(place.span)
