"""The storyboard of a summary: a picture, the steps and the seconds of every segment that was kept,
on one page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from stepline.layout import page_html
from stepline.outputs.html import media_link, picture_link
from stepline.outputs.text import clock, one_line, sentence_case, step_line
from stepline.outputs.verdict import Verdict, doubt, headline, step_verdict
from stepline.records import Record
from stepline.wys2.summary import SummarySegment

SUMMARY_SUFFIX = ".summary.mp4"  # of the film beside which a storyboard lies


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
    """One segment: where it stands in the video and in the summary, and its steps, each with its
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
    kept = sum(segment.span.duration for segment in segments)
    whole = record.video.duration
    steps = [step for segment in segments for step in segment.steps]
    facts = [
        f"{clock(kept)} of {clock(whole)}" if whole else clock(kept),
        f"{len(steps)} step{'' if len(steps) == 1 else 's'}",
        headline(steps),
    ]
    style = files(__package__).joinpath("storyboard.css").read_text(encoding="utf-8")
    page = files(__package__).joinpath("storyboard.html").read_text(encoding="utf-8")
    panels, offset = [], 0.0
    for number, segment in enumerate(segments, start=1):
        panel_steps = []
        for step in segment.steps:
            picture = picture_link(keyframes[step.id]) if step.id in keyframes else None
            panel_steps.append(
                _PanelStep(step_line(step), picture, step_verdict(step), doubt(step))
            )
        there = f"{clock(segment.span.start)} – {clock(segment.span.end)}"
        links = (_link(media, segment.span.start), _link(film, offset))
        panels.append(
            _Panel(number, there, clock(offset), *links, segment.span.duration, tuple(panel_steps))
        )
        offset += segment.span.duration
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
    """Return a link to a second of a file; None without one."""
    return None if path is None else f"{media_link(path)}#t={second:.2f}"
