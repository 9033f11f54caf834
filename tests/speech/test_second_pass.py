"""What a recogniser passes over is read again by itself; words begin and end with the voice."""

from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stepline.media import read_sound
from stepline.records import Sentence, Span, Word
from stepline.speech import AsrSettings, transcribe
from stepline.speech.audio_windows import FRAME_SAMPLES, AudioWindow, WindowTranscript
from stepline.speech.hallucinations import REPETITION_REASON
from stepline.speech.second_pass import (
    FRAMES_PER_SECOND,
    doubtful_utterances,
    fit_to_voice,
    rerecognise_doubtful,
)
from stepline.speech.transcribe import SentenceCollector

SETTINGS = AsrSettings()
CLIPS = Path(__file__).resolve().parents[2] / ".." / "shared" / "clips"
clips = pytest.mark.skipif(not CLIPS.is_dir(), reason="needs the clips of ../shared/clips")


def window(*speech, seconds=20.0, start=0.0):
    """Return a window with voice in the given seconds of it."""
    voice = np.zeros(int(seconds * FRAMES_PER_SECOND), np.float32)
    for first, last in speech:
        voice[round(first * FRAMES_PER_SECOND) : round(last * FRAMES_PER_SECOND)] = 1.0
    return AudioWindow(start, np.zeros(len(voice) * FRAME_SAMPLES, np.float32), voice, last=True)


def said(text, start, end, confidence=0.9):
    """Return the words of a text, each with an equal part of the seconds."""
    tokens = text.split()
    edges = np.linspace(start, end, len(tokens) + 1)
    return [
        Word(text=f" {token}", span=Span(float(first), float(last)), confidence=confidence)
        for token, (first, last) in zip(tokens, pairwise(edges), strict=True)
    ]


def spoken(words):
    return "".join(word.text for word in words).strip()


def second(*answers):
    """Return the pieces that were asked for, filled as they come, and a reader that gives the
    answers in order."""
    pieces = []

    def read(piece):
        pieces.append(Span(piece.start, piece.end))
        return WindowTranscript(tuple(answers[len(pieces) - 1]))

    return pieces, read


FIRST = said("Put pressure on it.", 1.0, 3.0) + said("Keep it there.", 12.0, 14.0)
PASSED_OVER = window((1.0, 3.0), (6.0, 9.0), (12.0, 14.0))


def test_a_sentence_that_was_passed_over_is_read_by_itself():
    pieces, read = second(said("Call for help now.", 6.0, 9.0))
    transcript = WindowTranscript(tuple(FIRST), "en", -0.2)
    found = rerecognise_doubtful(PASSED_OVER, transcript, read, trailing_voice=True)
    assert spoken(found.words) == "Put pressure on it. Call for help now. Keep it there."
    ((start, end),) = [(piece.start, piece.end) for piece in pieces]
    assert (start, end) == pytest.approx((5.7, 9.3), abs=0.05)
    assert (found.language, found.log_probability) == ("en", -0.2)


@pytest.mark.parametrize(
    ("answer", "end", "confidence"),
    [
        # talk in the background
        ("I do not know at all.", 9.0, 0.6),
        ("Wake up!", 9.0, 0.95),
        ("", 9.0, 0.0),
        # no more certain than before
        ("Call for help.", 6.1, 0.9),
    ],
)
def test_a_doubtful_second_reading_changes_nothing(answer, end, confidence):
    _, read = second(said(answer, 6.0, end, confidence))
    transcript = WindowTranscript(tuple(FIRST))
    found = rerecognise_doubtful(PASSED_OVER, transcript, read, trailing_voice=True)
    assert list(found.words) == FIRST


def test_a_word_stretched_over_a_silence_has_both_sides_read_again():
    sound = window((0.5, 1.2), (4.0, 6.0))
    stretched = [
        *said("Check", 0.5, 0.9),
        *said("for", 0.9, 2.4),
        *said("breathing gently.", 4.6, 6.0),
    ]
    pieces, read = second([], said("Check for breathing gently.", 4.0, 6.0))
    found = rerecognise_doubtful(
        sound, WindowTranscript(tuple(stretched)), read, trailing_voice=True
    )
    assert len(pieces) == 2
    assert spoken(found.words) == "Check for breathing gently."
    assert found.words[0].span.start == 4.0


