"""Steps that say the same thing twice, folded; and their numbers.

The language-model writer ends with them too.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from stepline.narration.words import word_set
from stepline.records import Matrix, Step, covering_span
from stepline.text import embed
from stepline.writing.types import instruction_kind

# sentences between two tellings of one action; further apart it is done again (about half a minute
# of speech)
NEAR_SENTENCES = 6

# Words that change how an action is told but not which action it is.
_HOLLOW_WORDS = word_set(
    """
    a an the my your our their his her its some this that these those then now just again also and first next
    """
)


def merge_repeats(steps: Iterable[Step], *, near: int = NEAR_SENTENCES) -> tuple[Step, ...]:
    """Return the steps in their order, the later of two equal ones folded into the first.

    Equal means the same words but for articles, possessives and fillers, told at most `near`
    sentences apart. A step without sources is folded into an equal one wherever it stands.
    """
    remaining: list[Step] = []
    # The first of `remaining` that tells an action (None), tells it in a sentence (its number), tells it
    # in none (-1).
    places: dict[tuple[tuple[str, ...], int | None], int] = {}
    for step in steps:
        key = _key(step.text)
        where = [source + d for source in step.sources for d in range(-near, near + 1)]
        twins = [
            places[key, at] for at in ((-1, *where) if where else (None,)) if (key, at) in places
        ]
        place = min(twins, default=len(remaining))
        if place == len(remaining):
            remaining.append(step)
        else:
            first = remaining[place]
            sources = tuple(sorted({*first.sources, *step.sources}))
            span = covering_span([first.said, step.said])
            remaining[place] = first.model_copy(update={"sources": sources, "said": span})
            if sources and places.get((key, -1)) == place:
                del places[key, -1]
        for at in (None, *remaining[place].sources) if remaining[place].sources else (None, -1):
            places[key, at] = min(place, places.get((key, at), place))
    return tuple(remaining)


def number_steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps with the ids "1", "2", ... in their order, each of its kind: to do or to
    avoid."""
    return tuple(
        step.model_copy(update={"id": str(i), "kind": instruction_kind(step.text)})
        for i, step in enumerate(steps, start=1)
    )


def _key(text: str) -> tuple[str, ...]:
    """Return the words that say which action it is."""
    words = re.findall(r"\w+", text.lower())
    return tuple(word for word in words if word not in _HOLLOW_WORDS) or tuple(words)


# Cosine of two steps told near each other from which they say the same; by eye on narrations.
SAME_COSINE = 0.92
SAME_VERB_COSINE = 0.84  # the same of two steps with one verb


def fold_by_meaning(
    steps: Sequence[Step],
    *,
    near: int = NEAR_SENTENCES,
    embed: Callable[[Sequence[str]], Matrix] = embed,
    differ: Callable[[str, str], bool] = lambda one, other: False,  # noqa: ARG005
) -> tuple[Step, ...]:
    """Return the steps, the later of two that mean the same folded into the first.

    Only steps told at most `near` sentences apart, and of the same kind: do or avoid. embed: texts
    to unit rows. differ: whether two texts are different steps however near their rows are.
    """
    if not steps:
        return ()
    vectors = embed([step.text for step in steps])  # (K, D)
    remaining: list[Step] = []
    rows: list[int] = []
    for row, step in enumerate(steps):
        twin = None
        for place in range(len(remaining) - 1, -1, -1):
            earlier = remaining[place]
            if not earlier.sources or not step.sources:
                continue
            if step.sources[0] - earlier.sources[-1] > near:
                break
            has_same_verb = step.text.split()[:1] == earlier.text.split()[:1]
            least = SAME_VERB_COSINE if has_same_verb else SAME_COSINE
            is_same = float(vectors[row] @ vectors[rows[place]]) >= least
            same_kind = instruction_kind(step.text) == instruction_kind(earlier.text)
            if is_same and same_kind and not differ(earlier.text, step.text):
                twin = place
                break
        if twin is None:
            remaining.append(step)
            rows.append(row)
            continue
        earlier = remaining[twin]
        sources = tuple(sorted({*earlier.sources, *step.sources}))
        span = covering_span([earlier.said, step.said])
        text = max(earlier.text, step.text, key=len)
        changes = {"sources": sources, "said": span, "text": text}
        remaining[twin] = earlier.model_copy(update=changes)
    return tuple(remaining)
