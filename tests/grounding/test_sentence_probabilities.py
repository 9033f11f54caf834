"""A user's own lines are placed by all sentences that may tell them, each as likely as it is."""

from dataclasses import replace

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.grounding.ground import ground, ground_inputs, line_seconds
from stepline.grounding.inputs import GroundingInputs, GroundingWindow
from stepline.grounding.settings import GroundSettings
from stepline.grounding.speech import TextPlacement, add_unlisted_steps, steps_from_texts
from stepline.records import Sentence, Span, Step, Transcript

SECONDS = 60.0
HEARD = Transcript(
    language="en",
    sentences=tuple(
        Sentence(text=f"sentence {start}", span=Span(start, start + 2.0))
        for start in (10.0, 14.0, 40.0)
    ),
)
LINE = Step(id="1", text="fold it", said=Span(40.0, 42.0), sources=(2,))


def likeliest(tellings):
    grounding = ground(
        [LINE], duration=SECONDS, transcript=HEARD, written=False, tellings=np.array([tellings])
    )
    return grounding.alignment.scores[0].argmax()


def test_two_near_sentences_outweigh_the_most_likely_one():
    assert likeliest([0.0, 0.0, 0.9]) > 38
    assert 10 <= likeliest([0.33, 0.33, 0.34]) <= 18


def test_a_line_without_evidence_can_be_anywhere():
    unsaid = Step(id="1", text="fold it")
    inputs = GroundingInputs(
        [unsaid], SECONDS, HEARD, written=False, sentence_probabilities=np.zeros((1, 3))
    )
    assert inputs.weighted_passages[0].spans == []
    grounding = ground(
        [unsaid], duration=SECONDS, transcript=HEARD, written=False, tellings=np.zeros((1, 3))
    )
    assert grounding.steps[0].status == "not_found"


def test_a_window_has_the_probabilities_of_its_own_lines_and_sentences():
    lines = [LINE, LINE.model_copy(update={"id": "2"})]
    tellings = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.0]])
    inputs = GroundingInputs(lines, SECONDS, HEARD, sentence_probabilities=tellings)
    window = GroundingWindow(Span(0.0, 20.0), (1,), frozenset({1}))
    part = inputs.cut(window)
    assert part.sentence_probabilities.tolist() == [[0.4, 0.5]]
    assert [span.start for span in part.weighted_passages[0].spans] == [10.0, 14.0]


def test_probabilities_of_another_size_are_refused():
    with pytest.raises(ShapeError, match=r"steps by sentences: \(1, 3\), not \(1, 2\)"):
        GroundingInputs([LINE], SECONDS, HEARD, sentence_probabilities=np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("starts", "seconds"),
    [
        ((10.0, 25.0, 40.0), 6.0),  # .4 of the 15 s between them
        ((10.0, 12.0, 14.0), 4.0),
        ((0.0, 58.0), 20.0),
        ((40.0,), 8.0),
        ((40.0, 40.0), 8.0),
        ((None,), 8.0),
    ],
)
def test_lines_that_are_told_closely_are_shorter(starts, seconds):
    lines = []
    for start in starts:
        said = None if start is None else Span(start, start + 2)
        lines.append(LINE.model_copy(update={"said": said}))
    assert line_seconds(GroundingInputs(lines, SECONDS, HEARD)) == pytest.approx(seconds)


def test_a_sentence_that_no_line_cites_keeps_its_own_seconds():
    placement = TextPlacement((LINE,), np.array([[0.0, 0.2, 0.7]]), np.array([0.4, 0.6, 0.9]))
    completed = add_unlisted_steps(placement, HEARD)
    assert [step.text for step in completed.steps] == ["sentence 14.0", "fold it"]
    assert completed.lines == (1,)
    assert completed.sentence_probabilities.tolist() == [[0.0, 0.6, 0.0], [0.0, 0.2, 0.7]]
    inputs = GroundingInputs(
        completed.steps,
        SECONDS,
        HEARD,
        written=False,
        sentence_probabilities=completed.sentence_probabilities,
        lines=completed.lines,
    )
    grounding = ground_inputs(inputs, GroundSettings())
    assert [step.text for step in grounding.steps] == ["fold it"]
    assert grounding.alignment.texts == ("fold it",)
    unknown = replace(placement, step_probabilities=None)
    assert add_unlisted_steps(unknown, HEARD).steps == (LINE,)


def test_the_telling_of_a_line_sums_to_its_chance_of_being_said():
    axes = np.eye(3, dtype=np.float32)
    placed = steps_from_texts(["sentence 40"], HEARD, axes, axes[2:])
    assert placed.sentence_probabilities.shape == (1, 3)
    assert placed.sentence_probabilities.argmax() == 2
    assert placed.steps[0].said == Span(40.0, 42.0)
    assert 0.5 <= placed.sentence_probabilities.sum() <= 1.0
