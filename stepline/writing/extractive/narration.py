"""A narration parsed once for the writer, the title and the materials: its sentences joined into
units, the tagger's probabilities and the spaCy document of each unit."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepline.records import Sentence, Transcript
from stepline.text.narration import SentenceTags, load_tagger
from stepline.text.narration.words import looks_english, spoken_words
from stepline.writing.extractive.english import parse, parser
from stepline.writing.settings import WritingSettings

if TYPE_CHECKING:
    from spacy.tokens import Doc

MAX_SENTENCE_PAUSE_SECONDS = 5.0  # of silence in the middle of a sentence, while it is shown
MAX_UNIT_WORDS = 60  # words read as one sentence
SENTENCE_ENDS = (".", "!", "?", ";", ":", "…")


@dataclass(frozen=True)
class NarrationUnit:
    """One spoken sentence, joined from the transcript sentences into which pauses cut it.

    Attributes:
        first_sentence: index in the transcript of its first transcript sentence.
        sentences: its consecutive transcript sentences.
    """

    first_sentence: int
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """The texts of its transcript sentences, joined by spaces."""
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def words(self) -> list[str]:
        """Its spoken words: those with a letter or digit, punctuation attached."""
        return spoken_words(self.text)

    def word_positions(self) -> Iterator[tuple[int, int]]:
        """Yield two indices per spoken word: that of its transcript sentence, and its own among the
        words of that sentence."""
        for number, sentence in enumerate(self.sentences, start=self.first_sentence):
            for word_index, word in enumerate(sentence.text.split()):
                if spoken_words(word):
                    yield number, word_index


def join_sentences(sentences: Sequence[Sentence]) -> list[NarrationUnit]:
    """Return transcript sentences as units: a sentence that begins with a small letter is joined to
    the one before it.

    Nothing is joined where half of the sentences or more end without punctuation, as in automatic
    captions.
    """
    punctuated_count = sum(sentence.text.rstrip().endswith(SENTENCE_ENDS) for sentence in sentences)
    is_punctuated = 2 * punctuated_count > len(sentences)
    units: list[NarrationUnit] = []
    for number, sentence in enumerate(sentences):
        if units and is_punctuated and _continues_sentence(units[-1], sentence):
            previous = units[-1]
            units[-1] = replace(previous, sentences=(*previous.sentences, sentence))
        else:
            units.append(NarrationUnit(number, (sentence,)))
    return units


def _continues_sentence(unit: NarrationUnit, sentence: Sentence) -> bool:
    """Return whether a transcript sentence is the rest of the unit before it."""
    last_sentence = unit.sentences[-1]
    has_ended = last_sentence.text.rstrip().endswith(SENTENCE_ENDS)
    if has_ended or not sentence.text[:1].islower():
        return False
    silence = sentence.span.start - last_sentence.span.end
    length = len(f"{unit.text} {sentence.text}".split())
    return silence <= MAX_SENTENCE_PAUSE_SECONDS and length <= MAX_UNIT_WORDS


def non_english_note(transcript: Transcript) -> str | None:
    """Return a note to the user for a transcript that is not English, None for an English one.

    The transcript's language decides, or its words if the language is None.
    """
    language = transcript.language
    if language is not None:
        if language.lower().split("-")[0] in ("en", "english"):
            return None
        reason = f"the extractive writer reads English only, the transcript is {language!r}"
        # Only a recogniser can translate. Captions are in the language that they have.
        was_recognised = transcript.recogniser not in (None, "captions")
        hint = "translate it with --translate, or " if was_recognised else ""
        return f"{reason}; {hint}use the llm writer"
    # Without a stated language, the words decide.
    text = " ".join(sentence.text for sentence in transcript.sentences)
    if looks_english(re.findall(r"\w+", text.lower())):
        return None
    reason = "the extractive writer reads English only, and this transcript does not look like it"
    return f"{reason}; use the llm writer"


@dataclass(frozen=True)
class ParsedNarration:
    """A parsed English narration of S units.

    Attributes:
        units: the spoken sentences, in order.
        sentence_tags: the tagger's probabilities of each unit.
        docs: the spaCy document of each unit's spoken words.
    """

    units: tuple[NarrationUnit, ...]
    sentence_tags: tuple[SentenceTags, ...]
    docs: "tuple[Doc, ...]"

    @property
    def texts(self) -> list[str]:
        """The text of each unit."""
        return [unit.text for unit in self.units]


def parse_narration(
    transcript: Transcript, settings: WritingSettings | None = None
) -> ParsedNarration:
    """Return the units of an English transcript with their tags and spaCy documents.

    settings: names the narration tagger; None is the one that is shipped.
    Raises ModelError when the English parser or the sentence encoder is not installed.
    """
    settings = settings or WritingSettings()
    units = join_sentences(transcript.sentences)
    # The parser loads while the tagger reads, so that neither waits for the other.
    with ThreadPoolExecutor(1, thread_name_prefix="load-parser") as pool:
        loading = pool.submit(parser)
        tagger = load_tagger(settings.step_scorer)
        sentence_tags = tagger.tag_sentences([unit.text for unit in units])
        # What the load raised, such as a missing parser, is raised here.
        loading.result()
    docs = parse([" ".join(unit.words) for unit in units])
    return ParsedNarration(tuple(units), tuple(sentence_tags), tuple(docs))
