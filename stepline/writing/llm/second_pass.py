"""The second pass of the language-model writer: it chooses, joins and orders the steps of the first.

The model sees the steps of the whole transcript, each with a number and the words that say it, and
answers with numbers alone: `{"steps": [[1], [2, 3], [5]]}`. So nothing can be added or reworded. An
answer that does not fit the steps is not used, which a note says. Then those of the first pass
stay.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from stepline.limits import parse_json
from stepline.llm import orders_a_model, quoted
from stepline.llm.checked_requests import CheckedQuestion, CheckedRequests
from stepline.llm.servers import Answer, Schema
from stepline.records import Rejected, Step, Transcript, covering_span
from stepline.writing.extractive.repeats import NEAR_SENTENCES, fold_by_meaning
from stepline.writing.llm.citing import Embed, say_different_things
from stepline.writing.llm.prompts import MAX_TITLE_CHARS
from stepline.writing.llm.replies import LONGEST_STEP
from stepline.writing.types import instruction_kind

MAX_JOINED_STEPS = 3  # of one step of the answer
MIN_STEP_FRACTION = 0.5  # of the steps that an answer must hold; fewer is a loss, not a choice
MAX_SAID_CHARS = 160  # of the speech that supports a step
NUMBERS_REMINDER = (
    "\nAnswer with one JSON object of numbers,"
    ' such as {"steps": [[1], [2, 3]]}, and nothing else.\n'
)
LEFT_OUT = "left out by the second pass of the language model"

NUMBERS_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "steps": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    },
    "required": ["steps"],
    "additionalProperties": False,
}
_JSON_OBJECT = re.compile(r"\{.*\}", re.DOTALL)

Groups = tuple[tuple[int, ...], ...]  # indices of steps, those of one group joined


@dataclass(frozen=True)
class StepOrder:
    """An answer: indices of the first pass's steps, in groups. refusal: why it is not used."""

    groups: Groups = ()
    refusal: str | None = None


@dataclass(frozen=True)
class SecondPass:
    """The steps after the second pass, what it left out, and a note where it was not used."""

    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()


def choose_and_order(
    requests: CheckedRequests,
    steps: Sequence[Step],
    transcript: Transcript,
    *,
    title: str,
    embed: Embed,
) -> SecondPass:
    """Return the steps as the model chooses, joins and orders them, or as they were, with a note.

    embed: texts to unit rows. Raises WriterError when the server cannot be used at all.
    """
    # Nothing to choose or order.
    if len(steps) < 2:
        return SecondPass(tuple(steps))
    question = build_question(steps, transcript, title)

    # The question, again with a reminder after an answer that does not fit.
    def content(reminded: bool) -> str:
        if reminded:
            return question + NUMBERS_REMINDER
        return question

    def read(answer: Answer) -> StepOrder:
        return read_order(answer.text, steps)

    reply = requests.ask(
        CheckedQuestion(
            {"prompt": "second_pass", "question": question},
            content,
            read,
            lambda order: order.refusal,
            NUMBERS_SCHEMA,
        )
    )
    # Without an answer that fits, the steps stay as they were.
    if reply.fault is not None:
        refusal: str | None = reply.fault.reason
    else:
        refusal = reply.readings[-1].refusal
    if refusal is not None:
        note = f"the second pass was not used, because {refusal}; the steps are those of the first"
        return SecondPass(tuple(steps), notes=(note,))
    # What the answer leaves out, and what it joins.
    groups = reply.readings[-1].groups
    chosen_indices = set(chain(*groups))
    dropped: list[Rejected] = []
    for index, step in enumerate(steps):
        if index not in chosen_indices:
            dropped.append(Rejected(what="step", text=step.text, reason=LEFT_OUT))
    joined: list[Step] = []
    for group in groups:
        parts = [steps[index] for index in group]
        joined.append(join_steps(parts, embed))
    return SecondPass(tuple(joined), tuple(dropped))


