"""Steps of a video without speech, described by a vision-language model.

Every step has the span of a segment of the video (`segments`), and is marked as seen and not said. Its
P(shown) is the prior reliability of the model in the settings.
"""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pydantic import JsonValue

from stepline.grounding.vision_language.questions import Reply, VisionRequests
from stepline.grounding.vision_language.segments import last_picture_second, video_segments
from stepline.llm.pictures import PictureReader
from stepline.llm.servers import open_server
from stepline.records import Span, Step
from stepline.vision.settings import VisionLanguageSettings
from stepline.writing.types import instruction_kind

SEEN_BY_VLM = "seen, not said: the words of a vision-language model"


@dataclass(frozen=True)
class DescribedSteps:
    """Steps of a video without speech, in the words of a vision-language model.

    Attributes:
        steps: one step for each run of neighbouring segments with the same description.
        report: server, requests, tokens, pictures and descriptions, for the record of the video.
        notes: warnings for the user.
    """

    steps: tuple[Step, ...]
    report: dict[str, JsonValue]
    notes: tuple[str, ...]


def describe_silent_video(
    shots: Sequence[slice],
    read_pictures: PictureReader,
    *,
    duration: float,
    settings: VisionLanguageSettings,
    start: float = 0.0,
) -> DescribedSteps:
    """Return the steps of a video without speech, as a vision-language model describes its pictures.

    One picture of each segment of the video is described: of a shot, or of a part of a long shot. If
    there are more segments than the limit of requests allows, evenly spread ones are described.

    Args:
        shots: slices of whole seconds that cover the video.
        read_pictures: function that returns second -> JPEG for wanted seconds.
        duration: duration of the video or its part in seconds.
        settings: settings of the vision-language model and its server.
        start: second of the whole video at which the part begins. The report counts times from there.

    Raises WriterError if the server cannot be reached or refuses access.
    """
    segments = []
    for segment in video_segments(shots):
        if segment.start < duration:
            segments.append(Span(float(segment.start), min(float(segment.stop), duration)))

    # the segments that are described, by a picture in the middle of their middle second
    max_segments = max(1, settings.requests * settings.choices)
    count = len(segments)
    if count > max_segments:
        segments = [segments[n * count // max_segments] for n in range(max_segments)]
    last = last_picture_second(duration)
    seconds = []
    for span in segments:
        middle = (int(span.start) + math.ceil(span.end)) // 2 + 0.5
        seconds.append(round(min(middle, last), 2))
    images: dict[float, bytes] = {}
    if settings.requests and not settings.dry_run:
        images = read_pictures(seconds)
    visible = [(span, at) for span, at in zip(segments, seconds, strict=True) if at in images]
    with closing(open_server(settings)) as opened:
        runner = VisionRequests.start(opened, settings)
        replies = runner.describe([images[second] for _, second in visible])
    report: dict[str, JsonValue] = {
        "server": opened.name,
        "requests": runner.limits.sent,
        "tokens": runner.limits.used,
        "pictures": [start + second for _, second in visible],
        "described": [reply.description for reply in replies],
    }
    reliability = settings.right / (settings.right + settings.wrong)
    described = [
        (span, reply.description) for (span, _), reply in zip(visible, replies, strict=True)
    ]
    return DescribedSteps(
        _merge_segments(described, reliability),
        report,
        _warning_notes(replies, len(segments), settings),
    )


def _warning_notes(
    replies: Sequence[Reply], pictures: int, settings: VisionLanguageSettings
) -> tuple[str, ...]:
    """Return a warning about pictures without a description, and the note of a dry run.

    Args:
        replies: replies of the model, one per picture.
        pictures: number of pictures that a real run would show.
        settings: settings of the vision-language model.
    """
    notes = []
    refusals = [reply.refusal for reply in replies if reply.refusal]
    if refusals:
        count = f"{len(refusals)} of {len(replies)} pictures"
        notes.append(f"provisional: {count} are not described ({refusals[0]})")
    if settings.dry_run:
        requests = -(-pictures // settings.choices)
        count = f"{pictures} pictures in {requests} requests"
        notes.append(f"dry run: a vision-language model would be shown {count}")
    return tuple(notes)


def _merge_segments(described: Sequence[tuple[Span, str]], p_shown: float) -> tuple[Step, ...]:
    """Return one step for each run of adjacent parts of the video that have the same description.

    Args:
        described: span in seconds and description of each part, sorted by time. "" for no
            description.
        p_shown: P(shown) of each step.
    """
    runs: list[tuple[Span, str]] = []
    for segment, text in described:
        if runs:
            last_segment, last_text = runs[-1]
            is_same = last_text.lower() == text.lower()
            if is_same and last_segment.end == segment.start:
                runs[-1] = (Span(last_segment.start, segment.end), last_text)
                continue
        runs.append((segment, text))
    steps: list[Step] = []
    for span, text in runs:
        if not text:
            continue
        step = Step(
            id=str(len(steps) + 1),
            text=text,
            kind=instruction_kind(text),
            spans=(span,),
            at=span.center,
            status="seen",
            basis="vlm",
            score=p_shown,
            seen=(SEEN_BY_VLM,),
        )
        steps.append(step)
    return tuple(steps)
