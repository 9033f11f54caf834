"""Steps of a video without speech, described by a vision-language model.

Every step has the span of a place, and is marked as seen and not said. Its P(shown) is the prior
reliability of the model in the settings.
"""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pydantic import JsonValue

from stepline.grounding.vision_language.places import last_picture_second, video_places
from stepline.grounding.vision_language.questions import Reply, VisionRequests
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
        steps: one step for each run of neighbouring places with the same description.
        report: server, requests, tokens, pictures and descriptions, for the record of the video.
        notes: warnings for the user.
    """

    steps: tuple[Step, ...]
    report: dict[str, JsonValue]
    notes: tuple[str, ...]


def describe_places(
    shots: Sequence[slice],
    pictures: PictureReader,
    *,
    duration: float,
    settings: VisionLanguageSettings,
    start: float = 0.0,
) -> DescribedSteps:
    """Return the steps of a video without speech, as a vision-language model describes its pictures.

    If there are more places than the limit of requests allows, evenly spread places are described.

    Args:
        shots: slices of whole seconds that cover the video.
        pictures: function that reads JPEGs by their seconds.
        duration: duration of the video or its part in seconds.
        settings: settings of the vision-language model and its server.
        start: second of the whole video at which the part begins. The report counts times from there.

    Raises WriterError if the server cannot be reached or refuses access.
    """
    places = []
    for place in video_places(shots):
        if place.start < duration:
            places.append(Span(float(place.start), min(float(place.stop), duration)))

    # the places that are described, by a picture in the middle of their middle second
    max_places = max(1, settings.requests * settings.choices)
    count = len(places)
    if count > max_places:
        places = [places[n * count // max_places] for n in range(max_places)]
    last = last_picture_second(duration)
    seconds = []
    for place_span in places:
        middle = (int(place_span.start) + math.ceil(place_span.end)) // 2 + 0.5
        seconds.append(round(min(middle, last), 2))
    images: dict[float, bytes] = {}
    if settings.requests and not settings.dry_run:
        images = pictures(seconds)
    visible = [(span, at) for span, at in zip(places, seconds, strict=True) if at in images]
    with closing(open_server(settings)) as opened:
        runner = VisionRequests.start(opened, settings)
        replies = runner.describe([images[second] for _, second in visible])
    report: dict[str, JsonValue] = {
        "server": opened.name,
        "requests": runner.limits.sent,
        "tokens": runner.limits.used,
        "pictures": [start + second for _, second in visible],
        "described": [reply.after for reply in replies],
    }
    reliability = settings.right / (settings.right + settings.wrong)
    described = [(span, reply.after) for (span, _), reply in zip(visible, replies, strict=True)]
    return DescribedSteps(
        _merge_places(described, reliability),
        report,
        _warning_notes(replies, len(places), settings),
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


def _merge_places(described: Sequence[tuple[Span, str]], score: float) -> tuple[Step, ...]:
    """Return one step for each run of adjacent parts of the video that have the same description.

    Args:
        described: span in seconds and description of each part, sorted by time. "" for no
            description.
        score: P(shown) of each step.
    """
    runs: list[tuple[Span, str]] = []
    for place, text in described:
        if runs:
            last_place, last_text = runs[-1]
            is_same = last_text.lower() == text.lower()
            if is_same and last_place.end == place.start:
                runs[-1] = (Span(last_place.start, place.end), last_text)
                continue
        runs.append((place, text))
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
            score=score,
            seen=(SEEN_BY_VLM,),
        )
        steps.append(step)
    return tuple(steps)
