"""The extractive writer: steps from the speaker's own words, by grammar; no network, no language model."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stepline.records import Dropped, Sentence, Span, Step, Transcript
from stepline.writing.chat import QUIET, refusal
from stepline.writing.clauses import Clause, find_clauses
from stepline.writing.complements import is_rest
from stepline.writing.english import looks_english, parse
from stepline.writing.merge import merge_repeats, number, union
from stepline.writing.phrase import Phrase, phrase
from stepline.writing.pronouns import Mentions, mentions_before, mentions_in, mentions_of
from stepline.writing.spoken import Segment, segments
from stepline.writing.written import Written

if TYPE_CHECKING:
    from spacy.tokens import Doc


def write_extractive(transcript: Transcript) -> Written:
    """Return the clauses that tell the viewer what to do, one imperative action a step.

    Reads English only: for another language it returns no steps and a note that says so.
    Raises ModelError when the English parser is not installed.
    """
    foreign = _foreign(transcript)
    if foreign is not None:
        return Written(notes=(foreign,))
    pieces = [piece for i, s in enumerate(transcript.sentences) for piece in segments(s.text, i)]
    docs = parse([piece.text for piece in pieces])
    mentions = Mentions()
    found = [item for piece, doc in zip(pieces, docs, strict=True) for item in _read(piece, doc, transcript, mentions)]
    steps = merge_repeats(item for item in found if isinstance(item, Step))
    return Written(number(steps), tuple(item for item in found if isinstance(item, Dropped)))


def _foreign(transcript: Transcript) -> str | None:
    """Return a note when the transcript is not English, by its own word or, where it says none, by its words."""
    language = transcript.language
    if language is not None:
        if language.lower().split("-")[0] in ("en", "english"):
            return None
        return f"the extractive writer reads English only, the transcript is {language!r}; use the llm writer"
    words = [word for sentence in transcript.sentences for word in re.findall(r"\w+", sentence.text.lower())]
    if looks_english(words):
        return None
    return "the extractive writer reads English only, and this transcript does not look like it; use the llm writer"


def _read(piece: Segment, doc: "Doc", transcript: Transcript, mentions: Mentions) -> Iterator[Step | Dropped]:
    """Yield the steps of one segment and what was refused in it, and remember what it names."""
    clauses = [clause for clause in find_clauses(doc, ordered=piece.ordered, told=piece.told) if not is_rest(clause)]
    for clause in clauses:
        if before := mentions_before(clause.verb):
            mentions.add(piece.sentence, before)
        worded = phrase(clause, lambda pronoun: mentions.resolve(pronoun, piece.sentence))
        reason = refusal(clause, question=piece.question) or _beside_the_point(clause, piece)
        if reason is None:
            yield _step(worded, piece, transcript.sentences[piece.sentence])
        elif reason not in QUIET:
            yield Dropped(what="step", text=worded.text, reason=reason)
        if reason is None or not reason.startswith("chat"):
            mentions.add(piece.sentence, mentions_of(clause.verb, worded.resolved))
    if not clauses and (named := mentions_in(doc)):
        mentions.add(piece.sentence, named)


def _beside_the_point(clause: Clause, piece: Segment) -> str | None:
    """Refuse a gerund that opens the transcript (it names the whole video) and what an "or" threatens with."""
    if clause.voice == "title" and piece.sentence == 0:
        return "the title of the video"
    return "what happens otherwise" if piece.otherwise else None


def _step(worded: Phrase, piece: Segment, sentence: Sentence) -> Step:
    places = [piece.place(token.idx) for token in worded.tokens]
    return Step(id="0", text=worded.text, said=_said(sentence, places), sources=(piece.sentence,))


def _said(sentence: Sentence, places: Sequence[int]) -> Span:
    """Return when the words from first to last place are spoken; the whole sentence when words carry no times."""
    if len(sentence.words) != len(sentence.text.split()):
        return sentence.span
    spoken = sentence.words[min(places) : max(places) + 1]
    return union(word.span for word in spoken) or sentence.span
