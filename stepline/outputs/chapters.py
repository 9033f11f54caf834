"""Chapters for a video's description, by YouTube's rules.

The rules (YouTube Help, "Video chapters"): the first chapter starts at 0:00. There are at least
three, in ascending order, each at least 10 seconds long. A description holds at most 5,000
characters and no angle brackets.
"""

import logging
from dataclasses import dataclass

from stepline.outputs.text import clock, published_line, shorten, shown_span
from stepline.records import Record

MIN_CHAPTER_SECONDS = 10  # s, YouTube's least length of a chapter
MIN_CHAPTERS = 3  # chapters, YouTube's least number
MAX_TITLE_CHARS = 60  # characters. A player shows about that many
MAX_STEP_CHARS = 44  # characters of each of several steps in a title. A longer one is cut
MAX_DESCRIPTION_CHARS = 5000  # characters that a YouTube description holds
MAX_CHAPTERS = 250  # chapters, so that each has 20 characters of a description
INTRO_TITLE = "Intro"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chapter:
    """A chapter of a video. It ends where the next chapter starts, or at the end of the video.

    Attributes:
        start: whole second of the video at which the chapter begins.
        title: text of the chapter.
    """

    start: int
    title: str


@dataclass(frozen=True)
class ChapterPlan:
    """The chapters of a video, or the reason why the video cannot have any.

    Attributes:
        chapters: in the order of time. Empty if there is a reason.
        reason: why YouTube's rules for chapters cannot be met, in words. None if there are
            chapters.
    """

    chapters: tuple[Chapter, ...]
    reason: str | None = None


def chapters(record: Record) -> str | None:
    """Return chapter lines such as `1:02:03 Fold the strip` for a YouTube description.

    The value is None if YouTube's rules for chapters cannot be met. The reason is logged, and
    `plan_chapters(record)` returns it.
    """
    plan = plan_chapters(record)
    if plan.reason is not None:
        log.info("%s: no chapters: %s", record.id, plan.reason)
        return None
    # Every line has an equal part of the description.
    limit = MAX_DESCRIPTION_CHARS // len(plan.chapters) - len("00:00:00 \n")
    return "".join(
        f"{clock(chapter.start)} {shorten(chapter.title, min(limit, MAX_TITLE_CHARS))}\n"
        for chapter in plan.chapters
    )


def plan_chapters(record: Record) -> ChapterPlan:
    """Return chapters of at least 10 s, each at the start of the best span of a seen or placed step.

    A step less than 10 s after the start of a chapter, or before the end, joins that chapter. Its
    title names the first steps, as many as fit, and counts the others: "Fold; Cut +2 more".
    An "Intro" comes before the first step. If the intro would be shorter than 10 s, the first
    chapter begins at 0:00 instead. Where more than 250 chapters would be left, the 10 s become more.
    """
    # The steps that are seen or placed, by whole seconds.
    last = 0.0
    titles: list[tuple[int, str]] = []
    for number, step in enumerate(record.steps, start=1):
        span = shown_span(step)
        if span is not None:
            # A YouTube description refuses angle brackets.
            text = published_line(step).replace("<", "‹").replace(">", "›")
            titles.append((int(span.start), text or f"Step {number}"))
            last = max(last, span.end)
    titles.sort(key=lambda title: title[0])
    # The least that the rules need.
    if record.video.duration is not None:
        last = record.video.duration
    end = int(last)
    needed_seconds = MIN_CHAPTERS * MIN_CHAPTER_SECONDS
    if end < needed_seconds:
        return ChapterPlan(
            (),
            f"{end} s of video; {MIN_CHAPTERS} chapters of {MIN_CHAPTER_SECONDS} s need "
            f"{needed_seconds} s",
        )
    if not titles:
        return ChapterPlan((), "no step is seen or placed, and only such steps become chapters")
    joined = _join_close_chapters(titles, end, MIN_CHAPTER_SECONDS)
    if len(joined) > MAX_CHAPTERS:
        joined = _join_close_chapters(titles, end, end // MAX_CHAPTERS + 1)
    if len(joined) < MIN_CHAPTERS:
        return ChapterPlan(
            (),
            f"only {len(joined)} chapter{'' if len(joined) == 1 else 's'} of at least "
            f"{MIN_CHAPTER_SECONDS} s; {MIN_CHAPTERS} are needed",
        )
    return ChapterPlan(tuple(joined))


def _join_close_chapters(titles: list[tuple[int, str]], end: int, length: int) -> list[Chapter]:
    """Return as many chapters as the rules allow: each begins at the earliest possible step.

    Args:
        titles: (second, title) of each step, in the order of time.
        end: last second of the video.
        length: least length of a chapter in seconds.
    """
    joined = [(0, [INTRO_TITLE if titles[0][0] >= length else titles[0][1]])]
    for start, title in titles:
        # Both the chapter before it and what is left must be long enough.
        if min(start - joined[-1][0], end - start) >= length:
            joined.append((start, [title]))
        elif title not in joined[-1][1]:
            joined[-1][1].append(title)
    return [Chapter(start, _join_titles(steps)) for start, steps in joined]


def _join_titles(titles: list[str]) -> str:
    for count in range(len(titles), 0, -1):
        rest = f" +{len(titles) - count} more" if count < len(titles) else ""
        limit = MAX_STEP_CHARS if count > 1 else MAX_TITLE_CHARS - len(rest)
        text = "; ".join(shorten(title, limit) for title in titles[:count]) + rest
        if len(text) <= MAX_TITLE_CHARS:
            break
    return text
