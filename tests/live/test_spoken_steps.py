"""A recipe's lines in live speech: what the writer's scorer says of each sentence is read once it is
settled, from the last sentences alone."""

from types import SimpleNamespace

import numpy as np
import pytest
from transcripts import transcript_of

from stepline.live.spoken_steps import CONTEXT_SENTENCES, OPEN_SENTENCES, SpokenSteps
from stepline.pipeline.request import StepsSettings
from stepline.records import Transcript

READER = "stepline.writing.extractive.writer.transcript_step_probabilities"


def sentences(count):
    texts = (f"sentence {number}" for number in range(count))
    return transcript_of(*texts, every=2.0, language=None)


@pytest.fixture
def sizes(monkeypatch):
    """How many sentences were read each time; of each it is said how often one was asked."""
    counts = []

    def read(transcript, _settings):
        counts.append(len(transcript.sentences))
        return np.full(counts[-1], float(len(counts)))

    monkeypatch.setattr(READER, read)
    return counts


@pytest.fixture
def probabilities():
    """Asks what is known of each sentence of a transcript so far."""
    spoken = SpokenSteps(SimpleNamespace(), print, StepsSettings(), ["a line"])
    return spoken._read_step_probabilities


def test_settled_sentences_are_not_read_again(sizes, probabilities):
    for count in range(1, 61):
        row = probabilities(sentences(count), "en")
        assert len(row) == count
    assert max(sizes) <= CONTEXT_SENTENCES + OPEN_SENTENCES
    # sentence 10 was read last when OPEN_SENTENCES sentences, itself among them, were open
    assert row[10] == 10 + OPEN_SENTENCES
    assert row[-1] == 60


def test_all_sentences_of_a_run_that_is_resumed_are_read(sizes, probabilities):
    assert len(probabilities(sentences(50), "en")) == 50
    assert sizes == [50]


def test_a_sentence_that_comes_late_is_read(sizes, probabilities):
    whole = sentences(40)
    without = Transcript(sentences=whole.sentences[:20] + whole.sentences[21:])
    probabilities(without, "en")
    assert probabilities(whole, "en")[20] == 2


def test_nothing_is_known_where_the_scorer_cannot_read_the_language(monkeypatch, probabilities):
    monkeypatch.setattr(READER, lambda *_: None)
    assert probabilities(sentences(3), "de") is None
