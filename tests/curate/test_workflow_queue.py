"""The clips that people are asked about: the least sure first, all of held-out videos."""

from pathlib import Path

from stepline.curate.workflow.queue import (
    ReviewPlace,
    annotation_clips,
    review_queue,
    split_for_test,
    step_places,
)
from stepline.records import Record, Span, Step, Video


def a_record(id, *steps):
    """A record of 60 s; steps: (P(shown), where it is shown or None, where it is said)."""
    made = []
    for number, (p, shown, said) in enumerate(steps, start=1):
        spans = () if shown is None else (Span(*shown),)
        made.append(
            Step(id=str(number), text=f"do {number}", spans=spans, said=Span(*said), score=p)
        )
    return Record(id=id, video=Video(id=id, duration=60.0), steps=tuple(made))


def test_the_least_sure_come_first():
    records = [
        a_record("a", (0.9, (0, 4), (0, 4)), (0.55, (9, 12), (9, 12)), (0.2, None, (20, 24)))
    ]
    places = review_queue(records, frozenset(), most=9)
    assert [(place.step, place.p) for place in places] == [("2", 0.55), ("3", 0.2), ("1", 0.9)]
    assert places[1].span == Span(20, 24)  # not placed: where it is said


def test_a_step_that_no_one_judged_is_as_unsure_as_can_be():
    (place,) = step_places(a_record("a", (None, (0, 4), (0, 4))), is_held_out=False)
    assert place.certainty == 0.0


def test_held_out_steps_are_asked_about_where_they_are_said_too():
    record = a_record("a", (0.9, (10, 14), (0, 4)), (0.8, (20, 24), (20.5, 24)))
    assert [place.span.start for place in step_places(record, is_held_out=False)] == [10, 20]
    # the second is said where it is shown: one answer holds for both
    assert [place.span.start for place in step_places(record, is_held_out=True)] == [10, 0, 20]


def test_held_out_videos_have_all_of_their_places_or_none():
    steps = [(0.9, (10, 14), (10, 14)), (0.8, (20, 24), (20, 24)), (0.5, (30, 34), (30, 34))]
    records = [a_record(id, *steps) for id in "abc"]
    places = review_queue(records, {"a", "b"}, most=12)
    counts = {id: sum(place.video == id for place in places) for id in "abc"}
    assert counts == {"a": 3, "b": 0, "c": 3}  # a third of 12 holds one video of three
    (sole,) = [place for place in review_queue(records, frozenset(), most=1) if place]
    assert sole.step == "3"


def test_an_answer_does_not_outlive_the_words_or_seconds_it_was_about():
    place = ReviewPlace("a", "1", "slice", Span(1, 4), 0.5)
    others = [
        ReviewPlace("a", "1", "cut", Span(1, 4), 0.5),
        ReviewPlace("a", "1", "slice", Span(1, 5), 0.5),
    ]
    assert place.id.startswith("a/1/")
    assert place.id == ReviewPlace("a", "1", "slice", Span(1, 4), 0.9).id
    assert place.id not in {other.id for other in others}


def test_held_out_videos_are_drawn_by_their_ids():
    ids = [f"v{number}" for number in range(40)]
    drawn = split_for_test(ids, 0.2, seed=0)
    assert len(drawn) == 8
    assert drawn == split_for_test(ids[::-1], 0.2, seed=0)
    assert drawn != split_for_test(ids, 0.2, seed=1)
    assert len(split_for_test(["a", "b"], 0.01, seed=0)) == 1
    assert split_for_test(["a"], 0.5, seed=0) == frozenset()


def test_clips_are_long_enough_to_see_and_only_of_videos_that_are_here():
    places = [
        ReviewPlace("a", "1", "slice", Span(58, 59), 0.5),
        ReviewPlace("b", "1", "cut", Span(1, 9), 0.5),
    ]
    (clip,) = annotation_clips(places, {"a": Path("a.mp4")}, {"a": 60.0})
    assert (clip.video, clip.span, clip.id) == ("a.mp4", Span(57, 60), places[0].id)
