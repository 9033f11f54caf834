"""Do the pictures belong to the speech? Coincidences over chance, the topic, words in the picture;
by hand."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from stepline.grounding.correspondence import (
    PICTURES_DO_NOT_FIT,
    Correspondence,
    CorrespondenceWeights,
    coincidence_log_bayes,
    instruction_log_bayes,
    measure_correspondence,
)
from stepline.grounding.ground import LAST_CASE, NO_INSTRUCTION, ground
from stepline.records import FeatureSequence, Sentence, Span, Step, Transcript
from stepline.vision import Activity

USUAL = {"usual_topic": 0.1, "mean_pictures": {"test": [0.0, 1.0]}}
WEIGHTS = CorrespondenceWeights(topic=2.0, text=0.5, **USUAL)


@dataclass(frozen=True)
class Line:
    text: str
    span: Span


def sentences(*starts, text="press the wound firmly"):
    return tuple(Sentence(text=text, span=Span(start, start + 2)) for start in starts)


def test_a_coincidence_of_one_in_five_by_chance_and_one_in_three_in_own_pictures():
    # odds 1 : 4 doubled are 1 : 2; a hit says log(1/3 : 1/5), a miss log(2/3 : 4/5)
    hit, miss = math.log(5 / 3), math.log(5 / 6)
    assert coincidence_log_bayes(2, 3, 0.2, 2.0) == pytest.approx(2 * hit + miss)
    assert coincidence_log_bayes(0, 0, 0.2, 2.0) == 0.0
    assert coincidence_log_bayes(3, 3, 1.0, 2.0) == 0.0  # what always happens says nothing
    # a film that repeats itself says no more than twenty chances
    twenty = coincidence_log_bayes(20, 20, 0.2, 2.0)
    assert coincidence_log_bayes(100, 100, 0.2, 2.0) == pytest.approx(twenty)


def test_the_topic_is_the_cosine_of_what_is_said_and_what_is_seen_less_the_mean_picture():
    # mean less centre: .3, .4
    seen = FeatureSequence(np.array([[0.6, 1.8], [0.0, 1.0]], np.float32), 1.0, "test")
    vectors = {"sentence_vectors": np.array([[1, 0]])}
    found = measure_correspondence(sentences(0), features=seen, weights=WEIGHTS, **vectors)
    assert found.topic == pytest.approx(0.6)
    assert found.log_odds(WEIGHTS) == pytest.approx(2.0 * (0.6 - 0.1))
    other = FeatureSequence(seen.values, 1.0, "unknown")
    assert measure_correspondence(sentences(0), features=other, **vectors).topic is None


def test_a_caption_that_is_being_said_speaks_for_the_pictures():
    said = (*sentences(10), *sentences(40, text="wait for help"))

    def speaks(text, start, end, said=said):
        return measure_correspondence(said, on_screen=[Line(text, Span(start, end))]).text

    assert speaks("Press the wound", 10, 13) > 1
    assert speaks("Press the wound", 40, 43) < 0  # not then
    assert speaks("Press the wound", 25, 28) == 0  # nobody speaks then
    assert speaks("Lift your chin", 10, 13) < 0
    assert speaks("Press the wound", 0, 60) == 0  # a watermark
    # a long word alone
    assert speaks("REPEAT", 10, 13, said=sentences(10, text="repeat it")) > 1
    assert speaks("PRESS", 10, 13) == 0  # a label, as on a packet
    assert speaks("the", 10, 13) == 0


def test_nothing_known_is_not_known():
    assert not measure_correspondence(sentences(5)).is_known
    assert Correspondence(None, 0.0).log_odds(WEIGHTS) == 0.0


def test_a_talk_with_few_sentences_that_state_a_step_does_not_instruct():
    # one sentence of one: Beta(7.1, 6.9) has a mean of .507, other talk .091
    assert instruction_log_bayes(1, 1) == pytest.approx(math.log(7.1 / 14 / 0.091))
    few, more, many = (instruction_log_bayes(*n) for n in ((1, 8), (2, 10), (4, 14)))
    assert few < more < 0 < many


def moving(seconds, cuts=()):
    change = np.full(seconds, 0.1, np.float32)
    return Activity(change, cuts, 1.0, peak_changes=3 * change)


def ground_talk(steps, seconds, said, lines, cuts=(), **options):
    options |= {"activity": moving(seconds, cuts), "on_screen": lines}
    return ground(steps, duration=float(seconds), transcript=Transcript(sentences=said), **options)


@pytest.mark.parametrize(("written", "doubt"), [(True, NO_INSTRUCTION), (False, None)])
def test_a_step_of_a_talk_is_in_doubt_over_pictures_that_fit_the_talk(written, doubt):
    # the news over its own pictures, with captions: one of twelve sentences reads like a step
    said = sentences(*range(0, 60, 5), text="the city mourns its mayor")
    lines = [Line(sentence.text, sentence.span) for sentence in said[::2]]
    lines[:1] = [Line("city mayor mourns", said[0].span)]
    step = Step(id="1", text="mourn the mayor", said=said[4].span, sources=(4,))
    found = ground_talk([step], 60, said, lines, (20.1, 40.2), written=written)
    assert [(one.status, one.doubt) for one in found.steps] == [("placed", doubt)]
    assert any("as in a talk" in doubt for doubt in found.report.warnings) == written
    assert found.steps[0].at is not None  # it keeps its place


@pytest.mark.parametrize(
    ("texts", "doubts"),
    [
        (("press", "call for help if it goes on"), [None, LAST_CASE]),
        # the case is what the video is about
        (("if it bleeds, press", "call for help"), [None, None]),
    ],
)
def test_what_is_said_last_and_for_some_cases_is_in_doubt(texts, doubts):
    said = sentences(5, 25, text="press the wound firmly")
    steps = [Step(id=str(n), text=texts[n], said=said[n].span, sources=(n,)) for n in (0, 1)]
    lines = [Line("Press the wound", sentence.span) for sentence in said]
    lines[1] = Line("wound press firmly", said[1].span)
    found = ground_talk(steps, 40, said, lines)
    assert [step.status for step in found.steps] == ["placed", "placed"]
    assert [step.doubt for step in found.steps] == doubts
    assert all(step.at is not None for step in found.steps)


def speech_and_steps():
    said = sentences(5, 15, 25, 35, 45)
    steps = [Step(id=str(n), text="press", said=s.span, sources=(n,)) for n, s in enumerate(said)]
    return Transcript(sentences=said), steps


def filmed(cuts, seconds=60):
    looks = np.random.default_rng(0).random((seconds, 192)).astype(np.float32)
    motion, peaks = (np.full(seconds, change, np.float32) for change in (0.01, 0.3))
    return Activity(motion, tuple(cuts), 1.0, peaks, looks)


def test_words_over_pictures_of_another_film_keep_their_place_and_are_in_doubt():
    transcript, steps = speech_and_steps()
    alone = ground(steps, duration=60.0, transcript=transcript).steps
    captions = [Line("Lift your chin", Span(t, t + 2)) for t in (5.0, 25.0)]
    captions.append(Line("Smile now", Span(35.0, 38.0)))
    film = {"activity": filmed([10.0, 20.0, 30.0, 40.0]), "on_screen": captions}
    other = ground(steps, duration=60.0, transcript=transcript, **film).steps
    assert [(step.status, step.doubt) for step in other] == [("placed", PICTURES_DO_NOT_FIT)] * 5
    assert [step.at for step in other] == [step.at for step in alone]
    assert all(step.spans and step.score < 0.9 for step in other)
    # pictures captioned as the words go leave no doubt
    film = {"activity": filmed([5.0, 15.0, 25.0, 35.0])}
    film["on_screen"] = [Line("Press the wound", Span(5.0, 8.0))]
    own = ground(steps, duration=60.0, transcript=transcript, **film).steps
    assert [(step.status, step.doubt) for step in own] == [("placed", None)] * 5
