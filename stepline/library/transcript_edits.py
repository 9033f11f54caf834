"""Edits of a transcript: a sentence gets other words, is joined with another, or is dropped.

    table = SentenceTable(record.sentences)
    table.apply(WordsEdit(do="words", sentence=3, text="Pour the milk into the bowl."))
    transcript.model_copy(update={"sentences": table.sentences()})

A sentence is named by its index in the machine's record, whatever was joined or dropped since. A
joined sentence has the first of its indices.
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, model_validator

from stepline.errors import StoreError
from stepline.outputs.text import one_line
from stepline.records import FrozenModel, Sentence, Span, Word, covering_span

MAX_SENTENCE_CHARS = 2000

SentenceId = Annotated[int, Field(ge=0)]  # index in the machine's record


class WordsEdit(FrozenModel):
    """New words of a sentence. Words that stay keep their times, the others share those between.

    Attributes:
        sentence: index of the sentence in the machine's record.
        text: the words, separated by spaces.
    """

    do: Literal["words"]
    sentence: SentenceId
    text: Annotated[str, Field(max_length=MAX_SENTENCE_CHARS, pattern=r"\S")]


class JoinEdit(FrozenModel):
    """Join of a sentence with a later one. It keeps the first index.

    Attributes:
        sentences: indices of both sentences in the machine's record.
    """

    do: Literal["join"]
    sentences: tuple[SentenceId, SentenceId]

    @model_validator(mode="after")
    def _check_order(self) -> "JoinEdit":
        first, second = self.sentences
        if first >= second:
            raise ValueError("a sentence is joined with a later one")
        return self


class DropEdit(FrozenModel):
    """Removal of a sentence that no one says.

    Attributes:
        sentence: index of the sentence in the machine's record.
    """

    do: Literal["drop"]
    sentence: SentenceId


SentenceEdit = WordsEdit | JoinEdit | DropEdit


def edited_sentences(edit: SentenceEdit) -> tuple[int, ...]:
    """Return the indices of the sentences that an edit changes."""
    return edit.sentences if isinstance(edit, JoinEdit) else (edit.sentence,)


class SentenceTable:
    """The sentences of a record while edits are applied.

    Attributes:
        machine: the sentences of the machine's record.
    """

    def __init__(self, machine: Sequence[Sentence]) -> None:
        self.machine = machine
        self._sentences = dict(enumerate(machine))
        self._joined_into: dict[int, int] = {}

    def apply(self, edit: SentenceEdit) -> None:
        """Apply one edit. Raises StoreError for a sentence that is not there."""
        first, *others = (self._sentence(id) for id in edited_sentences(edit))
        match edit:
            case WordsEdit():
                self._sentences[edit.sentence] = _with_text(first, one_line(edit.text))
            case JoinEdit():
                kept, gone = edit.sentences
                self._sentences[kept] = _joined(first, *others)
                del self._sentences[gone]
                self._joined_into[gone] = kept
            case DropEdit():
                del self._sentences[edit.sentence]

    def ids(self) -> tuple[int, ...]:
        """Return the indices in the machine's record of the sentences that are left, by start."""
        return tuple(sorted(self._sentences, key=lambda id: (self._sentences[id].span.start, id)))

    def current(self, id: int) -> Sentence:
        """Return a sentence as corrected, or the machine's if it was dropped or joined to another.

        Raises StoreError for an unknown one.
        """
        if id < len(self.machine) and id not in self._sentences:
            return self.machine[id]
        return self._sentence(id)

    def sentences(self) -> tuple[Sentence, ...]:
        """Return the sentences that are left, sorted by start."""
        return tuple(self._sentences[id] for id in self.ids())

    def current_sources(self, sources: Iterable[int]) -> tuple[int, ...]:
        """Return machine indices of sentences as indices of `sentences()`, without dropped ones."""
        positions = {id: position for position, id in enumerate(self.ids())}
        found = set()
        for id in sources:
            while id in self._joined_into:
                id = self._joined_into[id]
            if id in positions:
                found.add(positions[id])
        return tuple(sorted(found))

    def _sentence(self, id: int) -> Sentence:
        if id not in self._sentences:
            raise StoreError(
                f"sentence {id + 1} is not in the transcript, was joined or dropped; "
                "load the video again"
            )
        return self._sentences[id]


def _joined(first: Sentence, second: Sentence) -> Sentence:
    span = covering_span((first.span, second.span)) or first.span
    shown = [sentence.shown for sentence in (first, second) if sentence.shown is not None]
    # Words with times only if both sentences have them.
    words = (*first.words, *second.words) if first.words and second.words else ()
    return Sentence(
        text=f"{first.text} {second.text}",
        span=span,
        words=words,
        confidence=_mean_confidence(words),
        shown=max(shown, default=None),
    )


def _with_text(sentence: Sentence, text: str) -> Sentence:
    words = _timed_words(sentence.words, text.split()) if sentence.words else ()
    update = {"text": text, "words": words, "confidence": _mean_confidence(words)}
    return sentence.model_copy(update=update)


def _mean_confidence(words: Iterable[Word]) -> float | None:
    known = [word.confidence for word in words if word.confidence is not None]
    return fmean(known) if known else None


def _timed_words(old: Sequence[Word], texts: Sequence[str]) -> tuple[Word, ...]:
    """Return words with times: words that stay keep theirs, the others share those between.

    Args:
        old: the recognised words, at least one.
        texts: the corrected words.
    """
    keys = [_word_key(word.text) for word in old]
    matcher = SequenceMatcher(None, keys, list(map(_word_key, texts)), autojunk=False)
    groups: list[tuple[Sequence[Word], Sequence[str]]] = []
    for change, start, end, first, last in matcher.get_opcodes():
        if change == "equal":
            pairs = zip(old[start:end], texts[first:last], strict=True)
            groups += [((word,), (text,)) for word, text in pairs]
        elif change == "insert" and groups:
            # No time was theirs, so the word before them shares its own.
            before, kept = groups.pop()
            groups.append((before, (*kept, *texts[first:last])))
        else:
            groups.append((old[start:end], tuple(texts[first:last])))
    if not groups[0][0]:  # inserted before the first word
        (_, inserted), (after, kept) = groups[:2]
        groups[:2] = [(after, (*inserted, *kept))]
    words: list[Word] = []
    for before, group in groups:
        words += _share_time(before, group)
    return tuple(words)


def _word_key(text: str) -> str:
    return text.strip(".,;:!?\"'").casefold()


def _share_time(old: Sequence[Word], texts: Sequence[str]) -> list[Word]:
    """Return words in the place of others, whose time they share by their numbers of letters."""
    if len(old) == len(texts) == 1 and _word_key(old[0].text) == _word_key(texts[0]):
        return [old[0].model_copy(update={"text": texts[0]})]
    span = covering_span(word.span for word in old)
    if span is None:
        return [Word(text=text) for text in texts]
    seconds_per_letter = span.duration / max(1, sum(map(len, texts)))
    words = []
    start = span.start
    for text in texts:
        end = start + len(text) * seconds_per_letter
        words.append(Word(text=text, span=Span(start, end)))
        start = end
    return words
