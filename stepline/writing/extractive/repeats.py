"""Repeated steps, merged, and the numbers of steps.

The language-model writer ends with them too.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from stepline.records import Matrix, Step, covering_span
from stepline.text import embed
from stepline.text.narration.words import word_set
from stepline.writing.types import instruction_kind

# Sentences between two mentions of one action. Further apart it is done again (about half a minute
# of speech).
MAX_REPEAT_DISTANCE_SENTENCES = 6

# Words that change how an action is said but not which action it is.
_FILLER_WORDS = word_set(
    """
    a an the my your our their his her its some this that these those then now just again also and first next
    """
)


Steps: TypeAlias = tuple[Step, ...]
ActionWords: TypeAlias = tuple[str, ...]
SentenceNumber: TypeAlias = int | None
NO_SENTENCE = -1  # number of the sentence of a step without sources
ANY_SENTENCE = None


def merge_repeats(
    steps: Iterable[Step], *, max_distance: int = MAX_REPEAT_DISTANCE_SENTENCES
) -> Steps:
    """Return the steps in order, repeats merged into the first of equal steps.

    Equal means the same words except articles, possessives and fillers, at most `max_distance`
    sentences apart. A step without sources equals one anywhere.
    """
    merged_steps: list[Step] = []
    # The first of `merged_steps` with an action: in a sentence (its number), in none, in any.
    first_index_of: dict[tuple[ActionWords, SentenceNumber], int] = {}
    for step in steps:
        action = _action_words(step.text)
        # The earliest equal step nearby.
        earlier_indices = []
        for number in _near_sentences(step, max_distance):
            if (action, number) in first_index_of:
                earlier_indices.append(first_index_of[action, number])
        index = min(earlier_indices, default=len(merged_steps))
        if index == len(merged_steps):
            merged_steps.append(step)
        else:
            merged_steps[index] = _merge_steps(merged_steps[index], step)
            # It has sources now. A step far away must no longer find it as one without any.
            has_sources = bool(merged_steps[index].sources)
            if has_sources and first_index_of.get((action, NO_SENTENCE)) == index:
                del first_index_of[action, NO_SENTENCE]
        # Where the action is said, for the steps that follow.
        sources = merged_steps[index].sources or (NO_SENTENCE,)
        for sentence in (ANY_SENTENCE, *sources):
            earliest = first_index_of.get((action, sentence), index)
            first_index_of[action, sentence] = min(index, earliest)
    return tuple(merged_steps)


def _near_sentences(step: Step, max_distance: int) -> list[SentenceNumber]:
    """Return the sentences in which an equal step counts as a repeat."""
    if not step.sources:
        return [ANY_SENTENCE]
    numbers: list[SentenceNumber] = [NO_SENTENCE]
    for source in step.sources:
        numbers += range(source - max_distance, source + max_distance + 1)
    return numbers


def _merge_steps(step: Step, repeat: Step) -> Step:
    """Return a step with the sources and the span of its repeat added."""
    sources = {*step.sources, *repeat.sources}
    span = covering_span([step.said, repeat.said])
    changes = {"sources": tuple(sorted(sources)), "said": span}
    return step.model_copy(update=changes)


def number_steps(steps: Iterable[Step]) -> Steps:
    """Return the steps with ids "1", "2", ... and their kinds: to do or to avoid."""
    numbered = []
    for number, step in enumerate(steps, start=1):
        kind = instruction_kind(step.text)
        changes = {"id": str(number), "kind": kind}
        numbered.append(step.model_copy(update=changes))
    return tuple(numbered)


def _action_words(text: str) -> ActionWords:
    """Return the words of a step without fillers."""
    words = re.findall(r"\w+", text.lower())
    action_words = [word for word in words if word not in _FILLER_WORDS]
    if not action_words:
        return tuple(words)
    return tuple(action_words)


# Cosine from which two steps near each other say the same, by eye on narrations.
MIN_SAME_STEP_COSINE = 0.92
MIN_SAME_VERB_COSINE = 0.84  # the same of two steps with one verb


def merge_by_meaning(
    steps: Sequence[Step],
    *,
    max_distance: int = MAX_REPEAT_DISTANCE_SENTENCES,
    embed: Callable[[Sequence[str]], Matrix] = embed,
    are_different: Callable[[str, str], bool] = lambda text, other: False,  # noqa: ARG005
) -> Steps:
    """Return the steps, the later of two with equal meaning merged into the first.

    Only steps of one kind (do or avoid) are merged.

    Args:
        steps: in order.
        max_distance: sentences between the two at most.
        embed: texts to unit vectors.
        are_different: whether two texts are different steps however similar their vectors are.
    """
    if not steps:
        return ()
    vectors = embed([step.text for step in steps])  # (K, D)
    merged_steps: list[Step] = []
    rows: list[int] = []
    for row, step in enumerate(steps):
        # The nearest earlier step that means the same.
        duplicate_index = None
        for index in reversed(range(len(merged_steps))):
            earlier = merged_steps[index]
            if not earlier.sources or not step.sources:
                continue
            # Steps come in order, so all others are further away still.
            distance = step.sources[0] - earlier.sources[-1]
            if distance > max_distance:
                break
            earlier_row = rows[index]
            cosine = float(vectors[row] @ vectors[earlier_row])
            min_cosine = _min_cosine(step.text, earlier.text)
            is_same = cosine >= min_cosine
            same_kind = instruction_kind(step.text) == instruction_kind(earlier.text)
            if is_same and same_kind and not are_different(earlier.text, step.text):
                duplicate_index = index
                break
        if duplicate_index is None:
            merged_steps.append(step)
            rows.append(row)
            continue
        # The longer of the two texts says more.
        earlier = merged_steps[duplicate_index]
        text = max(earlier.text, step.text, key=len)
        merged = _merge_steps(earlier, step)
        merged_steps[duplicate_index] = merged.model_copy(update={"text": text})
    return tuple(merged_steps)


def _min_cosine(text: str, other: str) -> float:
    """Return the cosine from which two texts are the same step."""
    verb = text.split()[:1]
    other_verb = other.split()[:1]
    if verb == other_verb:
        return MIN_SAME_VERB_COSINE
    return MIN_SAME_STEP_COSINE
