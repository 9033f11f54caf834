"""The storyboard of a summary: a picture, the steps and the seconds of every segment that was kept,
on one page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from stepline.models.wys2.summary import SummarySegment
from stepline.outputs.html import media_link, picture_link
from stepline.outputs.text import clock, one_line, sentence_case, step_line
from stepline.outputs.verdict import Verdict, doubt, headline, step_verdict
from stepline.pages.layout import page_html
from stepline.records import Record

SUMMARY_SUFFIX = ".summary.mp4"  # of the film that a storyboard is next to


@dataclass(frozen=True)
class _PanelStep:
    """A step, its picture, and the verdict on it as a class of the style and in words, None where
    it is plainly shown."""

    text: str
    picture: str | None
    verdict: Verdict
    doubt: str | None


@dataclass(frozen=True)
class _Panel:
    """One segment: where it is in the video and in the summary, and its steps, each with its
    picture."""

    number: int
    there: str
    here: str
    in_video: str | None
    in_film: str | None
    seconds: float
    steps: tuple["_PanelStep", ...]


def storyboard(
    record: Record,
    segments: Sequence[SummarySegment],
    *,
    keyframes: Mapping[str, bytes],
    film: str | None = None,
    media: str | None = None,
) -> str:
    """Return the page as HTML. keyframes: a JPEG for a step's id. film, media: paths of summary and
    video from here."""
    # the facts of its head
    seconds = clock(sum(segment.span.duration for segment in segments))
    if record.video.duration:
        seconds += f" of {clock(record.video.duration)}"
    steps = [step for segment in segments for step in segment.steps]
    noun = "step" if len(steps) == 1 else "steps"
    facts = [seconds, f"{len(steps)} {noun}", headline(steps)]
    style = files(__package__).joinpath("storyboard.css").read_text(encoding="utf-8")
    page = files(__package__).joinpath("storyboard.html").read_text(encoding="utf-8")

    # a panel per segment
    panels = []
    offset = 0.0
    for number, segment in enumerate(segments, start=1):
        panel_steps = []
        for step in segment.steps:
            picture = None
            if step.id in keyframes:
                picture = picture_link(keyframes[step.id])
            panel_step = _PanelStep(step_line(step), picture, step_verdict(step), doubt(step))
            panel_steps.append(panel_step)
        span = segment.span
        panel = _Panel(
            number=number,
            there=f"{clock(span.start)} – {clock(span.end)}",
            here=clock(offset),
            in_video=_link(media, span.start),
            in_film=_link(film, offset),
            seconds=span.duration,
            steps=tuple(panel_steps),
        )
        panels.append(panel)
        offset += span.duration
    return page_html(
        page,
        style=style,
        title=sentence_case(one_line(record.video.title or record.video.id)),
        language=record.transcript.language if record.transcript else None,
        facts=facts,
        panels=panels,
        film=media_link(film) if film is not None else None,
    )


def _link(path: str | None, second: float) -> str | None:
    """Return a link to a second of a file. None without one."""
    if path is None:
        return None
    return f"{media_link(path)}#t={second:.2f}"
