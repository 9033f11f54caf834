"""The verdict on a step, in the same words in every output: its status, and whether that is in doubt.

seen        a picture decides that the step is shown
placed      the step is where its words are; no claim about the picture
doubtful    the same, and something speaks against it: "placed?"
said_only   there is no picture, or something shows that the step is not in it
not_found   a line of the user's that is neither said nor seen
unjudged    no one judged
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from stepline.outputs.text import clock, from_pictures, shown_span
from stepline.records import Record, Status, Step

Verdict = Status | Literal["doubtful", "unjudged"]

VERDICT_TEXTS: dict[str, str] = {
    "seen": "seen",
    "placed": "placed",
    "doubtful": "placed?",
    "said_only": "said only",
    "not_found": "not found",
    "unjudged": "not judged",
}


def verdict(status: Status | None, doubt: str | None) -> Verdict:
    """Return the status, "doubtful" for one with a doubt, or "unjudged" for None.

    doubt: why a placed step may not be shown.
    """
    return "doubtful" if doubt is not None else status or "unjudged"


def step_verdict(step: Step) -> Verdict:
    """Return the status of a step, "doubtful" for one with a doubt, or "unjudged" for none."""
    return verdict(step.status, step.doubt)


def count_verdicts(steps: Iterable[Step]) -> dict[Verdict, int]:
    """Return the number of steps of each verdict, the most certain first, without zeros."""
    counts = Counter(map(step_verdict, steps))
    return {each: counts[each] for each in sorted(counts, key=list(VERDICT_TEXTS).index)}


def most_certain(steps: Iterable[Step]) -> Step | None:
    """Return the step with the most certain verdict, None without steps."""
    certainty = list(VERDICT_TEXTS)
    return min(steps, key=lambda step: certainty.index(step_verdict(step)), default=None)


def headline(steps: Iterable[Step]) -> str:
    """Return the number of steps of each verdict in one line, such as "3 seen, 8 placed"."""
    return ", ".join(f"{n} {VERDICT_TEXTS[each]}" for each, n in count_verdicts(steps).items())


def picture_scores(record: Record) -> dict[str, float]:
    """Return step id -> P(shown) of the steps that a calibrated network saw.

    A trained network decides what is seen only if it is calibrated, but for one that describes
    pictures. It is empty for that, and if all steps have the same.
    """
    scores = {}
    for step in record.steps:
        if step.basis == "network" and step.score is not None:
            scores[step.id] = step.score
    is_informative = len(set(scores.values())) > 1 and not from_pictures(record)
    return scores if is_informative else {}


def step_time(step: Step) -> str:
    """Return when a step is shown or said, and its verdict."""
    text = VERDICT_TEXTS[step_verdict(step)]
    span = shown_span(step)
    if span is not None:
        return f"{clock(span.start)}-{clock(span.end)}, {text}"
    if step.said is None:
        return text
    return f"said at {clock(step.said.start)}, {text}"
