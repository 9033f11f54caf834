"""The detail of the steps: halves of a step are joined to it, so that the list reads like a recipe.

    add the noodles; give it a stir            add the noodles and stir
    drain the pasta; rinse it                  drain the pasta and rinse
    add two bouillon cubes; A can of beans.    add two bouillon cubes, a can of beans
    add the noodles; I used 125 grams.         add the noodles, 125 grams

"drain the pasta" is said (10, 12) by sentence 0, "rinse it" (12, 14) by sentence 1. The joined step
is said (10, 14), with sources 0 and 1. "slice the tomatoes" at (15, 17) stays a step of its own. So
does "rinse it" at (20, 22), more than 6 s later.

A half acts on a pronoun or on nothing, soon after the step before. In YouCook2's captions
annotators put 82 % and 79 % of such actions into one step with the action before. Of those with an
object of their own it is 9 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from stepline.records import Rejected, Step, covering_span
from stepline.text.narration.words import word_set
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.step_flaws import flaw_of_step
from stepline.writing.types import instruction_kind

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

Detail = Literal["brief", "usual", "full"]

MAX_PAUSE_SECONDS: Final = 6.0  # between a step and a half of it
MAX_LIST_PAUSE_SECONDS: Final = 3.0  # between a step and more of its list
# words of a step that is joined, by detail. "full" joins nothing.
MAX_JOINED_WORDS: Final = {"brief": 30, "usual": 22}
MAX_HALF_WORDS: Final = 12
ONLY_NAMES: Final = "names things, and says nothing to do with them"
OBJECT_PRONOUNS: Final = word_set("it this that them these those")
OBJECT_ROLES: Final = ("dobj", "nsubj", "nsubjpass", "dative")


@dataclass(frozen=True)
class SentenceStep:
    """A step as one sentence says it.

    listed: its words without a verb, where the sentence has none and one was put in front. They may
    go on with the list of the step before.
    is_sure: it is a step also where nothing goes before.
    meant: what its bare pronouns most likely stand for.
    """

    step: Step
    listed: str | None = None
    is_sure: bool = True
    meant: tuple[str, ...] = ()


@dataclass(frozen=True)
class JoinedSteps:
    """steps: in their order. refused: those with a flaw, or that would have been steps only as part
    of another."""

    steps: tuple[Step, ...]
    refused: tuple[Rejected, ...]


def join_halves(steps: Sequence[SentenceStep], detail: Detail) -> JoinedSteps:
    """Return the steps in their order, halves joined to the step before as far as `detail` says."""
    docs = parse([item.step.text for item in steps])
    joined: list[_JoinedStep] = []
    refused: list[Rejected] = []
    for item, doc in zip(steps, docs, strict=True):
        flaw = flaw_of_step(doc)
        if flaw is not None:
            refused.append(Rejected(what="step", text=item.step.text, reason=flaw))
            continue
        longer = None
        if joined:
            longer = _lengthened(joined[-1], item, doc, detail)
        if longer is not None:
            joined[-1] = longer
        elif item.is_sure:
            joined.append(_JoinedStep((item.step,), (item.step.text,), _verb(doc)))
        else:
            refused.append(Rejected(what="step", text=item.step.text, reason=ONLY_NAMES))
    joined_steps = [item.as_step() for item in joined]
    return JoinedSteps(tuple(joined_steps), tuple(refused))


@dataclass(frozen=True)
class _JoinedStep:
    """Steps that are written as one.

    parts: what each adds to the text. One that begins with a comma goes on with a list.
    verb: of the first.
    """

    steps: tuple[Step, ...]
    parts: tuple[str, ...]
    verb: str

    @property
    def text(self) -> str:
        """The parts as one order: "peel, slice and salt the apple"."""
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
        """Return one step that rests on all sentences."""
        if len(self.steps) == 1:
            return self.steps[0]
        sources: set[int] = set()
        for step in self.steps:
            sources.update(step.sources)
        spans = [step.said for step in self.steps if step.said is not None]
        changes = {
            "text": self.text,
            "sources": tuple(sorted(sources)),
            "said": covering_span(spans),
        }
        return self.steps[0].model_copy(update=changes)


def _lengthened(
    before: _JoinedStep, item: SentenceStep, doc: "Doc", detail: Detail
) -> _JoinedStep | None:
    """Return the step before with this one at its end, None where they are two."""
    if detail == "full":
        return None
    last = before.steps[-1]
    # Only actions to do are joined. A warning stays a step of its own.
    kinds = {instruction_kind(before.text), instruction_kind(item.step.text)}
    if kinds != {"do"}:
        return None
    if not _is_near(last, item.step, MAX_PAUSE_SECONDS):
        return None
    # What it adds: more of the list, a half, or another object of the verb.
    part = None
    half = half_text(doc)
    is_short = half is not None and len(half.split()) <= MAX_HALF_WORDS
    if item.listed is not None and _is_near(last, item.step, MAX_LIST_PAUSE_SECONDS):
        part = f", {item.listed}"
    elif is_short and _means_the_same(before, item):
        part = half
    elif detail == "brief" and _verb(doc) == before.verb:
        part = item.step.text.partition(" ")[2]
    if not part:
        return None
    # A part that is said twice adds its sentence, not its words.
    parts = before.parts
    if part not in parts:
        parts = (*parts, part)
    longer = _JoinedStep((*before.steps, item.step), parts, before.verb)
    words = longer.text.split()
    if len(words) > MAX_JOINED_WORDS[detail]:
        return None
    return longer


def _means_the_same(before: _JoinedStep, item: SentenceStep) -> bool:
    """Tell whether a half goes on with what the step before names.

    Within one sentence it does nearly always. Elsewhere its pronouns must stand for that.
    """
    last_sources = set(before.steps[-1].sources)
    if not last_sources.isdisjoint(item.step.sources):
        return True
    if not item.meant:
        return False
    words = {word.strip(",").lower() for word in before.text.split()}
    return all(not words.isdisjoint(name.lower().split()) for name in item.meant)


def _is_near(before: Step, step: Step, seconds: float) -> bool:
    """Tell whether a step is said within this many seconds of the one before."""
    if before.said is None or step.said is None:
        return False
    pause = step.said.start - before.said.end
    return abs(pause) <= seconds


def half_text(doc: "Doc") -> str | None:
    """Return an order without its bare pronoun: of "rinse it" "rinse", of "let it cool" "let cool".
    None where it names what it acts on."""
    pronouns: list[Token] = []
    for token in doc:
        if token.dep_ not in OBJECT_ROLES:
            continue
        # In "let it cool" the pronoun is the subject of a bare verb, and may go.
        is_subject_of_clause = token.dep_ == "nsubj" and token.head.tag_ != "VB"
        if token.lower_ not in OBJECT_PRONOUNS or is_subject_of_clause:
            return None
        pronouns.append(token)
    text = ""
    for token in doc:
        if token not in pronouns:
            text += token.text_with_ws
    return text.strip() or None


def _verb(doc: "Doc") -> str:
    if not len(doc):
        return ""
    lemma: str = doc[0].lemma_
    return lemma.lower()
