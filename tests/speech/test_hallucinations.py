"""What nobody says is left out with its reason; what somebody says over noise stays."""

import pytest

from stepline.records import Sentence, Span, Word
from stepline.speech.hallucinations import (
    SpeechEvidence,
    find_repetitions,
    hallucination_reasons,
    repeated_sentences,
)
from stepline.speech.settings import AsrSettings

SETTINGS = AsrSettings()
CLEAR = SpeechEvidence(voice_probability=0.8, log_probability=-0.2)
MUSIC = SpeechEvidence(voice_probability=0.3, log_probability=-0.6)


def sentence(text, confidence=0.9):
    words = tuple(Word(text=word) for word in text.split())
    return Sentence(text=text, span=Span(0.0, 1.0), words=words, confidence=confidence)


def reasons(*pairs):
    return hallucination_reasons([s for s, _ in pairs], [e for _, e in pairs], SETTINGS)


def test_clear_speech_is_kept_even_if_it_is_a_stock_phrase():
    given = ["Cut the strip.", "Thank you for watching.", "Subscribe to my channel."]
    assert reasons(*((sentence(text), CLEAR) for text in given)) == [None] * 3


@pytest.mark.parametrize(
    "text", ["Thank you.", "You", "Thanks for watching!", "See you next time."]
)
def test_a_stock_phrase_over_music_is_left_out(text):
    kept = [sentence("Cut the strip."), sentence("Fold it now."), sentence(text)]
    found = reasons((kept[0], CLEAR), (kept[1], CLEAR), (kept[2], MUSIC))
    assert found[:2] == [None, None]
    assert "stock phrase" in found[2]


@pytest.mark.parametrize(
    ("text", "confidence", "evidence", "reason"),
    [
        ("♪ ...", 0.9, CLEAR, "only symbols"),
        ("Cut it.", 0.9, SpeechEvidence(0.1, -0.2), "no voice"),
        ("Cut it.", 0.9, SpeechEvidence(0.9, -1.2), "unsure of what is said"),
        ("Cut it.", 0.3, CLEAR, "unsure of the words"),
        ("Cut it.", 0.9, SpeechEvidence(0.25, -0.7), "little voice"),
    ],
)
def test_a_doubtful_sentence_is_left_out_with_its_reason(text, confidence, evidence, reason):
    (found,) = reasons((sentence(text, confidence), evidence))
    assert reason in found


def test_without_the_recognisers_own_doubt_voice_alone_decides():
    assert reasons((sentence("Cut it."), SpeechEvidence(0.5, None))) == [None]


def test_an_unsure_sentence_falls_with_its_neighbours():
    unsure = SpeechEvidence(0.5, -0.5)
    found = reasons((sentence("Thank you."), unsure), (sentence("It is my trip."), unsure))
    assert "next to it" in found[1]


def test_a_loop_is_found_and_an_emphasis_is_not():
    assert find_repetitions(["go", "to", "the", "end"] * 4) == set(range(16))
    assert find_repetitions(["no"] * 4) == set()
    assert find_repetitions(["stir", "and"] * 3) == set()
    assert find_repetitions(["now", "cut", *["one"] * 6, "two"]) == set(range(2, 8))


def test_sentences_of_a_loop_are_left_out_and_others_stay():
    given = ["Cut it first.", "Fold that paper well.", "Turn it around.", *["I see."] * 4]
    found = reasons(*((sentence(text), CLEAR) for text in given))
    assert found == [None] * 3 + ["the recogniser repeated itself"] * 4


def test_a_long_sentence_said_again_and_again_is_a_loop():
    text = "I'm going to show you how to make a video on the video."
    loop = [sentence(text)] * 4
    assert repeated_sentences([sentence("Hello."), *loop]) == {1, 2, 3, 4}
    assert repeated_sentences(loop[:3]) == set()


def test_reasons_are_per_cent_and_no_log_probabilities():
    said = Sentence(text="Pour the milk.", span=Span(0.0, 2.0), confidence=0.9)
    (unsure,) = hallucination_reasons([said], [SpeechEvidence(0.9, -1.0)], SETTINGS)
    assert unsure == "the recogniser was unsure of what is said (37% sure of each part of a word)"
    (silent,) = hallucination_reasons([said], [SpeechEvidence(0.02, None)], SETTINGS)
    assert silent == "no voice is heard there (2% sure of one)"
