"""The extractive writer: steps from the speaker's own words, by grammar; no network, no language
model.

`merge_repeats` and `number_steps` join the steps that say the same thing twice and number what is
left; the language-model writer ends with them too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepline.records import Rejected, Sentence, Span, Step, Transcript, covering_span
from stepline.writing.extractive.clauses import Clause, find_clauses
from stepline.writing.extractive.english import looks_english, parse, word_set
from stepline.writing.extractive.off_topic import NO_ACTION, QUIET, off_topic_reason
from stepline.writing.extractive.phrases import COMPLETE, Phrase, imperative_phrase, is_rest
from stepline.writing.extractive.pronouns import (
    INDEFINITE,
    PRONOUNS,
    Mentions,
    mentions_before,
    mentions_in,
    mentions_of,
)
from stepline.writing.extractive.segments import Segment, split_into_segments
from stepline.writing.types import WrittenSteps, instruction_kind

if TYPE_CHECKING:
    from spacy.tokens import Doc

LONGEST_STEP = 22  # words of a step that two actions make; a recipe's line is hardly longer
# words between two actions that may still be one step: "push it up and then you want to carry it
# out"
FAR_APART = 6
BROKEN_OFF = 5.0  # s of silence in the middle of a sentence, while it is shown
LONGEST_RUN = 60  # words read as one sentence
STOPS = (".", "!", "?", ";", ":", "…")
# a next step, not more of the one before
PROCEEDING = word_set("proceed move continue start begin go")
# where "their" is somebody's: "stand behind them and put your arms around their waist"
PERSONS = ("them",)
CONTINUING = frozenset(PRONOUNS) | INDEFINITE | word_set("yourself yourselves itself themselves")
# sentences between two tellings of one action; further apart it is done again (about half a minute
# of speech)
NEAR = 6

# Words that change how an action is told but not which action it is.
_HOLLOW = word_set(
    """
    a an the my your our their his her its some this that these those then now just again also and first next
    """
)


def merge_repeats(steps: Iterable[Step], *, near: int = NEAR) -> tuple[Step, ...]:
    """Return the steps in their order, the later of two equal ones folded into the first.

    Equal means the same words but for articles, possessives and fillers, told at most `near`
    sentences apart. A step without sources is folded into an equal one wherever it stands.
    """
    kept: list[Step] = []
    # The first of `kept` that tells an action (None), tells it in a sentence (its number), tells it
    # in none (-1).
    places: dict[tuple[tuple[str, ...], int | None], int] = {}
    for step in steps:
        key = _key(step.text)
        where = [source + d for source in step.sources for d in range(-near, near + 1)]
        twins = [
            places[key, at] for at in ((-1, *where) if where else (None,)) if (key, at) in places
        ]
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
    """Return the steps with the ids "1", "2", ... in their order, each of its kind: to do or to
    avoid."""
    return tuple(
        step.model_copy(update={"id": str(i), "kind": instruction_kind(step.text)})
        for i, step in enumerate(steps, start=1)
    )


def _key(text: str) -> tuple[str, ...]:
    """Return the words that say which action it is."""
    words = re.findall(r"\w+", text.lower())
    return tuple(word for word in words if word not in _HOLLOW) or tuple(words)


def write_extractive(transcript: Transcript) -> WrittenSteps:
    """Return the clauses that tell the viewer what to do, one action with what continues it a step.

    Reads English only: for another language it returns no steps and a note that says so.
    Raises ModelError when the English parser is not installed.
    """
    foreign = _foreign(transcript)
    if foreign is not None:
        return WrittenSteps(notes=(foreign,))
    runs = _runs(transcript.sentences)
    pieces = [piece for run in runs for piece in split_into_segments(run.text, run.first)]
    docs = parse([piece.text for piece in pieces])
    mentions, by_first = Mentions(), {run.first: run for run in runs}
    found: list[_Action | Rejected] = []
    for piece, doc in zip(pieces, docs, strict=True):
        for item in _read(piece, doc, mentions):
            joined = _joined(found[-1], item) if found and isinstance(item, _Action) else None
            if joined is None:
                found.append(item)
            else:
                found[-1] = joined
    steps = merge_repeats(
        _step(item, by_first[item.sentence]) for item in found if isinstance(item, _Action)
    )
    return WrittenSteps(
        number_steps(steps), tuple(item for item in found if isinstance(item, Rejected))
    )


@dataclass(frozen=True)
class _Run:
    """Sentences that are read as one, for a pause cut them: the number of the first, and all of
    them."""

    first: int
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences)


def _runs(sentences: Sequence[Sentence]) -> list[_Run]:
    """Return the sentences, one after the other, those joined that go on in a small letter without
    a full stop.

    Only where sentences end with full stops, which captions without punctuation do not.
    """
    stops = sum(sentence.text.rstrip().endswith(STOPS) for sentence in sentences)
    runs: list[_Run] = []
    for number, sentence in enumerate(sentences):
        before = runs[-1].sentences[-1] if runs else None
        if (
            before is not None
            and 2 * stops > len(sentences)
            and sentence.text[:1].islower()
            and not before.text.rstrip().endswith(STOPS)
            and sentence.span.start - before.span.end <= BROKEN_OFF
            and len(f"{runs[-1].text} {sentence.text}".split()) <= LONGEST_RUN
        ):
            runs[-1] = replace(runs[-1], sentences=(*runs[-1].sentences, sentence))
        else:
            runs.append(_Run(number, (sentence,)))
    return runs


@dataclass(frozen=True)
class _Action:
    """One action as it will be a step: its text, the sentence, the places of its words there.

    again: the text with the pronouns that were spoken, as it stands behind another action. names:
    what they stand for.
    acted_on: what it acts on. continues: that is nothing of its own, so that it may belong to the
    action before it.
    """

    text: str
    sentence: int
    places: tuple[int, ...]
    words: tuple[str, ...]
    again: str
    names: tuple[str, ...]
    acted_on: tuple[str, ...]
    continues: bool
    negated: bool


def _joined(before: "_Action | Rejected", action: _Action) -> _Action | None:
    """Return both as one step where the later continues the earlier: "push the bar up and carry it
    out".

    Of the actions that follow each other in YouCook2's captions, annotators put into one step 82 %
    of those that act on a pronoun and 79 % of those without an object, 9 % of those with a new
    object (`benchmarks/writing.py --halves`).
    """
    if (
        not isinstance(before, _Action)
        or before.sentence != action.sentence
        or not action.continues
    ):
        return None
    between = [
        re.sub(r"[^\w']", "", word.lower())
        for word in before.words[max(before.places) + 1 : action.places[0]]
    ]
    same = all(name in before.acted_on for name in action.names)
    text = f"{before.text} and {action.again if same else action.text}"
    if (
        before.negated
        or action.negated
        or not {"and", "then"} & set(between[-3:])
        or len(between) > FAR_APART
        or any(word.endswith(STOPS) for word in before.words[max(before.places) : action.places[0]])
        or len(text.split()) > LONGEST_STEP
        or any(name not in before.text for name in action.names)
    ):
        return None
    return replace(before, text=text, places=(*before.places, *action.places))


def _foreign(transcript: Transcript) -> str | None:
    """Return a note when the transcript is not English, by its own word or, where it says none, by
    its words."""
    language = transcript.language
    if language is not None:
        if language.lower().split("-")[0] in ("en", "english"):
            return None
        heard = f"the extractive writer reads English only, the transcript is {language!r}"
        recognised = transcript.recogniser not in (None, "captions")
        return f"{heard}; {'translate it with --translate, or ' if recognised else ''}use the llm writer"
    words = [
        word
        for sentence in transcript.sentences
        for word in re.findall(r"\w+", sentence.text.lower())
    ]
    if looks_english(words):
        return None
    return "the extractive writer reads English only, and this transcript does not look like it; use the llm writer"


def _read(piece: Segment, doc: "Doc", mentions: Mentions) -> Iterator[_Action | Rejected]:
    """Yield the actions of one segment and what was refused in it, and remember what it names."""
    clauses = [
        clause
        for clause in find_clauses(doc, ordered=piece.ordered, sequenced=piece.sequenced)
        if not is_rest(clause)
    ]
    persons = (
        PERSONS if {"their", "they"} & {word.lower().strip(",.") for word in piece.spoken} else ()
    )
    for clause in clauses:
        if before := mentions_before(clause.verb):
            mentions.add(piece.sentence, before)
        worded = imperative_phrase(
            clause,
            lambda pronoun: (
                None if pronoun in persons else mentions.resolve(pronoun, piece.sentence)
            ),
        )
        reason = off_topic_reason(clause, question=piece.question) or _beside_the_point(
            clause, worded, piece
        )
        if reason is None:
            yield _action(clause, worded, piece)
        elif reason == NO_ACTION and worded.resolved and clause.verb.lemma_ == "do":
            yield _action(clause, worded, piece)  # "first up are squats: do these for a minute"
        elif reason not in QUIET:
            yield Rejected(what="step", text=worded.text, reason=reason)
        if reason is None or not reason.startswith("chat"):
            mentions.add(piece.sentence, mentions_of(clause.verb, worded.resolved))
    if all(clause.verb.lemma_ == "be" for clause in clauses) and (
        named := mentions_in(doc, announced=piece.sequenced)
    ):
        mentions.add(piece.sentence, named)


def _beside_the_point(clause: Clause, worded: Phrase, piece: Segment) -> str | None:
    """Refuse a gerund that opens the transcript (it names the whole video) and what an "or"
    threatens with."""
    if (
        clause.voice in ("you", "we", "i")
        and " " not in worded.text
        and clause.verb.lemma_ not in COMPLETE
    ):
        return NO_ACTION  # "you rest"
    if clause.voice in ("we", "i") and not any(
        token.pos_ in ("NOUN", "PROPN", "PRON", "NUM") for token in worded.tokens
    ):
        return NO_ACTION  # "we'll check in"
    if clause.voice == "title" and piece.sentence == 0:
        return "the title of the video"
    return "what happens otherwise" if piece.otherwise else None


def _action(clause: Clause, worded: Phrase, piece: Segment) -> _Action:
    acted_on = [
        child
        for child in clause.verb.children
        if child.dep_ in ("dobj", "dative") and child.i > clause.verb.i
    ]
    own = (
        any(token.dep_ == "ccomp" for token in clause.verb.children)
        or clause.verb.lemma_ in PROCEEDING
    )
    named = mentions_of(clause.verb, worded.resolved)
    own |= not acted_on and any(mention.role == "object" for mention in named)
    return _Action(
        text=worded.text,
        sentence=piece.sentence,
        places=tuple(piece.word_index(token.idx) for token in worded.tokens),
        words=piece.spoken,
        again=imperative_phrase(clause, lambda _: None).text,
        names=tuple(worded.resolved.values()),
        acted_on=tuple(mention.name for mention in named if mention.role in ("object", "product")),
        continues=not own and all(token.lower_ in CONTINUING for token in acted_on),
        negated=clause.negated,
    )


def _step(action: _Action, run: _Run) -> Step:
    words = [
        (run.first + k, place)
        for k, s in enumerate(run.sentences)
        for place in range(len(s.text.split()))
    ]
    told = words[min(action.places) : max(action.places) + 1]
    sources = tuple(dict.fromkeys(number for number, _ in told))
    said = covering_span(
        _said(run.sentences[number - run.first], [place for own, place in told if own == number])
        for number in sources
    )
    return Step(id="0", text=action.text, said=said, sources=sources)


def _said(sentence: Sentence, places: Sequence[int]) -> Span:
    """Return when the words from first to last place are spoken; the whole sentence when words
    carry no times."""
    if len(sentence.words) != len(sentence.text.split()):
        return sentence.span
    spoken = sentence.words[min(places) : max(places) + 1]
    return covering_span(word.span for word in spoken) or sentence.span
