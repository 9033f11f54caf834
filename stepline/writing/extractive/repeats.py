"""The last two operations of both step writers: repeated steps are merged, and all are numbered."""

from collections.abc import Callable, Iterable, Sequence

from stepline.records import Matrix, Step, covering_span
from stepline.text import embed
from stepline.writing.types import instruction_kind

# Sentences between two mentions of one action. Further apart it is done again.
MAX_REPEAT_DISTANCE_SENTENCES = 6


def number_steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps with ids "1", "2", ... and the kind of each: "do" or "avoid"."""
    return tuple(
        step.model_copy(update={"id": str(number), "kind": instruction_kind(step.text)})
        for number, step in enumerate(steps, start=1)
    )


# Cosine from which two steps near each other say the same, by eye on narrations.
MIN_SAME_STEP_COSINE = 0.92


def merge_by_meaning(
    steps: Sequence[Step],
    *,
    embed: Callable[[Sequence[str]], Matrix] = embed,
    are_different: Callable[[str, str], bool] = lambda text, other: False,  # noqa: ARG005
) -> tuple[Step, ...]:
    """Return the steps in spoken order, with each repeated step merged into its first mention.

    Two steps are repeats if their texts have a high cosine, their kind (do or avoid) is the same,
    and at most MAX_REPEAT_DISTANCE_SENTENCES are between them. The merged step has the longer text,
    the sources of both and a span that covers both.

    Args:
        steps: in spoken order, each with at least one source sentence.
        embed: returns one unit vector per text, (N, D).
        are_different: returns whether two texts are different steps, however high their cosine is.
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
            if (
                vectors[row] @ vectors[rows[index]] >= MIN_SAME_STEP_COSINE
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
