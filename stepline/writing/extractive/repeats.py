"""Repeated steps, merged, and the numbers of steps.

The language-model writer ends with them too.
"""

from collections.abc import Callable, Iterable, Sequence

from stepline.records import Matrix, Step, covering_span
from stepline.text import embed
from stepline.writing.types import MAX_ACTION_PAUSE_SECONDS, instruction_kind

# Sentences between two mentions of one action. Further apart it is done again.
MAX_REPEAT_DISTANCE_SENTENCES = 6


def number_steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps with ids "1", "2", ... and the kind of each: "do" or "avoid"."""
    numbered = []
    for number, step in enumerate(steps, start=1):
        kind = instruction_kind(step.text)
        changes = {"id": str(number), "kind": kind}
        numbered.append(step.model_copy(update=changes))
    return tuple(numbered)


# Cosine from which two steps near each other say the same, by eye on narrations.
MIN_SAME_STEP_COSINE = 0.92
MIN_SAME_VERB_COSINE = 0.84  # the same of two steps with one verb


def merge_by_meaning(
    steps: Sequence[Step],
    *,
    embed: Callable[[Sequence[str]], Matrix] = embed,
    are_different: Callable[[str, str], bool] = lambda text, other: False,  # noqa: ARG005
) -> tuple[Step, ...]:
    """Return the steps in order, each that repeats an earlier one near it merged into that one.

    Two steps of one kind (do or avoid) are repeats where the cosine of their texts is high. The
    merged step has the sources and the spoken span of both, and the longer text.

    Args:
        steps: in spoken order, each with source sentences.
        embed: texts to unit vectors, (N, D).
        are_different: whether two texts are different steps however similar their vectors are.
    """
    if not steps:
        return ()
    vectors = embed([step.text for step in steps])  # (K, D)
    merged_steps: list[Step] = []
    rows: list[int] = []
    for row, step in enumerate(steps):
        # The nearest earlier step that means the same. Those before a far one are further away.
        repeated = None
        for index in reversed(range(len(merged_steps))):
            earlier = merged_steps[index]
            if step.sources[0] - earlier.sources[-1] > MAX_REPEAT_DISTANCE_SENTENCES:
                break
            # From the first mention: a chain of mentions does not last for minutes.
            first = steps[rows[index]].said
            if first and step.said and first.pause(step.said) > MAX_ACTION_PAUSE_SECONDS:
                break
            verbs = {text.lower().split()[0] for text in (step.text, earlier.text)}
            min_cosine = MIN_SAME_VERB_COSINE if len(verbs) == 1 else MIN_SAME_STEP_COSINE
            if (
                vectors[row] @ vectors[rows[index]] >= min_cosine
                and instruction_kind(step.text) == instruction_kind(earlier.text)
                and not are_different(earlier.text, step.text)
            ):
                repeated = index
                break
        if repeated is None:
            merged_steps.append(step)
            rows.append(row)
            continue
        earlier = merged_steps[repeated]
        changes = {
            "text": max(earlier.text, step.text, key=len),
            "sources": tuple(sorted({*earlier.sources, *step.sources})),
            "said": covering_span([earlier.said, step.said]),
        }
        merged_steps[repeated] = earlier.model_copy(update=changes)
    return tuple(merged_steps)
