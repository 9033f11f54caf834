"""Where steps are said: the formulas of NaSVA section 3.1, by hand; a user's own lines find their
sentences."""

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.grounding import speech
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import (
    coarse_scores,
    coarse_spans,
    grow_window,
    narration_labels,
    place_steps,
    shift_to_mean,
    steps_from_texts,
)
from stepline.numeric import softmax
from stepline.records import Sentence, Span, Step, Transcript

LN3 = float(np.log(3))


def sentence(start, end):
    return Sentence(text="words", span=Span(start, end))


def step(name="1"):
    return Step(id=name, text=f"step {name}")


def sharp(**changes):
    return CoarseSettings(temperature=1.0).model_copy(update=changes)


def test_softmax_runs_over_the_narrations_of_a_step():
    # exp(ln 3) = 3 against exp(0) = 1
    logits = np.array([[LN3, 0.0], [0.0, 0.0]], np.float32)
    np.testing.assert_allclose(softmax(logits), [[0.75, 0.25], [0.5, 0.5]], rtol=1e-6)


def test_temperature_divides_the_cosine():
    # 0.07 ln 3 / 0.07 = ln 3, so again 3 to 1
    likeness = np.array([[0.07 * LN3, 0.0]], np.float32)
    found, _ = coarse_spans([step()], [sentence(0, 2), sentence(2, 4)], likeness, duration=4)
    assert found[0].score == pytest.approx(0.75)


def test_overlapping_narrations_add_up_and_silence_scores_zero():
    # second 1 is covered by the first two, second 3 by none
    heard = [sentence(0, 2), sentence(1, 3), sentence(4, 5)]
    scores = coarse_scores(np.array([[0.6, 0.2, 0.2]], np.float32), heard, 5)
    np.testing.assert_allclose(scores, [[0.6, 0.8, 0.2, 0.0, 0.2]], rtol=1e-5)


def test_labels_cover_every_second_that_is_touched_or_whole_seconds_with_both_ends():
    labels = narration_labels([Span(1.2, 3.7), Span(0.4, 0.9)], 5, "covering")
    assert labels.tolist() == [[0, 1, 1, 1, 0], [1, 0, 0, 0, 0]]
    labels = narration_labels([Span(1.2, 3.7), Span(0.4, 0.9), Span(1.0, 3.0)], 5, "inclusive")
    assert labels.tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 1, 0]]


def test_a_window_grows_while_the_score_is_at_least_the_share_of_the_peak():
    row = np.array([0.9, 0.0, 0.7, 1.0, 0.7, 0.69, 1.0], np.float32)
    # stops at the first second below, and does not jump over it
    assert grow_window(row, 3, 0.7) == (2, 5)


def test_a_step_is_said_where_its_narration_is():
    likeness = np.array([[0.9, 0.1], [0.1, 0.9]], np.float32)
    steps, heard = [step("a"), step("b")], [sentence(0, 3.5), sentence(6, 9)]
    kept, dropped = coarse_spans(steps, heard, likeness, duration=9)
    assert [s.said for s in kept] == [Span(0.0, 4.0), Span(6.0, 9.0)]
    assert [s.sources for s in kept] == [(0,), (1,)]
    assert not dropped


def test_neighbours_of_seven_tenths_of_the_peak_join_the_window():
    likeness = np.array([[0.0, np.log(0.7), np.log(0.69)]], np.float32)  # 1 : 0.7 : 0.69
    heard = [sentence(0, 2), sentence(2, 4), sentence(4, 6)]
    kept, _ = coarse_spans([step()], heard, likeness, duration=6, settings=sharp())
    assert kept[0].said == Span(0.0, 4.0)


def test_the_earliest_of_equal_seconds_is_the_centre():
    likeness, heard = np.zeros((1, 2), np.float32), [sentence(5, 7), sentence(1, 3)]
    kept, _ = coarse_spans([step()], heard, likeness, duration=8, settings=sharp())
    assert kept[0].said == Span(1.0, 3.0)


@pytest.mark.parametrize(("floor", "kept"), [(0.25, 1), (0.26, 0)])
def test_a_step_below_the_floor_is_dropped_with_its_reason(floor, kept):
    heard = [sentence(i, i + 1) for i in range(4)]  # four equal narrations: 0.25 each
    likeness = np.zeros((1, 4), np.float32)
    options = {"duration": 4, "settings": sharp(floor=floor)}
    found, dropped = coarse_spans([step()], heard, likeness, **options)
    assert len(found) == kept
    reasons = [] if kept else ["best alignment score 0.25 is below 0.26"]
    assert [d.reason for d in dropped] == reasons
    found, dropped = coarse_spans([step()], [], np.zeros((1, 0), np.float32), duration=3)
    assert not found
    assert dropped[0].reason == "best alignment score 0.00 is below 0.20"


def test_a_window_ends_with_the_video():
    kept, _ = coarse_spans([step()], [sentence(2, 4)], np.ones((1, 1), np.float32), duration=2.5)
    assert kept[0].said == Span(2.0, 2.5)


def test_a_matrix_of_another_shape_is_refused():
    likeness, heard = np.zeros((2, 1), np.float32), [sentence(0, 1), sentence(1, 2)]
    with pytest.raises(ShapeError, match=r"must be \(1, 2\), steps by sentences, not \(2, 1\)"):
        coarse_spans([step()], heard, likeness, duration=2)


