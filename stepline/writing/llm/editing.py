"""The form for small models: the extractive writer's steps, in which the model names doubtful pronouns.

    said     "That's the old bulb. The cover lifts off. Now pop it back on the lamp."
    step     "Pop it back on the lamp"
    choice   "Pop", "it" or "the old bulb" or "the cover", "back on the lamp."
    answer   "Pop the cover back on the lamp."

A model on this machine can only choose among the things that were said before. If it finds a word of
its choice unlikely, what it would rather write is none of them, and the step stays. The answer of a
server must be one of these choices. Every other word of the step stays.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from stepline.errors import WriterError
from stepline.llm import quoted
from stepline.llm.checked_requests import (
    DEADLINE_PASSED,
    CheckedQuestion,
    CheckedReply,
    CheckedRequests,
)
from stepline.llm.requests import NotSentError, run_in_threads
from stepline.llm.servers import Answer, Conversation
from stepline.llm.settings import ChatSettings
from stepline.records import Step
from stepline.text.narration.words import bare_word, word_set
from stepline.writing.extractive.antecedents import Candidate, PronounResolver
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.narration import ParsedNarration
from stepline.writing.llm.prompts import read_template
from stepline.writing.types import WrittenSteps

BEFORE_SENTENCES = 3  # before those of the step, which a question quotes
BEFORE_WORDS = 40  # of them, at most
MAX_QUOTED_WORDS = 75  # of a question, unless the sentences of the step have more
EXAMPLES_MARK = "\n=====\n"  # between the turns of the template
ANSWER_MARK = "\n-----\n"  # before the answer of a turn
QUESTION_TOKENS = 600  # of the instruction, the examples and a question, at most
# Natural logarithm of P(token), of every token of an answer. Of 21 names in twelve narrations four are below,
# three of them wrong and one doubtful.
LEAST_LOG_PROB = -3.0
NAMED_PRONOUNS = word_set("it them they")
LATE_REPLY = CheckedReply[str | None]((), NotSentError(DEADLINE_PASSED))
OTHER_WORDS_REASON = "the model changed other words than the pronoun"
OTHER_WORDS_FAULT = (
    "write the step as it is, with the name of a thing that was said for its pronoun"
)


@dataclass(frozen=True)
class DoubtfulStep:
    """A step with a doubtful pronoun.

    Attributes:
        number: index of the step.
        said: the quoted speech, of its sentences and those before.
        parts: the answer in pieces, each with the texts that it may have. A pronoun and the names
            that may replace it are one piece.
    """

    number: int
    said: str
    parts: tuple[tuple[str, ...], ...]

    @property
    def question(self) -> str:
        """The message that asks for the step."""
        step = " ".join(choices[0] for choices in self.parts)
        return f'Said: "{self.said}"\nStep: {step}'

    @property
    def grammar(self) -> str:
        """The answers that are possible, as a grammar in llama.cpp's notation (GBNF)."""
        pieces = [
            " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
            for choices in self.parts
        ]
        return "root ::= " + ' " " '.join(f"({piece})" for piece in pieces) + ' "."'

    def accepts(self, answer: str) -> bool:
        """Return whether an answer is one of those that are possible."""
        pieces = ["|".join(map(re.escape, choices)) for choices in self.parts]
        return re.fullmatch(" ".join(f"({piece})" for piece in pieces), answer) is not None


def find_doubtful_steps(
    steps: Sequence[Step], narration: ParsedNarration, withheld: Sequence[int] = ()
) -> list[DoubtfulStep]:
    """Return the steps with doubtful pronouns, where the speech before names something.

    Args:
        steps: the extractive writer's steps of the narration.
        narration: the parsed transcript, in English.
        withheld: indices of the transcript's sentences that the model is not shown.
    """
    resolver = PronounResolver(narration.docs, narration.sentence_tags)
    unit_of: dict[int, int] = {}
    texts: list[str] = []
    for number, unit in enumerate(narration.units):
        indices = range(unit.first_sentence, unit.first_sentence + len(unit.sentences))
        unit_of |= dict.fromkeys(indices, number)
        texts.append(unit.text if set(withheld).isdisjoint(indices) else "")
    docs = parse([step.text for step in steps])
    lemmas = [{token.lemma_.lower() for token in doc} for doc in docs]
    doubtful = []
    for number, step in enumerate(steps):
        # what was said, as it is quoted
        units = sorted({unit_of[index] for index in step.sources})
        source = " ".join(texts[units[0] : units[-1] + 1]).split()
        before = " ".join(texts[max(0, units[0] - BEFORE_SENTENCES) : units[0]]).split()
        room = max(0, min(BEFORE_WORDS, MAX_QUOTED_WORDS - len(source)))
        said = quoted(" ".join([*before[max(0, len(before) - room) :], *source]))
        # the step, with the names that may replace its pronouns
        words = (step.text[:1].upper() + step.text[1:]).split()
        spoken = [(unit, narration.units[unit].words) for unit in units]
        parts = []
        for index, word in enumerate(words):
            length = len(" ".join(words[:index]))
            told = {token.lemma_.lower() for token in docs[number] if token.idx < length}
            ranked = _rank_antecedents(resolver, spoken, words, index)
            stems = [candidate.stem for candidate in ranked]
            is_known = not told.isdisjoint(stems[:2]) or (
                number and not lemmas[number - 1].isdisjoint(stems[:1])
            )
            end = word[len(bare_word(word)) :]
            names = (
                f"the {candidate.name_in_step}{end}"
                for candidate in ranked
                if not is_known and candidate.stem not in lemmas[number]
            )
            parts.append((word, *names))
        if any(len(choices) > 1 for choices in parts):
            doubtful.append(DoubtfulStep(number, said, tuple(parts)))
    return doubtful


