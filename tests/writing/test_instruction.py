"""Whether a video instructs at all, by the scorer of sentences over all of them."""

from pathlib import Path

import numpy as np
import pytest
from transcripts import transcript_of

from lab.writer_training.marked import read_marked_narrations
from stepline.grounding.ground import MIN_INSTRUCTS_LOG_ODDS
from stepline.records import Transcript
from stepline.writing.extractive.step_score import (
    InstructionWeights,
    instruction_features,
    instruction_log_bayes,
)
from stepline.writing.extractive.writer import narration_instruction

NARRATIONS = Path(__file__).resolve().parents[2] / "lab" / "narrations"
LEAST = MIN_INSTRUCTS_LOG_ODDS


def transcript(texts: list[str], language: str = "en") -> Transcript:
    return transcript_of(*texts, every=3.0, language=language)


def test_the_features_are_two_logits_and_a_direction():
    features = instruction_features(np.array([0.98]), np.array([[3.0, 0.0]], np.float32))
    # (.98 + 2 x .15) / 3, (.98 + .3) / 2
    expected = [np.log(1.28 / 1.72), np.log(0.64 / 0.36), 8.0, 0.0]
    np.testing.assert_allclose(features, expected)


def test_few_sentences_tell_little():
    model = InstructionWeights([1.0, 0.0, 0.0], 0.0)
    vectors = np.ones((60, 1), np.float32)
    short = instruction_log_bayes([0.5] * 6, vectors[:6], model)
    whole = instruction_log_bayes([0.5] * 60, vectors, model)
    assert short == pytest.approx(6 / 30 * np.log(3.3 / 4.7))
    assert whole == pytest.approx(np.log(30.3 / 31.7))
    assert instruction_log_bayes([], vectors[:0], model) == 0.0


@pytest.mark.parametrize("name", ["talk_16", "talk_18", "talk_35", "talk_36"])
def test_a_talk_does_not_instruct_though_it_gives_orders(name):
    (talk,) = [one for one in read_marked_narrations(NARRATIONS / "talks") if one.name == name]
    texts = [sentence.text for sentence in talk.sentences]
    assert narration_instruction(transcript(texts)) < LEAST


def test_a_how_to_instructs():
    (cook,) = [
        one for one in read_marked_narrations(NARRATIONS / "later") if one.name == "cookA_30"
    ]
    texts = [sentence.text for sentence in cook.sentences]
    assert narration_instruction(transcript(texts)) > 0


def test_another_language_is_not_judged():
    assert narration_instruction(transcript(["Schneide die Zwiebel."], "de")) is None
    assert narration_instruction(transcript([])) is None