# Two lines that are said in their order, and a later sentence that resembles the first as much: by
# likeness alone the first line is where the earliest of equal sentences is.
TOLD_LINES = (Step(id="1", text="fry the onion"), Step(id="2", text="add the rice"))
TOLD = tuple(
    Sentence(text=text, span=Span(start, start + 4.0))
    for start, text in (
        (0.0, "so today we add the rice to our bowl"),
        (10.0, "first of all you fry the onion"),
        (20.0, "and then add the rice"),
        (30.0, "thanks for watching"),
    )
)
TOLD_LINE_VECTORS = np.eye(4, dtype=np.float32)[:2]
TOLD_SENTENCE_VECTORS = np.eye(4, dtype=np.float32)[[1, 0, 1, 3]]


def place(steps, vectors, matching):
    settings = CoarseSettings(matching=matching)
    given = (steps, TOLD, vectors, TOLD_SENTENCE_VECTORS)
    return place_steps(*given, duration=34.0, settings=settings)


@pytest.mark.parametrize(
    ("matching", "spans"),
    [
        (CoarseSettings().matching, [Span(10.0, 14.0), Span(0.0, 4.0)]),  # as in the paper
        ("line-model", [Span(10.0, 14.0), Span(20.0, 24.0)]),
    ],
)
def test_coarse_labels_follow_the_paper_unless_the_line_model_is_asked_for(matching, spans):
    steps, dropped = place(TOLD_LINES, TOLD_LINE_VECTORS, matching)
    assert ([placed.said for placed in steps], list(dropped)) == (spans, [])


def test_the_line_model_drops_what_it_finds_nowhere_and_refuses_vectors_that_do_not_fit():
    steps = (*TOLD_LINES, Step(id="3", text="inflate the tyre"))
    kept, dropped = place(steps, np.eye(4, dtype=np.float32)[:3], "line-model")
    assert [placed.id for placed in kept] == ["1", "2"]
    assert [item.text for item in dropped] == ["inflate the tyre"]
    assert dropped[0].reason.endswith("is below 0.20")
    with pytest.raises(ShapeError, match="must share their width"):
        place(TOLD_LINES, TOLD_LINE_VECTORS[:, :3], "line-model")


HEARD = Transcript(
    sentences=(
        Sentence(text="hello everyone", span=Span(0.0, 3.0)),
        Sentence(text="now chop the onion", span=Span(4.0, 6.0)),
    )
)
AXES = np.eye(3, dtype=np.float32)


def test_a_line_is_said_where_its_sentence_is_and_one_that_no_one_speaks_of_is_not():
    (step,) = steps_from_texts(["chop onion"], HEARD, AXES[:2], AXES[1:2])
    assert (step.id, step.said, step.sources, step.score) == ("1", Span(4.0, 6.0), (1,), None)
    steps = steps_from_texts(["bake it", "chop onion"], HEARD, AXES[:2], AXES[[2, 1]])
    assert [step.said for step in steps] == [None, Span(4.0, 6.0)]
    assert steps[0].sources == ()
    steps = steps_from_texts(["a", "b"], Transcript(), np.zeros((0, 3), np.float32), AXES[:2])
    assert [(step.id, step.said) for step in steps] == [("1", None), ("2", None)]


def test_a_line_is_said_around_the_sentences_that_say_it(monkeypatch):
    centers, weights = np.array([2.0, 10.0, 100.0]), np.array([1.0, 3.0, 9.0])
    # exp(-1/8) = .8825 and exp(-9/8) = .3247 of the weights count, and far sentences do not
    first = (0.3247 * 2.0 + 3 * 0.8825 * 10.0) / (0.3247 + 3 * 0.8825)
    assert first < shift_to_mean(8.0, centers, weights, 4.0) < 10.0
    monkeypatch.setattr(speech, "SHIFT_ROUNDS", 1)
    assert shift_to_mean(8.0, centers, weights, 4.0) == pytest.approx(first, abs=0.01)
    assert shift_to_mean(8.0, centers, np.zeros(3), 4.0) == 8.0
    (step,) = steps_from_texts(["chop onion"], HEARD, AXES[:2], AXES[1:2])
    assert step.at == pytest.approx(5.0, abs=0.5)
    (running,) = steps_from_texts(["chop onion"], HEARD, AXES[:2], AXES[1:2], so_far=True)
    assert running.at is None
    (unsaid,) = steps_from_texts(["inflate the tyre"], HEARD, AXES[:2], AXES[2:])
    assert (unsaid.said, unsaid.sources) == (None, ())
    assert 0 <= unsaid.at <= 6


@pytest.mark.parametrize(("again", "sources"), [(10.0, (1, 2)), (3600.0, (1,))])
def test_a_line_told_again_an_hour_later_is_said_once(again, sources):
    repeat = Sentence(text="now chop the onion", span=Span(again, again + 2.0))
    heard = Transcript(sentences=(*HEARD.sentences, repeat))
    (step,) = steps_from_texts(["now chop the onion"], heard, AXES[[0, 1, 1]], AXES[1:2])
    assert step.sources == sources
    assert step.said == Span(4.0, heard.sentences[sources[-1]].span.end)


def test_vectors_of_two_widths_are_refused():
    with pytest.raises(ShapeError, match="must share their width"):
        steps_from_texts(["a"], HEARD, AXES[:2], np.ones((1, 2), np.float32))


def test_lines_of_another_video_are_not_said_here():
    lines = np.tile(np.array([0.38, 0.1, 0.92], np.float32), (6, 1))  # .38 like "hello everyone"
    names = [str(number) for number in range(6)]
    steps = steps_from_texts(names, HEARD, AXES[:2], lines)
    assert [step.said for step in steps] == [None] * 6
    lines[1:, 1] = 0.8  # but one is what is said
    steps = steps_from_texts(["6", "chop the onion"], HEARD, AXES[:2], lines[:2])
    assert steps[1].said == Span(4.0, 6.0)
