"""Speech without marks gets them; what has them is left as it is."""

import numpy as np
import pytest

from stepline.records import Span, Word
from stepline.speech import punctuation
from stepline.speech.punctuation import MIN_WORDS, lacks_punctuation, restore_punctuation
from stepline.speech.sentences import split_sentences
from stepline.text.narration.words import PUNCTUATION_CLASSES

SPEECH = (
    "so the first thing we do is peel the potatoes now cut them into cubes and put them in a pot "
    "of cold water bring it to a boil and cook for fifteen minutes then drain the potatoes well "
    "and mash them with butter and milk"
)


def words_of(text, *, pause_after=()):
    words = []
    second = 0.0
    for word in text.split():
        words.append(Word(text=f" {word}", span=Span(second, second + 0.3)))
        second += 3.5 if word in pause_after else 0.35
    return words


def test_only_unmarked_english_of_some_length_lacks_marks():
    words = words_of(SPEECH)
    assert lacks_punctuation(words, "en")
    assert lacks_punctuation(words, None)
    assert not lacks_punctuation(words, "de")
    assert not lacks_punctuation(words[: MIN_WORDS - 1], "en")
    assert not lacks_punctuation(words_of(SPEECH.replace(" now", ". now")), "en")
    german = "und dann geben wir das Mehl in die Schale und rühren es um " * 5
    assert not lacks_punctuation(words_of(german), None)


def test_no_word_is_lost_and_times_stay():
    words = words_of(SPEECH)
    marked = restore_punctuation(words)
    assert [word.span for word in marked] == [word.span for word in words]
    bare = [word.text.strip(" .,?").lower() for word in marked]
    assert bare == SPEECH.split()


def test_sentences_end_where_actions_do():
    marked = restore_punctuation(words_of(SPEECH))
    texts = [s.text for s in split_sentences(marked, pause=1.0, longest=30.0)]
    assert len(texts) >= 3
    assert any(text.lower().rstrip(".").endswith("peel the potatoes") for text in texts)
    assert all(text[0].isupper() for text in texts)


def test_silence_speaks_for_an_end():
    without = restore_punctuation(words_of(SPEECH))
    paused = restore_punctuation(words_of(SPEECH, pause_after=("cubes",)))
    place = SPEECH.split().index("cubes")
    assert paused[place].text.endswith(".")
    assert without[place].text.rstrip(".,").strip() == "cubes"


class FixedReader:
    """Gives each word the chance of a full stop that is told, and no other mark."""

    def __init__(self, stops):
        self.stops = stops

    def predict_punctuation(self, words):
        chances = np.zeros((len(words), len(PUNCTUATION_CLASSES)))
        chances[:, PUNCTUATION_CLASSES.index("stop")] = [
            self.stops.get(word, 0.0) for word in words
        ]
        chances[:, PUNCTUATION_CLASSES.index("none")] = (
            1 - chances[:, PUNCTUATION_CLASSES.index("stop")]
        )
        return chances


def marked_text(monkeypatch, text, stops):
    monkeypatch.setattr(punctuation, "load_punctuation_model", lambda: FixedReader(stops))
    return " ".join(word.text.strip() for word in restore_punctuation(words_of(text)))


@pytest.mark.parametrize(
    ("text", "stops", "marked"),
    [
        ("when it is dry sand it", {"dry": 0.6, "it": 0.1}, "When it is dry, sand it"),
        (
            "it looks good because it shines now cut",
            {"good": 0.6, "shines": 0.8},
            "It looks good, because it shines. Now cut",
        ),
        ("so when it is dry sand it", {"dry": 0.98}, "So when it is dry. Sand it"),
        ("this is dry sand it", {"dry": 0.6}, "This is dry. Sand it"),
    ],
)
def test_a_dependent_clause_stays_with_its_main_one(monkeypatch, text, stops, marked):
    assert marked_text(monkeypatch, text, stops) == marked


def test_a_capital_at_the_front_of_a_caption_and_brackets_go(monkeypatch):
    text = "we add the peas The juice of a lemon and [plus] Basil from Genoa"
    assert marked_text(monkeypatch, text, {}) == (
        "We add the peas the juice of a lemon and plus Basil from Genoa"
    )