def test_pauses_and_words_that_the_voice_covers_raise_no_doubt():
    assert doubtful_utterances(window((1.0, 4.0), (12.0, 14.5)), FIRST, trailing_voice=True) == []
    assert doubtful_utterances(window((1.0, 4.0)), [], trailing_voice=True) == []


def test_speech_after_the_last_word_is_left_to_the_next_window_where_there_is_one():
    sound = window((1.0, 3.0), (12.0, 14.0), (16.0, 19.0))
    assert doubtful_utterances(sound, FIRST, trailing_voice=False) == []
    ((piece,),) = doubtful_utterances(sound, FIRST, trailing_voice=True)
    assert piece[0] / FRAMES_PER_SECOND == pytest.approx(15.7, abs=0.05)


def test_of_a_long_utterance_only_what_no_word_covers_is_read_again():
    sound = window((0.0, 20.0))
    words = said("Put it on and hold it there for a long while now.", 0.0, 8.0) + said(
        "Let go of it.", 11.0, 20.0
    )
    ((piece,),) = doubtful_utterances(sound, words, trailing_voice=True)
    assert [frame / FRAMES_PER_SECOND for frame in piece] == pytest.approx([8.0, 11.0], abs=0.05)


def test_words_without_times_stay_where_they_are():
    loose = Word(text=" loosely", confidence=0.9)
    words = [*FIRST[:2], loose, *FIRST[2:]]
    _, read = second(said("Call for help now.", 6.0, 9.0))
    transcript = WindowTranscript(tuple(words))
    found = rerecognise_doubtful(PASSED_OVER, transcript, read, trailing_voice=True)
    assert spoken(found.words) == "Put pressure loosely on it. Call for help now. Keep it there."
    assert loose in fit_to_voice(PASSED_OVER, words)


def test_a_word_begins_and_ends_with_the_voice():
    sound = window((1.6, 2.4), (4.0, 5.0), start=100.0)
    given = [Word(text=" cut", span=Span(101.0, 103.4)), Word(text=" it.", span=Span(104.3, 105.0))]
    first, last = (word.span for word in fit_to_voice(sound, given))
    assert [first.start, first.end, last.start, last.end] == pytest.approx(
        [101.5, 102.5, 104.0, 105.0], abs=0.04
    )


def test_a_word_where_no_voice_is_heard_keeps_its_times():
    given = said("hum", 8.0, 9.0)
    assert fit_to_voice(window((1.0, 2.0)), given) == given


@cache
def heard(clip):
    # int8 rounds by the processor, and by it words come or go
    settings = AsrSettings(model="whisper-tiny.en", compute="float32")
    return transcribe(list(read_sound(CLIPS / clip)), settings)


@clips
def test_a_sentence_over_other_peoples_talk_is_heard_in_the_whole_file():
    starts = {
        sentence.text: sentence.span.start
        for sentence in heard("firstaid_bleeding.mp4").transcript.sentences
    }
    assert starts["Call 999 as soon as possible."] == pytest.approx(8.8, abs=0.6)
    assert starts["Keep pressure on the wound until help arrives."] == pytest.approx(14.0, abs=0.5)


@clips
def test_a_sentence_is_not_stretched_back_over_the_talk_before_it():
    first = heard("firstaid_not_breathing.mp4").transcript.sentences[0]
    assert first.text == "Check for breathing by tilting their head backwards."
    assert first.span.start == pytest.approx(3.0, abs=0.5)


@clips
def test_spanish_to_a_model_that_hears_only_english_is_not_believed():
    found = heard("makeup_foundation_es.mp4")
    assert found.transcript.sentences == ()
    assert found.dropped


def test_a_loop_that_goes_on_from_window_to_window_is_not_believed():
    collector = SentenceCollector(SETTINGS)
    for first in (0.0, 20.0, 40.0, 60.0):
        words = said("you whisk the eggs with the milk.", first + 2, first + 8)
        text = "you whisk the eggs with the milk."
        sentence = Sentence(text=text, span=Span(first + 2, first + 8), words=tuple(words))
        transcript = WindowTranscript(tuple(words), "en", -0.2)
        collector.add([sentence], [window((2.0, 8.0), start=first)], [transcript])
    assert len(collector.accepted) == 4  # each by itself is
    result = collector.result(SimpleNamespace(advice="", english_only=True, name="fake"))
    assert result.transcript.sentences == ()
    assert {item.reason for item in result.dropped} == {REPETITION_REASON}
