"""The detail of the steps: continuations are joined to their step, as in a recipe.

    add the noodles; give it a stir            add the noodles and stir
    drain the pasta; rinse it                  drain the pasta and rinse
    add two bouillon cubes; A can of beans.    add two bouillon cubes, a can of beans
    add the noodles; I used 125 grams.         add the noodles, 125 grams

"drain the pasta" is said (10, 12) by sentence 0, "rinse it" (12, 14) by sentence 1. The joined step
is said (10, 14), with sources 0 and 1. "slice the tomatoes" at (15, 17) stays a step of its own. So
does "rinse it" at (20, 22), more than 6 s later.

A continuation acts on a pronoun or on nothing, soon after the step before. In the next
sentence it keeps its pronoun where no antecedent is likely. In YouCook2's captions
annotators put 82 % and 79 % of such actions into one step with the action before. Of those with an
object of their own it is 9 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepline.records import Step, covering_span
from stepline.text.narration.words import word_set
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.off_topic import flaw_of_step
from stepline.writing.extractive.phrases import INTRANSITIVE_VERBS, NAMEABLE_PRONOUNS
from stepline.writing.quantities import COUNT_KIND, DEGREE_WORDS, UNIT_KINDS, find_quantities
from stepline.writing.types import instruction_kind

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


Detail = Literal["brief", "usual", "full"]

MAX_PAUSE_SECONDS = 6.0  # between a step and its continuation
# words of a step that is joined, by detail. "full" joins nothing.
MAX_JOINED_WORDS = {"brief": 30, "usual": 22}
MAX_CONTINUATION_WORDS = 12
NO_ACTION_ON_THINGS_REASON = "names things, and says nothing to do with them"
OBJECT_ROLES = word_set("dobj nsubj nsubjpass dative")


@dataclass(frozen=True)
class SentenceStep:
    """A step of one sentence, before continuations are joined.

    Attributes:
        step: its text, source sentences and spoken span.
        list_text: the step's words after a verb that nobody spoke ("a can of beans" of "add a can
            of beans"), which may continue the list of the step before. None if the verb was spoken.
        is_sure: whether it stays a step where it continues no other one.
        antecedents: the antecedents of its pronouns that are likely.
    """

    step: Step
    list_text: str | None = None
    is_sure: bool = True
    antecedents: tuple[str, ...] = ()


def join_continuations(
    steps: Sequence[SentenceStep], detail: Detail
) -> tuple[list[Step], list[tuple[Step, str]]]:
    """Return the steps in spoken order, with each continuation joined to the step before it, and
    the rejected steps with their reasons.

    Args:
        steps: in spoken order.
        detail: "full" joins nothing, "usual" the continuations, "brief" also steps with the verb of
            the step before.
    """
    docs = parse([item.step.text for item in steps])
    joined: list[_JoinedStep] = []
    rejected: list[tuple[Step, str]] = []
    for item, doc in zip(steps, docs, strict=True):
        flaw = flaw_of_step(doc)
        if flaw is not None:
            rejected.append((item.step, flaw))
            continue
        extended = _extend_step(joined[-1], item, doc, detail) if joined else None
        if extended is not None:
            joined[-1] = extended
        elif item.is_sure and (len(doc) > 1 or _first_lemma(doc) in INTRANSITIVE_VERBS):
            joined.append(_JoinedStep((item.step,), (item.step.text,), _first_lemma(doc)))
        else:
            rejected.append((item.step, NO_ACTION_ON_THINGS_REASON))
    return [item.as_step() for item in joined], rejected


@dataclass(frozen=True)
class _JoinedStep:
    """Consecutive steps that are written as one.

    Attributes:
        steps: in spoken order.
        parts: the words that each step adds to the text. A part that starts with a comma continues
            a list.
        verb: lemma of the first word of the first step.
    """

    steps: tuple[Step, ...]
    parts: tuple[str, ...]
    verb: str

    @property
    def text(self) -> str:
        """The parts as one imperative: "peel, slice and salt the apple"."""
        first, *others = self.parts
        text = first
        # Only one "and" joins: a part that has its own comes after a comma.
        for number, part in enumerate(others, start=2):
            is_last = number == len(self.parts)
            if part.startswith(","):
                text += part
            elif not is_last or " and " in part:
                text += f", {part}"
            elif " and " in text:
                text += f", and {part}"
            else:
                text += f" and {part}"
        return text

    def as_step(self) -> Step:
        """Return one step with the joined text, and the sources and spoken spans of all its steps."""
        if len(self.steps) == 1:
            return self.steps[0]
        sources: set[int] = set()
        for step in self.steps:
            sources.update(step.sources)
        changes = {
            "text": self.text,
            "sources": tuple(sorted(sources)),
            "said": covering_span(step.said for step in self.steps),
        }
        return self.steps[0].model_copy(update=changes)


def _extend_step(
    previous: _JoinedStep, item: SentenceStep, doc: "Doc", detail: Detail
) -> _JoinedStep | None:
    """Return the step before with this one joined to it, None if they stay two steps.

    Args:
        previous: the step before, perhaps joined already.
        item: the step that may continue it.
        doc: the parsed text of `item`.
        detail: the setting `writing.detail`.
    """
    last = previous.steps[-1]
    # Only actions to do are joined. A warning stays a step of its own.
    kinds = {instruction_kind(previous.text), instruction_kind(item.step.text)}
    said, then = last.said, item.step.said
    is_near = said and then and said.pause(then) <= MAX_PAUSE_SECONDS
    if detail == "full" or kinds != {"do"} or not is_near:
        return None
    # What it adds: more of the list, a half, or another object of the verb.
    part = None
    continuation = drop_object_pronouns(doc)
    is_short_continuation = (
        continuation is not None and len(continuation.split()) <= MAX_CONTINUATION_WORDS
    )
    is_next = item.step.sources[0] == last.sources[-1] + 1
    # "Into a large pan." is the beginning of the next sentence, and no list
    is_list = item.list_text is not None and doc[1].pos_ != "ADP"
    is_list &= _first_lemma(doc) == previous.verb or bool(find_quantities(previous.text))
    if is_list:
        part = f", {item.list_text}"
    elif is_short_continuation and _continues_same_thing(previous, item):
        part = continuation
    elif is_short_continuation and is_next and not item.antecedents and continuation != doc.text:
        part = item.step.text
    elif detail == "brief" and _first_lemma(doc) == previous.verb:
        part = item.step.text.partition(" ")[2]
    if not part:
        return None
    parts = (*previous.parts, part)
    extended = _JoinedStep((*previous.steps, item.step), parts, previous.verb)
    is_short = len(extended.text.split()) <= MAX_JOINED_WORDS[detail]
    return extended if is_short else None


def _continues_same_thing(previous: _JoinedStep, item: SentenceStep) -> bool:
    """Return whether a continuation acts on a thing that the step before names.

    In the same sentence it nearly always does. In a later one, the step before must name the
    likely antecedents of its pronouns.
    """
    if item.step.sources[0] <= previous.steps[-1].sources[-1]:
        return True
    if not item.antecedents:
        return False
    words = {word.strip(",").lower() for word in previous.text.split()}
    return all(not words.isdisjoint(name.lower().split()) for name in item.antecedents)


def drop_object_pronouns(doc: "Doc") -> str | None:
    """Return the text of an instruction without the pronouns that are its objects: "rinse it" ->
    "rinse".

    None if the instruction has a noun object, or if no word is left.
    """
    object_pronouns: list[Token] = []
    for token in doc:
        if token.dep_ not in OBJECT_ROLES:
            continue
        # In "let it cool" the pronoun is the subject of a bare verb, and may go.
        is_subject_of_clause = token.dep_ == "nsubj" and token.head.tag_ != "VB"
        if token.lower_ not in NAMEABLE_PRONOUNS or is_subject_of_clause:
            return None
        object_pronouns.append(token)
    text = "".join(token.text_with_ws for token in doc if token not in object_pronouns)
    return text.strip() or None


def _first_lemma(doc: "Doc") -> str:
    return doc[0].lemma_.lower() if len(doc) else ""


MAX_AMOUNT_WORDS = 10  # of a sentence that says an amount and nothing else
MAX_SENTENCES_APART = 2  # of a step and the sentence that says its amount


def sentence_amount(doc: "Doc") -> str | None:
    """Return the amount that a short sentence states and nothing else, as spoken: "about 125 grams"
    of "I used about 125 grams". None for any other sentence."""
    words = [token for token in doc if token.is_alpha or token.like_num]
    if not 1 < len(words) <= MAX_AMOUNT_WORDS:
        return None
    # Exactly one amount with a unit. Bare counts are left out.
    if sum(quantity.kind != COUNT_KIND for quantity in find_quantities(doc.text)) != 1:
        return None
    # Any other noun than a unit names a thing, so the sentence says more.
    units: list[int] = []
    for token in doc:
        if token.lower_ in UNIT_KINDS or token.lower_ in DEGREE_WORDS:
            units.append(token.i)
        elif token.pos_ in ("NOUN", "PROPN") and token.lower_ != "worth":
            return None
    numbers = [token.i for token in doc if token.like_num]
    if not units or not numbers:
        return None
    # From the number, or the "about" before it, to the last unit.
    first = numbers[0]
    while first > 0 and doc[first - 1].pos_ in ("ADV", "ADP") and doc[first - 1].head.i >= first:
        first -= 1
    last = units[-1]
    if first >= last:
        return None
    amount: str = doc[first : last + 1].text
    return amount[:1].lower() + amount[1:]


def with_amount(step: Step, amount: str, sentence: int) -> Step | None:
    """Return a step with the amount that a later sentence states: "add the noodles, 125 grams".

    None if the step states an amount of that kind already, or if the sentence is not one of the
    next MAX_SENTENCES_APART.

    Args:
        step: with at least one source sentence.
        amount: as spoken, with its unit.
        sentence: index of the sentence that states the amount.
    """
    distance = sentence - step.sources[-1]
    if not 0 < distance <= MAX_SENTENCES_APART:
        return None
    kinds = {quantity.kind for quantity in find_quantities(amount)}
    if any(quantity.kind in kinds for quantity in find_quantities(step.text)):
        return None
    changes = {"text": f"{step.text}, {amount}", "sources": (*step.sources, sentence)}
    return step.model_copy(update=changes)
