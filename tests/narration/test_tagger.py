"""What the shipped tagger says of sentences and words."""

from pathlib import Path

import numpy as np
import pytest

import stepline.text.narration
from stepline.errors import ModelError
from stepline.text.narration import NarrationTagger, load_tagger
from stepline.text.narration.adapted_encoder import running_total, word_means
from stepline.text.narration.punctuation import PUNCTUATION_FILE
from stepline.text.narration.words import SENTENCE_KINDS, WORD_EDITS

NARRATION = [
    "Hey everybody, welcome back to my kitchen.",
    "Cut the onion into thin slices.",
    "You could also use a leek if you like.",
    "Fry the slices in two tablespoons of butter for ten minutes.",
    "Thanks for watching and see you next week.",
]


@pytest.fixture(scope="module")
def readings():
    return load_tagger().tag_sentences(NARRATION)


def test_each_sentence_has_a_kind_and_each_word_an_edit(readings):
    for reading, text in zip(readings, NARRATION, strict=True):
        assert reading.kind_probabilities.sum() == pytest.approx(1, abs=1e-5)
        assert np.allclose(reading.edit_probabilities.sum(axis=1), 1, atol=1e-5)
        assert reading.kind_probabilities.shape == (len(SENTENCE_KINDS),)
        assert len(reading.edit_probabilities) == len(text.split())
        assert reading.clauses == ()  # a short sentence is one clause
    verb = readings[1].edit_probabilities[0]
    assert verb[WORD_EDITS.index("verb")] == verb.max()
    steps = [reading.step_probability for reading in readings]
    assert min(steps[1], steps[3]) > 0.5
    assert max(steps[0], steps[4]) < 0.1


def test_each_word_of_a_long_sentence_has_an_edit():
    text = "Stir the sauce slowly. " * 20
    (reading,) = load_tagger().tag_sentences([text])
    assert len(reading.edit_probabilities) == len(text.split())


def test_the_clauses_of_a_long_sentence_are_read_one_by_one():
    text = "I had a great time with my cousins, then cut the onion into thin slices"
    (reading,) = load_tagger().tag_sentences([text])
    talk, step = reading.clauses
    assert step.step_probability > talk.step_probability + 0.3
    assert len(talk.edit_probabilities) + len(step.edit_probabilities) == len(
        reading.edit_probabilities
    )


def test_a_sentence_without_words_has_a_reading_and_no_sentence_none():
    (reading,) = load_tagger().tag_sentences(["..."])
    assert reading.edit_probabilities.shape == (0, len(WORD_EDITS))
    assert load_tagger().tag_sentences([]) == []


def test_word_means_by_hand():
    hidden = np.array([[0.0], [1.0], [3.0], [5.0]], np.float32)
    means = word_means(running_total(hidden), (1, 3, 3, 4))
    assert means[:, 0].tolist() == [2.0, 0.0, 5.0]


def test_another_file_or_one_that_reads_marks_alone_is_one_line_with_the_cure(tmp_path):
    (tmp_path / "tagger.safetensors").write_bytes(b"no weights")
    marks = Path(stepline.text.narration.__file__).parent / PUNCTUATION_FILE
    cures = {tmp_path / "tagger.safetensors": "lab/writer_training", marks: "no front verbs"}
    for path, cure in cures.items():
        with pytest.raises(ModelError, match=cure):
            NarrationTagger(path)
