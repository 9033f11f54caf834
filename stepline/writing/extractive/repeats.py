"""The last two operations of both step writers: repeated steps are merged, and all are numbered."""

from collections.abc import Callable, Iterable, Sequence

from stepline.records import Matrix, Step, covering_span
from stepline.text import embed
from stepline.writing.types import MAX_ACTION_PAUSE_SECONDS, instruction_kind

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
MIN_SAME_VERB_COSINE = 0.84  # the same of two steps with one verb


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
