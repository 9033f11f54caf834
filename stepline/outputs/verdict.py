"""The verdict on a step, in the same words in every output.

shown       the pictures show it
likely      its words place it, and the pictures weigh nothing: likely shown
unclear     its words place it, and the pictures, or the talk, speak against it
said        spoken of, not shown
missing     neither
unplaced    no verdict, and no time
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
# what is in an output after the time, or before the text, of a step that is not plainly shown
DOUBT_TEXTS: Final[dict[Verdict, str]] = {"likely": "likely shown", "unclear": "unclear"}
STATUS_VERDICTS: Final[dict[Status, Verdict]] = {
    "shown": "shown",
    "unclear": "unclear",
    "said": "said",
    "not found": "missing",
}


def status_verdict(status: Status | None, basis: Basis | None, span: Span | None) -> Verdict:
    """Return the verdict of a status that rests on `basis`. Without a status, of the time alone."""
    if status is None:
        return "unplaced" if span is None else "shown"
    if status == "shown" and basis == "words":
        return "likely"
    return STATUS_VERDICTS[status]


def step_verdict(step: Step) -> Verdict:
    """Return the verdict on a step. One without a status is judged by the times it has."""
    span = step.spans[0] if step.spans else None
    return status_verdict(step.status, step.basis, span)


def count_verdicts(steps: Iterable[Step]) -> dict[Verdict, int]:
    """Return how many steps there are of each verdict that occurs, in the order of the table."""
    counts = Counter(map(step_verdict, steps))
    return {verdict: counts[verdict] for verdict in VERDICT_TEXTS if counts[verdict]}


def likely_fraction(steps: Iterable[Step]) -> float | None:
    """Return the mean P(shown) of the steps that are likely shown by their words, which the
    pictures do not distinguish. None without such a step."""
    likely = [step for step in steps if step_verdict(step) == "likely"]
    scores = [step.score for step in likely if step.score is not None]
    return sum(scores) / len(scores) if scores else None


def verdict_lines(steps: Iterable[Step]) -> dict[Verdict, str]:
    """Return in words how many steps there are of each verdict, and once how many of 100 steps that
    their words place are shown."""
    # They are gone through twice.
    steps = tuple(steps)
    fraction = likely_fraction(steps)
    lines = {}
    for verdict, count in count_verdicts(steps).items():
        lines[verdict] = f"{count} {VERDICT_TEXTS[verdict]}"
        if verdict == "likely" and fraction is not None:
            lines[verdict] += f" (about {fraction * 100:.0f} of 100 such steps are)"
    return lines


def headline(steps: Iterable[Step]) -> str:
    """Return `verdict_lines` in one line."""
    return ", ".join(verdict_lines(steps).values())


def doubt(step: Step) -> str | None:
    """Return in two words why a step that has a time is not plainly shown. None where it is."""
    return DOUBT_TEXTS.get(step_verdict(step))


def step_time(step: Step) -> str:
    """Return when a step is shown, with the doubt there is, or what is known instead, in words."""
    span = shown_span(step)
    if span is not None:
        time = f"{clock(span.start)}-{clock(span.end)}"
        reason = doubt(step)
        return time if reason is None else f"{time}, {reason}"
    if step.said is None:
        return "not found"
    return f"said at {clock(step.said.start)}, not shown"
