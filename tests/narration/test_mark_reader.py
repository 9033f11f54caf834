"""What the shipped reader of punctuation says of words without their marks."""

import numpy as np

from stepline.text.narration.punctuation import load_punctuation_model
from stepline.text.narration.words import PUNCTUATION_CLASSES

SPEECH = "so now we chop the carrots then we put them in the pot and stir"


def test_a_mark_is_found_where_a_sentence_ends():
    words = SPEECH.split()
    chances = load_punctuation_model().predict_punctuation(words)
    assert chances.shape == (len(words), len(PUNCTUATION_CLASSES))
    none = chances[:, PUNCTUATION_CLASSES.index("none")]
    assert none[words.index("the")] > 0.9
    assert none[words.index("carrots")] < none[words.index("the")]


def test_marks_that_words_carry_are_not_looked_at():
    words = SPEECH.split()
    marked = [f"{word.title()}." for word in words]
    reader = load_punctuation_model()
    assert np.allclose(
        reader.predict_punctuation(words), reader.predict_punctuation(marked), atol=1e-6
    )


def test_no_words_have_no_marks():
    assert load_punctuation_model().predict_punctuation([]).shape == (0, len(PUNCTUATION_CLASSES))