def _rank_antecedents(
    resolver: PronounResolver,
    spoken: Sequence[tuple[int, Sequence[str]]],
    words: Sequence[str],
    index: int,
) -> list[Candidate]:
    """Return the things that a pronoun of a step may mean, the most likely first. The list is empty for
    any other word.

    Args:
        resolver: ranks the things.
        spoken: the spoken words of the sentences that tell the step, after the index of each.
        words: of the step.
        index: of the pronoun among them.
    """
    if bare_word(words[index]) not in NAMED_PRONOUNS:
        return []
    # In the speech it stands next to the same word.
    before, pronoun, after = (bare_word(word) for word in ("", *words, "")[index : index + 3])
    for sentence, sentence_words in spoken:
        bare = [bare_word(word) for word in ("", *sentence_words, "")]
        for place, near in enumerate(zip(bare, bare[1:], bare[2:], strict=False)):
            if near[1] == pronoun and (near[0] == before or near[2] == after):
                ranked = [candidate for candidate, _ in resolver.rank_at(sentence, place)]
                if ranked:
                    return ranked
    return []


@cache
def conversation_start() -> tuple[dict[str, str], ...]:
    """Return the first messages of every question: the instruction and worked examples, as
    {"role", "content"}."""
    instruction, *turns = read_template("editing").strip().split(EXAMPLES_MARK)
    messages = [{"role": "system", "content": instruction}]
    for turn in turns:
        question, answer = turn.split(ANSWER_MARK)
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
    return tuple(messages)


def edit_steps(
    own: WrittenSteps,
    narration: ParsedNarration,
    withheld: Sequence[int],
    requests: CheckedRequests,
    report: Callable[[int], None],
) -> WrittenSteps:
    """Return the extractive writer's steps, with names that a language model puts for doubtful pronouns.

    Args:
        own: the extractive writer's steps of the narration.
        narration: the parsed transcript, in English.
        withheld: indices of the transcript's sentences that the model is not shown.
        requests: asks the model, one step after the other.
        report: reports the progress. Its argument is the index of the last sentence of a step.
    Raises WriterError when the server refuses access.
    """
    doubtful = find_doubtful_steps(own.steps, narration, withheld)

    def ask(step: DoubtfulStep) -> CheckedReply[str | None]:
        reply = _ask_for_names(requests, step)
        report(own.steps[step.number].sources[-1])
        return reply

    replies = run_in_threads(ask, doubtful, workers=1, until=requests.until)
    steps = list(own.steps)
    reasons = []
    for index, step in enumerate(doubtful):
        reply = replies.get(index, LATE_REPLY)
        text = reply.readings[-1] if reply.readings else None
        if text is None:
            reasons.append(reply.fault.reason if reply.fault else OTHER_WORDS_REASON)
        elif text:
            changes = {"text": steps[step.number].text[:1] + text[1:]}
            steps[step.number] = steps[step.number].model_copy(update=changes)
    if replies and all(reply.fault and reply.fault.rejected for reply in replies.values()):
        raise rejected_error(requests.settings, reasons[0])
    notes = [
        f"{count} of {len(doubtful)} doubtful steps: provisional, from the extractive writer, because {reason}"
        for reason, count in Counter(reasons).items()
    ]
    return WrittenSteps(tuple(steps), own.dropped, (*own.notes, *notes))


def rejected_error(settings: ChatSettings, reason: str) -> WriterError:
    """Return the error for a server that refuses all questions."""
    return WriterError(
        f"{settings.base_url}: {reason}; correct the settings under {settings.section}"
    )


def _ask_for_names(requests: CheckedRequests, step: DoubtfulStep) -> CheckedReply[str | None]:
    """Return what a language model answers about a step: its text with names, "" if it is not sure, None for
    an answer that is no choice."""

    def content(fault: str) -> Conversation:
        question = f"{step.question}\nMind: {fault}" if fault else step.question
        messages = (*conversation_start(), {"role": "user", "content": question})
        return Conversation(messages, step.grammar, LEAST_LOG_PROB)

    def parse_answer(answer: Answer) -> str | None:
        text = answer.text.strip().rstrip(".")
        return text if not text or step.accepts(text) else None

    return requests.ask(
        CheckedQuestion(
            {"form": "edit", "question": step.question, "choices": step.grammar},
            content,
            parse_answer,
            lambda text: OTHER_WORDS_FAULT if text is None else None,
        )
    )
