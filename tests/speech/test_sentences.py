"""Sentences are rebuilt from words by punctuation, pauses and length."""

import pytest

from stepline.records import Span, Word
from stepline.speech.sentences import ends_sentence, split_sentences


def words(text: str, *, step: float = 0.5, start: float = 0.0) -> list[Word]:
    """Return evenly spaced words, each with the space before it."""
    return [
        Word(
            text=f" {token}",
            span=Span(start + i * step, start + (i + 1) * step - 0.1),
            confidence=0.5,
        )
        for i, token in enumerate(text.split())
    ]


def texts(given: list[Word], pause: float = 1.0, longest: float = 12.0) -> list[str]:
    return [sentence.text for sentence in split_sentences(given, pause=pause, longest=longest)]


def test_a_full_stop_ends_a_sentence() -> None:
    assert texts(words("Cut it. Then fold.")) == ["Cut it.", "Then fold."]


@pytest.mark.parametrize(
    "text", ["Ask Mr. Smith now", "Use 3.5 cups now", "Fruit, e.g. apples", "Add 2 tbsp. of oil"]
)
def test_a_full_stop_inside_a_name_or_number_ends_nothing(text: str) -> None:
    assert texts(words(text)) == [text]


def test_a_long_pause_ends_a_sentence_without_punctuation() -> None:
    assert texts([*words("cut the strip"), *words("now fold it", start=5.0)]) == [
        "cut the strip",
        "now fold it",
    ]


def test_where_full_stops_are_written_a_pause_before_a_small_letter_ends_nothing() -> None:
    paused = [
        *words("Keep pressure"),
        *words("on the wound.", start=5.0),
        *words("Call for help", start=8.0),
    ]
    assert texts(paused) == ["Keep pressure on the wound.", "Call for help"]
    assert texts([*words("Cut it"), *words("Then fold it.", start=5.0)]) == [
        "Cut it",
        "Then fold it.",
    ]
    assert texts([*words("Cut it,"), *words("and fold it.", start=5.0)]) == [
        "Cut it,",
        "and fold it.",
    ]


def test_a_sentence_that_runs_on_is_cut_at_its_longest_pause() -> None:
    given = [*words("one two three four"), *words("five six seven eight", start=2.6)]
    assert texts(given, longest=3.0) == ["one two three four", "five six seven eight"]


def test_a_sentence_spans_its_words_and_averages_their_confidence() -> None:
    (sentence,) = split_sentences(words("cut it now.", start=2.0), pause=1.0, longest=12.0)
    assert (sentence.span.start, sentence.span.end) == (2.0, 3.4)
    assert sentence.confidence == 0.5
    assert [word.text for word in sentence.words] == ["cut", "it", "now."]


def test_words_without_times_take_part_without_inventing_one() -> None:
    given = [Word(text=" cut"), *words("it now.", start=2.0)]
    (sentence,) = split_sentences(given, pause=1.0, longest=12.0)
    assert sentence.text == "cut it now."
    assert sentence.words[0].span is None
    assert sentence.span.start == 2.0


def test_a_sentence_without_any_timed_word_is_left_out() -> None:
    assert texts([Word(text=" cut"), Word(text=" it.")]) == []


def test_words_that_run_backwards_are_put_in_order() -> None:
    given = [Word(text=" cut", span=Span(3.0, 3.5)), Word(text=" it.", span=Span(2.0, 2.2))]
    (sentence,) = split_sentences(given, pause=1.0, longest=12.0)
    assert (sentence.words[1].span, sentence.span) == (Span(3.0, 3.02), Span(3.0, 3.5))


def test_a_word_that_the_recogniser_times_in_pieces_is_one_word_with_its_time() -> None:
    pieces = [
        (" do", 0.0),
        (" a", 0.3),
        (" pull", 0.5),
        ("-up,", 0.8),
        (" then", 1.2),
        (" 10", 1.5),
        ("%.", 1.8),
    ]
    given = [Word(text=text, span=Span(at, at + 0.2), confidence=1 - at / 2) for text, at in pieces]
    (sentence,) = split_sentences(given, pause=1.0, longest=12.0)
    assert sentence.text == "do a pull-up, then 10%."
    assert [word.text for word in sentence.words] == sentence.text.split()
    assert (sentence.words[2].span, sentence.words[2].confidence) == (Span(0.5, 1.0), 0.6)


def test_chinese_words_are_joined_without_spaces() -> None:
    given = [Word(text="想", span=Span(0.0, 0.5)), Word(text="固定。", span=Span(0.5, 1.0))]
    assert texts(given) == ["想固定。"]


def test_dots_before_a_lower_case_word_end_nothing() -> None:
    assert not ends_sentence("wait...", "and")
    assert ends_sentence("wait...", "Then")
