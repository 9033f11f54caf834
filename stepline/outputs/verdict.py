"""The verdict on a step, in the same words in every output.

shown       the pictures show the step
likely      its words place the step, and the pictures say nothing: likely shown
unclear     its words place the step, and the pictures, or other speech, are evidence against it
said        the step is said, not shown
missing     the step is neither said nor shown
unplaced    the step has no status and no time
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from stepline.outputs.text import clock, shown_span
from stepline.records import Basis, Span, Status, Step

Verdict: TypeAlias = Literal["shown", "likely", "unclear", "said", "missing", "unplaced"]
VerdictText: TypeAlias = Literal[
    "shown", "likely shown, by the words", "unclear", "said, not shown", "not found", "not placed"
]

VERDICT_TEXTS: Final[dict[Verdict, VerdictText]] = {
    "shown": "shown",
    "likely": "likely shown, by the words",
    "unclear": "unclear",
    "said": "said, not shown",
    "missing": "not found",
    "unplaced": "not placed",
}
# words in an output that mark a step which is not certainly shown
DOUBT_TEXTS: Final[dict[Verdict, str]] = {"likely": "likely shown", "unclear": "unclear"}
STATUS_VERDICTS: Final[dict[Status, Verdict]] = {
    "shown": "shown",
    "unclear": "unclear",
    "said": "said",
    "not found": "missing",
}


def status_verdict(status: Status | None, basis: Basis | None, span: Span | None) -> Verdict:
    """Return the verdict ("shown", "likely", ...) on a step from its status and its evidence.

    Args:
        status: status of the step. None: only the span decides.
        basis: the kind of evidence that gave the step its span. None if it is unknown.
        span: the step's best span. None if it has no span.
    """
    if status is None:
        return "unplaced" if span is None else "shown"
    if status == "shown" and basis == "words":
        return "likely"
    return STATUS_VERDICTS[status]


def step_verdict(step: Step) -> Verdict:
    """Return the verdict on a step."""
    span = step.spans[0] if step.spans else None
    return status_verdict(step.status, step.basis, span)


def count_verdicts(steps: Iterable[Step]) -> dict[Verdict, int]:
    """Return the number of steps of each verdict, in the order of the verdicts, without zeros."""
    counts = Counter(map(step_verdict, steps))
    return {verdict: counts[verdict] for verdict in VERDICT_TEXTS if counts[verdict]}


def mean_likely_score(steps: Iterable[Step]) -> float | None:
    """Return the mean P(shown) of the steps with the verdict "likely", None without such a step."""
    likely = [step for step in steps if step_verdict(step) == "likely"]
    scores = [step.score for step in likely if step.score is not None]
    return sum(scores) / len(scores) if scores else None


def verdict_lines(steps: Iterable[Step]) -> dict[Verdict, str]:
    """Return the number of steps of each verdict in words, with P(shown) of the likely ones."""
    steps = tuple(steps)  # an iterator could be read only once
    score = mean_likely_score(steps)
    lines = {}
    for verdict, count in count_verdicts(steps).items():
        lines[verdict] = f"{count} {VERDICT_TEXTS[verdict]}"
        if verdict == "likely" and score is not None:
            lines[verdict] += f" (about {score * 100:.0f} of 100 such steps are)"
    return lines


def headline(steps: Iterable[Step]) -> str:
    """Return the number of steps of each verdict in one line, joined by commas."""
    return ", ".join(verdict_lines(steps).values())


def doubt_label(step: Step) -> str | None:
    """Return the label "likely shown" or "unclear" of a step, None for a step without doubt."""
    return DOUBT_TEXTS.get(step_verdict(step))


def step_time(step: Step) -> str:
    """Return when a step is shown, in words, or that it is only said or not found."""
    span = shown_span(step)
    if span is not None:
        time = f"{clock(span.start)}-{clock(span.end)}"
        label = doubt_label(step)
        return time if label is None else f"{time}, {label}"
    if step.said is None:
        return "not found"
    return f"said at {clock(step.said.start)}, not shown"
