"""Sentences are rebuilt from words by punctuation, pauses and length."""

import pytest

from stepline.records import Span, Word
from stepline.speech.sentences import ends_sentence, split_sentences


def words(text, *, step=0.5, start=0.0):
    """Return evenly spaced words, each with the space before it."""
    return [
        Word(
            text=f" {token}",
            span=Span(start + i * step, start + (i + 1) * step - 0.1),
            confidence=0.5,
        )
        for i, token in enumerate(text.split())
    ]


def texts(given, pause=1.0, longest=12.0):
    return [sentence.text for sentence in split_sentences(given, pause=pause, longest=longest)]


@pytest.mark.parametrize(
    "text", ["Ask Mr. Smith now", "Use 3.5 cups now", "Fruit, e.g. apples", "Add 2 tbsp. of oil"]
)
def test_a_full_stop_inside_a_name_or_number_ends_nothing(text):
    assert texts(words(text)) == [text]


@pytest.mark.parametrize(
    ("spoken", "sentences"),
    [
        ([("Cut it. Then fold.", 0)], ["Cut it.", "Then fold."]),
        ([("You and I. Then fold.", 0)], ["You and I.", "Then fold."]),
        # a long pause ends a sentence without punctuation
        ([("cut the strip", 0), ("now fold it", 2.4)], ["cut the strip", "now fold it"]),
        # where full stops are written, a pause before a small letter ends nothing
        (
            [("Keep pressure", 0), ("on the wound.", 5), ("Call for help", 8)],
            ["Keep pressure on the wound.", "Call for help"],
        ),
        ([("Cut it", 0), ("Then fold it.", 5)], ["Cut it", "Then fold it."]),
        ([("Cut it,", 0), ("and fold it.", 5)], ["Cut it,", "and fold it."]),
    ],
)
def test_full_stops_and_pauses_end_sentences(spoken, sentences):
    assert texts([word for text, start in spoken for word in words(text, start=start)]) == sentences


def test_a_sentence_that_runs_on_is_cut_at_its_longest_pause():
    given = [*words("one two three four"), *words("five six seven eight", start=2.6)]
    assert texts(given, longest=3.0) == ["one two three four", "five six seven eight"]


def test_a_sentence_spans_its_words_and_averages_their_confidence():
    (sentence,) = split_sentences(words("cut it now.", start=2.0), pause=1.0, longest=12.0)
    assert (sentence.span.start, sentence.span.end) == (2.0, 3.4)
    assert sentence.confidence == 0.5
    assert [word.text for word in sentence.words] == ["cut", "it", "now."]


def test_words_without_times_take_part_without_inventing_one():
    given = [Word(text=" cut"), *words("it now.", start=2.0)]
    (sentence,) = split_sentences(given, pause=1.0, longest=12.0)
    assert sentence.text == "cut it now."
    assert sentence.words[0].span is None
    assert sentence.span.start == 2.0


def test_a_sentence_without_any_timed_word_is_left_out():
    assert texts([Word(text=" cut"), Word(text=" it.")]) == []


def test_words_that_run_backwards_are_put_in_order():
    given = [Word(text=" cut", span=Span(3.0, 3.5)), Word(text=" it.", span=Span(2.0, 2.2))]
    (sentence,) = split_sentences(given, pause=1.0, longest=12.0)
    assert (sentence.words[1].span, sentence.span) == (Span(3.0, 3.02), Span(3.0, 3.5))


def test_a_word_that_the_recogniser_times_in_pieces_is_one_word_with_its_time():
    pieces = zip(
        (" do", " a", " pull", "-up,", " then", " 10", "%."),
        (0.0, 0.3, 0.5, 0.8, 1.2, 1.5, 1.8),
        strict=True,
    )
    given = [Word(text=text, span=Span(at, at + 0.2), confidence=1 - at / 2) for text, at in pieces]
    (sentence,) = split_sentences(given, pause=1.0, longest=12.0)
    assert sentence.text == "do a pull-up, then 10%."
    assert [word.text for word in sentence.words] == sentence.text.split()
    assert (sentence.words[2].span, sentence.words[2].confidence) == (Span(0.5, 1.0), 0.6)


def test_chinese_words_are_joined_without_spaces():
    given = [Word(text="想", span=Span(0.0, 0.5)), Word(text="固定。", span=Span(0.5, 1.0))]
    assert texts(given) == ["想固定。"]


def test_dots_before_a_lower_case_word_end_nothing():
    assert not ends_sentence("wait...", "and")
    assert ends_sentence("wait...", "Then")
