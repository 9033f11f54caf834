"""The form for small models: a conversation in which the model writes up sentences that were chosen.

    before     "That's the old bulb, and here's my new one."
    write up   "Pop that in there and give it a quarter turn. My dad taught me that."
    answer     "Put the new bulb into the lamp.", "Turn the bulb a quarter turn."

The step scorer chooses, and the model only writes: left to choose, models of this size copy everything
or invent. Examples are earlier turns of the conversation, and so are the last passages, with the lines
that were kept. Each line of an answer is checked by itself. What fails is asked for once more, with
the fault named. Where the answer still fails, the extractive writer's steps take its place.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from stepline.llm import quoted
from stepline.llm.checked_requests import CheckedQuestion, CheckedRequests
from stepline.llm.servers import Answer, Conversation
from stepline.numeric import logit
from stepline.records import Rejected, Sentence, Step, covering_span
from stepline.text import embed as minilm
from stepline.text.narration import load_tagger
from stepline.text.narration.words import COMMON_ENGLISH_WORDS, bare_word, word_set
from stepline.writing.extractive.english import base_form, parse, verbs
from stepline.writing.extractive.narration import ParsedNarration
from stepline.writing.extractive.off_topic import IMPERATIVE_STATE_VERBS, SPEECH_VERBS, STATE_VERBS
from stepline.writing.extractive.step_score import step_probabilities
from stepline.writing.llm.citing import (
    LIGHT_LEMMAS,
    Embed,
    cite_sources,
    content_words,
    reject_unsaid,
)
from stepline.writing.llm.prompts import Chunk, ChunkSteps, read_template
from stepline.writing.llm.replies import parse_reply
from stepline.writing.quantities import find_quantities, numbers
from stepline.writing.settings import LlmSettings

if TYPE_CHECKING:
    from spacy.tokens import Doc

Amount = Literal["few", "usual", "all"]

MIN_EDITED_PROBABILITY = 0.2  # P(a sentence describes a step) from which it is written up
# Log odds from which a line is a step: those of its sentence, and half of those that the tagger
# gives to the line alone.
MIN_LINE_LOG_ODDS: dict[Amount, float] = {"few": 1.0, "usual": 0.0, "all": -2.0}
LINE_WEIGHT = 0.5
MARGIN = 0.001  # of probabilities, from 0 and 1
PASSAGE_WORDS = 32  # of consecutive chosen sentences that are written up together
FRAGMENT_WORDS = 3  # so few still join a full passage: "Let it run for." "10 seconds."
MAX_PASSAGE_PAUSE_SECONDS = 5.0  # between two sentences of one passage
CONTEXT_WORDS = 60  # of what was said since the last passage that a message quotes
# Characters of the last turns that a conversation holds. Once there are more, half of them leave
# together, so that a model on this machine rarely reads turns again.
MAX_HISTORY_CHARS = 7000
CHARS_PER_TOKEN = 3  # of English, at least
START_TOKENS = 1600  # of the instruction, the examples, a question and its answer
MAX_UNSAID_NAMES = 1  # of a line, which nobody has said so far
NAME_TAGS = frozenset({"NOUN", "PROPN", "ADJ"})  # spaCy's coarse tags of them
MIN_SUPPORT_COSINE = 0.2  # of a line and a sentence of its passage, from which it may be cited
EXAMPLES_MARK = "\n=====\n"  # between the turns of the template
ANSWER_MARK = "\n-----\n"  # before the answer of a turn

POINTERS = word_set("it this these those them they here")
SPEAKER_WORDS = word_set("i my me we us our mine")
# A model on this machine cannot write these, and so writes the name that what was said gives. What a
# presenter will show is no step.
BANNED_TOKENS = (
    "Show",
    *(
        token
        for word in sorted(POINTERS | SPEAKER_WORDS - {"mine"})
        for token in (f" {word}", f" {word.capitalize()}", word.capitalize())
    ),
)
CONDITION_WORDS = word_set(
    "if when once before after while as until unless for to with in on at from"
)
NEGATIONS = word_set("do don't never not avoid")
OPENING_WORDS = word_set("and but so now then also again")
INFLECTED_ENDINGS = ("ing", "ed")
NO_ACTION_VERBS = (STATE_VERBS - IMPERATIVE_STATE_VERBS) | SPEECH_VERBS
NOT_IMPERATIVE_REASON = "no order: it does not begin with the verb of an action"
REPEATED_REASON = "repeats a step of before, which is not told here"
NOT_A_STEP_REASON = "talk or a reason rather than a step of the work"
SPEAKER_REASON = "speaks of the speaker"
UNSAID_VERB_REASON = "begins with a verb that nobody says here"


@dataclass(frozen=True)
class Passage:
    """Chosen sentences that a language model writes up together.

    Attributes:
        chunk: the sentences.
        before: what was said since the last passage.
        step_log_odds: log odds of P(a sentence describes a step), of the most likely sentence.
    """

    chunk: Chunk
    before: str
    step_log_odds: float


def choose_passages(narration: ParsedNarration, withheld: Sequence[int] = ()) -> list[Passage]:
    """Return the passages of a narration: the sentences that may describe a step, in order.

    Args:
        narration: the parsed transcript, in English.
        withheld: indices of the transcript's sentences to leave out.
    """
    probabilities = step_probabilities(narration.sentence_tags, narration.texts)
    log_odds = logit(probabilities, MARGIN)
    passages: list[Passage] = []
    indices: list[int] = []
    sentences: list[Sentence] = []
    before: list[str] = []
    odds: list[float] = []

    def end_passage() -> None:
        if sentences:
            chunk = Chunk(len(passages) + 1, tuple(indices), tuple(sentences))
            said = " ".join(" ".join(before).split()[-CONTEXT_WORDS:])
            passages.append(Passage(chunk, said, max(odds)))
            for held in (indices, sentences, before, odds):
                held.clear()

    for unit, probability, unit_odds in zip(narration.units, probabilities, log_odds, strict=True):
        unit_indices = range(unit.first_sentence, unit.first_sentence + len(unit.sentences))
        if not set(withheld).isdisjoint(unit_indices):
            continue
        if probability < MIN_EDITED_PROBABILITY:
            end_passage()
            before.append(unit.text)
            continue
        words = len(unit.text.split())
        held_words = sum(len(sentence.text.split()) for sentence in sentences)
        is_full = held_words + words > PASSAGE_WORDS and words > FRAGMENT_WORDS
        if sentences:
            pause = sentences[-1].span.pause(unit.sentences[0].span)
            if is_full or pause > MAX_PASSAGE_PAUSE_SECONDS:
                end_passage()
        indices += unit_indices
        sentences += unit.sentences
        odds.append(float(unit_odds))
    end_passage()
    return passages


@cache
def conversation_start() -> tuple[dict[str, str], ...]:
    """Return the first messages of every conversation: the instruction and worked examples, as
    {"role", "content"}."""
    instruction, *turns = read_template("editing").strip().split(EXAMPLES_MARK)
    messages = [{"role": "system", "content": instruction}]
    for turn in turns:
        messages += _make_turn(*turn.split(ANSWER_MARK))
    return tuple(messages)


def _make_turn(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def passage_question(passage: Passage, fault: str = "") -> str:
    """Return the message that asks to write up a passage.

    fault: what was wrong with the first answer, "" for the first question.
    """
    before = quoted(passage.before) or "-"
    said = quoted(" ".join(sentence.text for sentence in passage.chunk.sentences))
    question = f"Said before: {before}\nWrite up: {said}"
    return f"{question}\nMind: {fault}" if fault else question


@dataclass(frozen=True)
class CheckedLines:
    """The lines of a language model's answer after the checks.

    Attributes:
        texts: the lines that are accepted as steps.
        dropped: the other lines, with their reasons.
        retry_reason: what is wrong with the answer, so that the model is asked once more. "" if
            nothing is wrong.
    """

    texts: tuple[str, ...]
    dropped: tuple[Rejected, ...]
    retry_reason: str


@dataclass(frozen=True)
class PassageEditor(CheckedRequests):
    """Asks a language model to write up one passage after the other as steps.

    Attributes:
        settings: server or model file, and limits.
        drafts: the extractive writer's steps. The model's steps must hold their numbers.
        amount: how many lines count as steps.
        embed: returns one unit vector per text, (N, D).
        history: the last turns of the conversation, as messages.
        said: lemmas of the content words that were said so far.
    """

    settings: LlmSettings
    drafts: Sequence[Step]
    amount: Amount = "usual"
    embed: Embed = minilm
    history: list[dict[str, str]] = field(default_factory=list)
    said: set[str] = field(default_factory=set)

    def write(self, passage: Passage) -> ChunkSteps:
        """Return the model's steps of the next passage, or the reason why there are none."""
        chunk = passage.chunk
        self.said.update(*content_words([passage.before, chunk.text]))
        drafts = [step for step in self.drafts if set(chunk.indices).issuperset(step.sources)]
        earlier = (*conversation_start(), *self.history)

        def content(fault: str) -> Conversation:
            question = passage_question(passage, fault)
            return Conversation((*earlier, {"role": "user", "content": question}), BANNED_TOKENS)

        written = {
            line
            for message in self.history
            if message["role"] == "assistant"
            for line in message["content"].splitlines()
        }

        def check(answer: Answer) -> CheckedLines:
            return check_lines(answer, chunk, drafts, self.said, written)

        chat = "\n".join(message["content"] for message in content("").messages)
        reply = self.ask(
            CheckedQuestion(
                {"form": "edit", "chat": chat}, content, check, lambda checked: checked.retry_reason
            )
        )
        if not reply.readings and reply.fault is not None:
            return ChunkSteps(
                chunk, fallback_reason=reply.fault.reason, is_rejected=reply.fault.rejected
            )
        # the later one of two answers, unless it has no lines
        best = max(reversed(reply.readings), key=lambda checked: bool(checked.texts))
        steps, unsupported = cite_sources(
            best.texts, chunk, floor=MIN_SUPPORT_COSINE, embed=self.embed
        )
        kept, unsaid = reject_unsaid(steps, chunk, passage.before)
        dropped = [*best.dropped, *unsupported, *(rejected for _, rejected in unsaid)]
        # Our own step tells an amount that the model loses.
        said = numbers(" . ".join(step.text for step in kept))
        lost = {
            index
            for step in drafts
            if find_quantities(step.text) and numbers(step.text) - said
            for index in step.sources
        }
        if kept:
            self.history.extend(
                _make_turn(passage_question(passage), "\n".join(step.text for step in kept))
            )
        max_chars = MAX_HISTORY_CHARS
        if self.settings.gguf is not None:
            max_chars = min(max_chars, CHARS_PER_TOKEN * (self.settings.context - START_TOKENS))
        if sum(len(message["content"]) for message in self.history) > max_chars:
            del self.history[: len(self.history) // 4 * 2]
        # A verb that nobody says here is often that of another action. Our own step takes its place.
        words = f"{passage.before} {chunk.text}".split()
        said_verbs = NEGATIONS | CONDITION_WORDS | {base_form(word, None) for word in words}
        likely: list[Step] = []
        retold: set[int] = set()
        told: set[int] = set()
        for step in kept:
            # the first word that is no adverb
            step_words = map(bare_word, step.text.split())
            if next(word for word in step_words if not _is_adverb(word)) not in said_verbs:
                reason = UNSAID_VERB_REASON
                retold.update(step.sources)
            else:
                told.update(step.sources)
                if self._is_likely(passage, step.text):
                    likely.append(step)
                    continue
                reason = NOT_A_STEP_REASON
            dropped.append(Rejected(what="step", text=step.text, reason=reason))
        return ChunkSteps(
            chunk,
            tuple(_with_word_times([s for s in likely if lost.isdisjoint(s.sources)], chunk)),
            tuple(dropped),
            fallback_sentences=tuple(sorted(lost | retold - told)) if kept else chunk.indices,
        )

    def _is_likely(self, passage: Passage, line: str) -> bool:
        """Return whether a line likely is a step of the work, by P(step) of its sentence and of its
        own words."""
        tags = load_tagger().tag_sentences([f"{line}."])[0]
        line_odds = float(logit(np.array(tags.step_probability), MARGIN))
        return passage.step_log_odds + LINE_WEIGHT * line_odds >= MIN_LINE_LOG_ODDS[self.amount]


def check_lines(
    answer: Answer, chunk: Chunk, drafts: Sequence[Step], said: set[str], written: AbstractSet[str]
) -> CheckedLines:
    """Return the lines of an answer that are steps, and what is wrong with the others.

    Args:
        answer: of the model.
        chunk: the sentences that it writes up.
        drafts: the extractive writer's steps of these sentences.
        said: content words that were said so far, as lemmas.
        written: the lines of earlier passages, which the model may repeat.
    """
    reply = parse_reply(
        answer.text,
        spoken=chunk.text,
        sentences=len(chunk.sentences),
        complete=answer.complete,
        form="lines",
    )
    texts: list[str] = []
    dropped = list(reply.dropped)
    faults = []
    for doc in parse([to_imperative(text) for text in reply.texts]):
        reason = line_fault(doc, said)
        if doc.text in written:
            line_words, chunk_words = content_words([doc.text, chunk.text])
            if not line_words <= chunk_words:
                reason = REPEATED_REASON
        if reason is not None:
            dropped.append(Rejected(what="step", text=doc.text, reason=reason))
            continue
        pointers = sorted(POINTERS & {word.lower_ for word in doc})
        if pointers:
            faults.append(f'name the thing for "{pointers[0]}"')
        if doc.text not in texts:
            texts.append(doc.text)
    lost = numbers(" . ".join(step.text for step in drafts)) - numbers(" . ".join(texts))
    if lost:
        faults.append(f"keep {', '.join(f'{number:g}' for number in sorted(lost))}")
    if reply.refusal is not None or (not texts and drafts):
        faults = ["write one order a line, each beginning with its verb"]
    return CheckedLines(tuple(texts), tuple(dropped), "; ".join(faults))


def to_imperative(text: str) -> str:
    """Return a line without the words before its imperative, its verb in the base form: "And holding it
    flat." is "Hold it flat"."""
    words = text.rstrip(".").split()
    while len(words) > 1 and bare_word(words[0]) in OPENING_WORDS:
        del words[0]
    first = 0
    while first < len(words) - 1 and _is_adverb(bare_word(words[first])):
        first += 1
    bare = bare_word(words[first]) if words else ""
    if bare.endswith(INFLECTED_ENDINGS) and bare not in verbs():
        base = base_form(bare, None)
        if base is not None:
            words[first] = words[first].lower().replace(bare, base)
    line = " ".join(words)
    return line[:1].upper() + line[1:]


def line_fault(doc: "Doc", said: set[str]) -> str | None:
    """Return why a line is no step, None for a step.

    Args:
        doc: the parsed line.
        said: content words that were said so far, as lemmas.
    """
    if not _begins_with_verb(doc):
        return NOT_IMPERATIVE_REASON
    if SPEAKER_WORDS & {word.lower_ for word in doc}:
        return SPEAKER_REASON
    unsaid = {word.lemma_.lower() for word in doc if word.pos_ in NAME_TAGS} - said - LIGHT_LEMMAS
    if len(unsaid) > MAX_UNSAID_NAMES:
        return f"says {', '.join(sorted(unsaid))}, which nobody says"
    return None


def _begins_with_verb(doc: "Doc") -> bool:
    """Return whether a line is an imperative: its first word, or the first behind a condition, is a verb."""
    words = [bare_word(word.text) for word in doc]
    if words and words[0] in CONDITION_WORDS:
        commas = [index for index, word in enumerate(doc) if word.text == ","]
        return any(_is_verb_at(words, index + 1) for index in commas)
    return _is_verb_at(words, 0)


def _is_verb_at(words: Sequence[str], index: int) -> bool:
    while index < len(words) and (_is_adverb(words[index]) or words[index] in ("", "then")):
        index += 1
    if index == len(words):
        return False
    word = words[index]
    return word in NEGATIONS or (word in verbs() and word not in NO_ACTION_VERBS)


def _is_adverb(word: str) -> bool:
    return word.endswith("ly") and word not in verbs()


def _with_word_times(steps: Sequence[Step], chunk: Chunk) -> list[Step]:
    """Return the steps with narrower `said` spans: steps that share a sentence get the times of
    their own words in it, if words have times."""
    words = [word for sentence in chunk.sentences for word in sentence.words]
    timed: list[Step] = []
    for step in steps:
        is_shared = sum(step.sources == other.sources for other in steps) > 1
        own = {bare_word(word) for word in step.text.split()} - COMMON_ENGLISH_WORDS
        spans = [word.span for word in words if word.span and bare_word(word.text) in own]
        inside = [span for span in spans if step.said and step.said.overlap(span) > 0]
        if is_shared and len(inside) > 1:
            step = step.model_copy(update={"said": covering_span(inside)})
        timed.append(step)
    return timed
