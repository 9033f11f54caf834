"""A recipe's lines in live speech: what the writer's scorer says of each sentence is read once it is
settled, from the last sentences alone."""

from types import SimpleNamespace

import numpy as np

from stepline.live.spoken_steps import CONTEXT_SENTENCES, OPEN_SENTENCES, SpokenSteps
from stepline.pipeline.request import StepsSettings
from stepline.records import Sentence, Span, Transcript

READER = "stepline.writing.extractive.writer.transcript_step_probabilities"


def transcript_of(count):
    sentences = []
    for number in range(count):
        start = 2.0 * number
        sentences.append(Sentence(text=f"sentence {number}", span=Span(start, start + 2.0)))
    return Transcript(sentences=tuple(sentences))


def step_probabilities(spoken, transcript, language):
    """What is known of each sentence of a transcript so far."""
    return spoken._read_step_probabilities(transcript, language)


class CountingReader:
    """Says of each sentence how often it was asked for anything, and how many it was given."""

    def __init__(self):
        self.sizes = []

    def __call__(self, transcript, _settings):
        self.sizes.append(len(transcript.sentences))
        return np.full(len(transcript.sentences), float(len(self.sizes)))


def test_settled_sentences_are_not_read_again(monkeypatch):
    reader = CountingReader()
    monkeypatch.setattr(READER, reader)
    spoken = SpokenSteps(SimpleNamespace(), print, StepsSettings(), ["a line"])
    for count in range(1, 61):
        row = step_probabilities(spoken, transcript_of(count), "en")
        assert len(row) == count
    assert max(reader.sizes) <= CONTEXT_SENTENCES + OPEN_SENTENCES
    # sentence 10 was read last when OPEN_SENTENCES sentences, itself among them, were open
    assert row[10] == 10 + OPEN_SENTENCES
    assert row[-1] == 60


def test_all_sentences_of_a_run_that_is_resumed_are_read(monkeypatch):
    reader = CountingReader()
    monkeypatch.setattr(READER, reader)
    spoken = SpokenSteps(SimpleNamespace(), print, StepsSettings(), ["a line"])
    assert len(step_probabilities(spoken, transcript_of(50), "en")) == 50
    assert reader.sizes == [50]


def test_a_sentence_that_comes_late_is_read(monkeypatch):
    reader = CountingReader()
    monkeypatch.setattr(READER, reader)
    spoken = SpokenSteps(SimpleNamespace(), print, StepsSettings(), ["a line"])
    whole = transcript_of(40)
    without = Transcript(sentences=whole.sentences[:20] + whole.sentences[21:])
    step_probabilities(spoken, without, "en")
    assert step_probabilities(spoken, whole, "en")[20] == 2


def test_nothing_is_known_where_the_scorer_cannot_read_the_language(monkeypatch):
    monkeypatch.setattr(READER, lambda *_: None)
    spoken = SpokenSteps(SimpleNamespace(), print, StepsSettings(), ["a line"])
    assert step_probabilities(spoken, transcript_of(3), "de") is None
