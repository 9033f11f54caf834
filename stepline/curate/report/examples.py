"""Videos of a dataset as examples: some of their steps with seconds and pictures, and where each
video is."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.outputs.text import clock, shown_span, step_line
from stepline.outputs.text import title as record_title
from stepline.outputs.web_addresses import media_link
from stepline.records import Record, Span

PICTURE_SIDE = 240  # pixels of the longer side
JPEG_QUALITY = 55
WEB_SCHEMES = ("https://", "http://")  # of addresses that a page may lead to


@dataclass(frozen=True)
class ExampleStep:
    """A step of an example video.

    Attributes:
        number: number of the step in its video, from 1.
        text: text of the step.
        span: seconds in which it is shown.
        at: second of its picture.
    """

    number: int
    text: str
    span: Span
    at: float

    @property
    def seconds(self) -> str:
        """The span as text with clock times, such as "0:12 – 0:20"."""
        return f"{clock(self.span.start)} – {clock(self.span.end)}"


@dataclass(frozen=True)
class ExampleVideo:
    """A video of the dataset that the report shows as an example.

    Attributes:
        record: record of the video.
        steps: the steps that the report shows.
    """

    record: Record
    steps: Sequence[ExampleStep]

    @property
    def title(self) -> str:
        """The title of the video, or its id if the title is unknown."""
        return record_title(self.record)

    @property
    def facts(self) -> list[str]:
        """Task, language of the speech, duration and number of steps as texts, if known."""
        video, transcript = self.record.video, self.record.transcript
        facts = [video.task, transcript and transcript.language]
        if video.duration is not None:
            facts.append(clock(video.duration))
        count = len(self.record.steps)
        facts.append(f"{count} step{'' if count == 1 else 's'}")
        return [fact for fact in facts if fact]


def example_video(record: Record, count: int) -> ExampleVideo:
    """Return a video with at most `count` of its steps that have a time, evenly spread."""
    # Only a step with a time can be shown with a picture.
    placed = []
    for number, step in enumerate(record.steps, start=1):
        span = shown_span(step)
        if span is not None:
            at = span.center if step.at is None else step.at
            placed.append(ExampleStep(number, step_line(step), span, at))
    if len(placed) > count:
        # The middles of `count` equal parts.
        places = [(2 * part + 1) * len(placed) // (2 * count) for part in range(count)]
        placed = [placed[place] for place in places]
    return ExampleVideo(record, placed)


def read_jpegs(video: Path, times: Sequence[float]) -> dict[float, bytes]:
    """Return second -> small JPEG of the frame at that second. Undecodable frames are absent.

    times: seconds, sorted.
    """
    from PIL import Image

    from stepline.media.reader import read_frames_at

    jpegs = {}
    for still in read_frames_at(video, times, longer=PICTURE_SIDE):
        buffer = io.BytesIO()
        Image.fromarray(still.image).save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
        jpegs[still.time] = buffer.getvalue()
    return jpegs


def video_link(address: str | None, folder: Path | None) -> str | None:
    """Return a link to a video for a web page. None if there is no such file.

    Args:
        address: path or http(s) address of the video. All other addresses give no link.
        folder: folder of the web page. None: only http(s) addresses give a link.
    """
    if address is None:
        return None
    if address.lower().startswith(WEB_SCHEMES):
        return address
    # An address of any other scheme could run something when it is clicked.
    path = Path(address.removeprefix("file://"))
    if "://" in address or folder is None or not path.is_file():
        return None
    return media_link(os.path.relpath(path, folder))


def step_link(link: str | None, step: ExampleStep) -> str | None:
    """Return a link to the seconds of a step in a video.

    link: link to the video. None gives None.
    """
    # The page of a site takes no media fragment.
    if link is None or link.lower().startswith(WEB_SCHEMES):
        return link
    return f"{link}#t={step.span.start:.2f},{step.span.end:.2f}"
