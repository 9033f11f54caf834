"""Transcripts of sentences that follow each other at equal distances."""

from stepline.records import Sentence, Span, Transcript


def transcript_of(*texts, every=10.0, seconds=None, language="en"):
    """A transcript whose sentence i begins at second i * every; seconds: how long each lasts, to
    the next unless given."""
    length = every if seconds is None else seconds
    sentences = []
    for number, text in enumerate(texts):
        sentences.append(Sentence(text=text, span=Span(every * number, every * number + length)))
    return Transcript(language=language, sentences=tuple(sentences))
