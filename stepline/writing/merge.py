"""Joins steps that say the same thing twice, and numbers what is left; both writers end here."""

import re
from collections.abc import Iterable, Sequence

from stepline.records import Span, Step, Transcript
from stepline.writing.word_sets import word_set

NEAR = 6  # sentences between two tellings of one action; further apart it is done again (about half a minute of speech)

# Words that change how an action is told but not which action it is.
_HOLLOW = word_set(
    """
    a an the my your our their his her its some this that these those then now just again also and first next
    """
)


def merge_repeats(steps: Iterable[Step], *, near: int = NEAR) -> tuple[Step, ...]:
    """Return the steps in their order, the later of two equal ones folded into the first.

    Equal means the same words but for articles, possessives and fillers, told at most `near` sentences apart.
    A step without sources is folded into an equal one wherever it stands.
    """
    kept: list[Step] = []
    told: dict[tuple[str, ...], list[int]] = {}  # the words of an action -> where it stands in `kept`
    for step in steps:
        places = told.setdefault(_key(step.text), [])
        twin = next((place for place in places if _is_near(kept[place], step, near)), None)
        if twin is None:
            places.append(len(kept))
            kept.append(step)
        else:
            kept[twin] = _joined(kept[twin], step)
    return tuple(kept)


def number(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps with the ids "1", "2", ... in their order."""
    return tuple(step.model_copy(update={"id": str(i)}) for i, step in enumerate(steps, start=1))


def said_span(transcript: Transcript, sources: Sequence[int]) -> Span | None:
    """Return the span from the first to the last second of the cited sentences; None when none is cited."""
    return union(transcript.sentences[i].span for i in sources)


def union(spans: Iterable[Span | None]) -> Span | None:
    """Return the shortest span that covers all the known ones; None when none is known."""
    known = [span for span in spans if span is not None]
    if not known:
        return None
    return Span(min(span.start for span in known), max(span.end for span in known))


def _is_near(first: Step, second: Step, near: int) -> bool:
    if not (first.sources and second.sources):
        return True
    return min(abs(a - b) for a in first.sources for b in second.sources) <= near


def _key(text: str) -> tuple[str, ...]:
    """Return the words that say which action it is."""
    words = re.findall(r"\w+", text.lower())
    return tuple(word for word in words if word not in _HOLLOW) or tuple(words)


def _joined(first: Step, second: Step) -> Step:
    return first.model_copy(
        update={"sources": tuple(sorted({*first.sources, *second.sources})), "said": union([first.said, second.said])}
    )