def build_question(steps: Sequence[Step], transcript: Transcript, title: str) -> str:
    """Return what the model is asked: the steps with their numbers and the words that tell them."""
    lines = []
    for number, step in enumerate(steps, start=1):
        line = f"{number}. {quoted(step.text)}"
        speech = " ".join(transcript.sentences[source].text for source in step.sources)
        if speech:
            line += f' (said: "{quoted(speech)[:MAX_SAID_CHARS]}")'
        lines.append(line)
    heading = ""
    if title and not orders_a_model(title):
        heading = f"Title of the video: {quoted(title)[:MAX_TITLE_CHARS]}"
    before, _, after = _template().partition("{steps}")
    return before.replace("{title}", heading) + "\n".join(lines) + after


@cache
def _template() -> str:
    path = Path(__file__).parent / "prompt_templates" / "second_pass.txt"
    return path.read_text(encoding="utf-8")


def read_order(text: str, steps: Sequence[Step]) -> StepOrder:
    """Return the groups of an answer, checked against the steps. Any text at all gives a StepOrder.
    Nothing raises."""
    items = _listed_items(text)
    if items is None:
        return StepOrder(refusal="the reply is not a JSON object of numbers")
    groups: list[tuple[int, ...]] = []
    for item in items:
        numbers = item
        if not isinstance(numbers, list):
            numbers = [item]
        # `isinstance` would take True for a number.
        if not numbers or not all(type(number) is int for number in numbers):
            return StepOrder(refusal="the reply holds something else than numbers of steps")
        groups.append(tuple(number - 1 for number in numbers))
    refusal = _misfit(tuple(groups), steps)
    if refusal is not None:
        return StepOrder(refusal=refusal)
    return StepOrder(tuple(groups))


def _listed_items(text: str) -> list[Any] | None:
    """Return the list of steps of the JSON object in an answer, None where it has no such list."""
    match = _JSON_OBJECT.search(text)
    if match is None:
        return None
    try:
        tree = parse_json(match.group(0))
    except (ValueError, RecursionError):
        return None
    items = tree.get("steps")
    if not isinstance(items, list):
        return None
    return items


def _misfit(groups: Groups, steps: Sequence[Step]) -> str | None:
    """Return in which way an answer does not fit the steps of the first pass, None where it
    does."""
    # Numbers that exist, each once, and enough of them.
    indices = list(chain(*groups))
    for index in indices:
        if not 0 <= index < len(steps):
            return f"the reply names a step {index + 1} of {len(steps)}"
    if len(set(indices)) < len(indices):
        return "the reply names a step twice"
    if len(indices) < MIN_STEP_FRACTION * len(steps):
        return f"the reply leaves out {len(steps) - len(indices)} of {len(steps)} steps"
    # Groups that can be one step.
    for group in groups:
        reason = _apart([steps[index] for index in group])
        if reason is not None:
            numbers = ", ".join(str(index + 1) for index in group)
            return f"the reply joins steps {numbers}, {reason}"
    return None


def _apart(steps: Sequence[Step]) -> str | None:
    """Return why steps cannot be one, None where they can."""
    if len(steps) == 1:
        return None
    if len(steps) > MAX_JOINED_STEPS:
        return f"more than {MAX_JOINED_STEPS}"
    if not all(step.sources for step in steps):
        return "and one of them is not said"
    if len({instruction_kind(step.text) for step in steps}) > 1:
        return "and one of them says what to avoid"
    source_ranges = sorted((step.sources[0], step.sources[-1]) for step in steps)
    for (_, end), (start, _) in pairwise(source_ranges):
        if start - end > NEAR_SENTENCES:
            return "which are said far apart"
    if sum(len(step.text) + len(" and ") for step in steps) > LONGEST_STEP:
        return "which are too long for one"
    return None


def join_steps(steps: Sequence[Step], embed: Embed) -> Step:
    """Return one step of several: their texts joined, those that mean the same once."""
    parts = fold_by_meaning(steps, embed=embed, differ=say_different_things)
    text = parts[0].text
    for number, part in enumerate(parts[1:], start=2):
        link = ", "
        if number == len(parts):
            link = " and "
        text += link + part.text[:1].lower() + part.text[1:]
    # It rests on the sentences and pictures of all.
    sources = set(chain(*(step.sources for step in steps)))
    remarks = dict.fromkeys(chain(*(step.seen for step in steps)))
    changes = {
        "text": text,
        "sources": tuple(sorted(sources)),
        "said": covering_span([step.said for step in steps]),
        "seen": tuple(remarks),
    }
    return steps[0].model_copy(update=changes)
