"""What the shipped reader of punctuation says of words without their marks."""

import numpy as np

from stepline.text.narration.marks import load_mark_reader
from stepline.text.narration.words import WORD_MARKS

SPEECH = "so now we chop the carrots then we put them in the pot and stir"


def test_a_mark_is_found_where_a_sentence_ends():
    words = SPEECH.split()
    chances = load_mark_reader().read_marks(words)
    assert chances.shape == (len(words), len(WORD_MARKS))
    none = chances[:, WORD_MARKS.index("none")]
    assert none[words.index("the")] > 0.9
    assert none[words.index("carrots")] < none[words.index("the")]


def test_marks_that_words_carry_are_not_looked_at():
    words = SPEECH.split()
    marked = [f"{word.title()}." for word in words]
    reader = load_mark_reader()
    assert np.allclose(reader.read_marks(words), reader.read_marks(marked), atol=1e-6)


def test_no_words_have_no_marks():
    assert load_mark_reader().read_marks([]).shape == (0, len(WORD_MARKS))
