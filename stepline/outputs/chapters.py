"""Chapters for a video's description, by YouTube's rules.

The rules (YouTube Help, "Video chapters"): the first chapter starts at 0:00, there are at least three, in ascending
order, each at least 10 seconds long. A description holds at most 5,000 characters and no angle brackets.
"""

import logging
from dataclasses import dataclass

from stepline.outputs.text import clock, one_line, sentence_case, shorten, shown_span
from stepline.records import Record

SHORTEST = 10  # s, YouTube's least length of a chapter
FEWEST = 3  # chapters, YouTube's least number
LONGEST_TITLE = 100  # characters; longer ones are cut off in the player anyway
DESCRIPTION = 5000  # characters that a YouTube description holds
INTRO = "Intro"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chapter:
    """A chapter from its whole second to the start of the next, or to the end of the video."""

    start: int
    title: str


@dataclass(frozen=True)
class ChapterPlan:
    """The chapters, or none and the reason why there cannot be any."""

    chapters: tuple[Chapter, ...]
    reason: str | None = None


def chapters(record: Record) -> str | None:
    """Return lines such as `1:02:03 Fold the strip`, or None where YouTube's rules cannot be met.

    The reason for a None is in `plan_chapters(record).reason`, and logged.
    """
    plan = plan_chapters(record)
    if plan.reason is not None:
        log.info("%s: no chapters: %s", record.id, plan.reason)
        return None
    limit = min(LONGEST_TITLE, DESCRIPTION // len(plan.chapters) - len("00:00:00 \n"))
    return "".join(f"{clock(chapter.start)} {shorten(chapter.title, limit)}\n" for chapter in plan.chapters)


def plan_chapters(record: Record) -> ChapterPlan:
    """Return chapters of at least 10 s from the steps that are shown, each at the start of its best span.

    A step within 10 s of the chapter before it, or of the end, joins that chapter's title. Before the first step
    comes an "Intro", unless that would be shorter than 10 s: then the first step's chapter starts at 0:00.
    """
    numbered = [(number, step.text, shown_span(step)) for number, step in enumerate(record.steps, start=1)]
    shown = [(number, text, span) for number, text, span in numbered if span is not None]
    starts = sorted((int(span.start), number, text) for number, text, span in shown)
    titles = [(start, _title(text) or f"Step {number}") for start, number, text in starts]
    last = max((span.end for _, _, span in shown), default=0.0)
    end = int(last if record.video.duration is None else record.video.duration)
    if end < FEWEST * SHORTEST:
        return ChapterPlan((), f"{end} s of video; {FEWEST} chapters of {SHORTEST} s need {FEWEST * SHORTEST} s")
    joined = _join(titles, end)
    if len(joined) < FEWEST:
        return ChapterPlan((), f"only {len(joined)} chapters of at least {SHORTEST} s; {FEWEST} are needed")
    return ChapterPlan(tuple(joined))


def _join(titles: list[tuple[int, str]], end: int) -> list[Chapter]:
    """Walk the steps in time, opening a chapter where the rules allow one; the earliest start first gives the most."""
    joined: list[Chapter] = []
    if titles and titles[0][0] >= SHORTEST:
        joined.append(Chapter(0, INTRO))
    for start, title in titles:
        if not joined:
            joined.append(Chapter(0, title))
        elif start - joined[-1].start >= SHORTEST and end - start >= SHORTEST:
            joined.append(Chapter(start, title))
        elif title not in joined[-1].title.split("; "):
            joined[-1] = Chapter(joined[-1].start, f"{joined[-1].title}; {title}")
    return joined


def _title(text: str) -> str:
    # A YouTube description refuses angle brackets.
    return sentence_case(one_line(text).replace("<", "‹").replace(">", "›"))
