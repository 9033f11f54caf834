"""The extractive writer: steps from the speaker's own words, by grammar; no network, no language model.

`merge_repeats` and `number_steps` join the steps that say the same thing twice and number what is left; the
language-model writer ends with them too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from stepline.records import Rejected, Sentence, Span, Step, Transcript
from stepline.writing.extractive.clauses import Clause, find_clauses
from stepline.writing.extractive.english import looks_english, parse, word_set
from stepline.writing.extractive.off_topic import NO_ACTION, QUIET, off_topic_reason
from stepline.writing.extractive.phrases import COMPLETE, Phrase, imperative_phrase, is_rest
from stepline.writing.extractive.pronouns import Mentions, mentions_before, mentions_in, mentions_of
from stepline.writing.extractive.segments import Segment, split_into_segments
from stepline.writing.types import WrittenSteps, instruction_kind

if TYPE_CHECKING:
    from spacy.tokens import Doc

NEAR = 6  # sentences between two tellings of one action; further apart it is done again (about half a minute of speech)

# Words that change how an action is told but not which action it is.
_HOLLOW = word_set(
    """
    a an the my your our their his her its some this that these those then now just again also and first next
    """
)


def merge_repeats(steps: Iterable[Step], *, near: int = NEAR) -> tuple[Step, ...]:
    """Return the steps in their order, the later of two equal ones folded into the first.

    Equal means the same words but for articles, possessives and fillers, told at most `near` sentences apart.
    A step without sources is folded into an equal one wherever it stands.
    """
    kept: list[Step] = []
    # The first of `kept` that tells an action (None), tells it in a sentence (its number), tells it in none (-1).
    places: dict[tuple[tuple[str, ...], int | None], int] = {}
    for step in steps:
        key = _key(step.text)
        where = [source + d for source in step.sources for d in range(-near, near + 1)]
        twins = [places[key, at] for at in ((-1, *where) if where else (None,)) if (key, at) in places]
        place = min(twins, default=len(kept))
        if place == len(kept):
            kept.append(step)
        else:
            first = kept[place]
            sources = tuple(sorted({*first.sources, *step.sources}))
            said = covering_span([first.said, step.said])
            kept[place] = first.model_copy(update={"sources": sources, "said": said})
            if sources and places.get((key, -1)) == place:
                del places[key, -1]
        for at in (None, *kept[place].sources) if kept[place].sources else (None, -1):
            places[key, at] = min(place, places.get((key, at), place))
    return tuple(kept)


def number_steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps with the ids "1", "2", ... in their order, each of its kind: to do or to avoid."""
    return tuple(
        step.model_copy(update={"id": str(i), "kind": instruction_kind(step.text)})
        for i, step in enumerate(steps, start=1)
    )


def covering_span(spans: Iterable[Span | None]) -> Span | None:
    """Return the shortest span that covers all the known ones; None when none is known."""
    known = [span for span in spans if span is not None]
    if not known:
        return None
    return Span(min(span.start for span in known), max(span.end for span in known))


def _key(text: str) -> tuple[str, ...]:
    """Return the words that say which action it is."""
    words = re.findall(r"\w+", text.lower())
    return tuple(word for word in words if word not in _HOLLOW) or tuple(words)


def write_extractive(transcript: Transcript) -> WrittenSteps:
    """Return the clauses that tell the viewer what to do, one imperative action a step.

    Reads English only: for another language it returns no steps and a note that says so.
    Raises ModelError when the English parser is not installed.
    """
    foreign = _foreign(transcript)
    if foreign is not None:
        return WrittenSteps(notes=(foreign,))
    pieces = [piece for i, s in enumerate(transcript.sentences) for piece in split_into_segments(s.text, i)]
    docs = parse([piece.text for piece in pieces])
    mentions = Mentions()
    found = [item for piece, doc in zip(pieces, docs, strict=True) for item in _read(piece, doc, transcript, mentions)]
    steps = merge_repeats(item for item in found if isinstance(item, Step))
    return WrittenSteps(number_steps(steps), tuple(item for item in found if isinstance(item, Rejected)))


def _foreign(transcript: Transcript) -> str | None:
    """Return a note when the transcript is not English, by its own word or, where it says none, by its words."""
    language = transcript.language
    if language is not None:
        if language.lower().split("-")[0] in ("en", "english"):
            return None
        heard = f"the extractive writer reads English only, the transcript is {language!r}"
        recognised = transcript.recogniser not in (None, "captions")
        return f"{heard}; {'translate it with --translate, or ' if recognised else ''}use the llm writer"
    words = [word for sentence in transcript.sentences for word in re.findall(r"\w+", sentence.text.lower())]
    if looks_english(words):
        return None
    return "the extractive writer reads English only, and this transcript does not look like it; use the llm writer"


def _read(piece: Segment, doc: "Doc", transcript: Transcript, mentions: Mentions) -> Iterator[Step | Rejected]:
    """Yield the steps of one segment and what was refused in it, and remember what it names."""
    clauses = [
        clause for clause in find_clauses(doc, ordered=piece.ordered, sequenced=piece.sequenced) if not is_rest(clause)
    ]
    for clause in clauses:
        if before := mentions_before(clause.verb):
            mentions.add(piece.sentence, before)
        worded = imperative_phrase(clause, lambda pronoun: mentions.resolve(pronoun, piece.sentence))
        reason = off_topic_reason(clause, question=piece.question) or _beside_the_point(clause, worded, piece)
        if reason is None:
            yield _step(worded, piece, transcript.sentences[piece.sentence])
        elif reason not in QUIET:
            yield Rejected(what="step", text=worded.text, reason=reason)
        if reason is None or not reason.startswith("chat"):
            mentions.add(piece.sentence, mentions_of(clause.verb, worded.resolved))
    if not clauses and (named := mentions_in(doc)):
        mentions.add(piece.sentence, named)


def _beside_the_point(clause: Clause, worded: Phrase, piece: Segment) -> str | None:
    """Refuse a gerund that opens the transcript (it names the whole video) and what an "or" threatens with."""
    if clause.voice in ("you", "we", "i") and " " not in worded.text and clause.verb.lemma_ not in COMPLETE:
        return NO_ACTION  # "you rest", "we'll check in"
    if clause.voice == "title" and piece.sentence == 0:
        return "the title of the video"
    return "what happens otherwise" if piece.otherwise else None


def _step(worded: Phrase, piece: Segment, sentence: Sentence) -> Step:
    places = [piece.word_index(token.idx) for token in worded.tokens]
    return Step(id="0", text=worded.text, said=_said(sentence, places), sources=(piece.sentence,))


def _said(sentence: Sentence, places: Sequence[int]) -> Span:
    """Return when the words from first to last place are spoken; the whole sentence when words carry no times."""
    if len(sentence.words) != len(sentence.text.split()):
        return sentence.span
    spoken = sentence.words[min(places) : max(places) + 1]
    return covering_span(word.span for word in spoken) or sentence.span
