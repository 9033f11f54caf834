"""Steps of a video in which no one speaks, in the words of a vision-language model for the pictures
of its places.

Every step rests on the seconds of a place and is marked as seen and not said. Nothing measures here
how true the words are: P(shown) is the reliability that the settings give the model before any
answer.
"""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pydantic import JsonValue

from stepline.grounding.vision_language.places import last_picture_second, video_places
from stepline.grounding.vision_language.questions import QuestionRunner, Reply
from stepline.llm.pictures import PictureReader
from stepline.llm.servers import Server, open_server
from stepline.records import Span, Step
from stepline.vision.settings import VisionLanguageSettings
from stepline.writing.types import instruction_kind

SEEN_BY_VLM = "seen, not said: the words of a vision-language model"


@dataclass(frozen=True)
class DescribedSteps:
    """Steps in the words of a vision-language model.

    Attributes:
        steps: one for each run of neighbouring places with the same words.
        report: what the record says of the requests, pictures and words.
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
    server: Server | None = None,
    start: float = 0.0,
) -> DescribedSteps:
    """Return the steps that a model sees in a video in which no one speaks.

    Evenly spread places are looked at where there are more than the requests allow.

    Args:
        shots: slices of whole seconds that cover the video.
        pictures: reads JPEGs by their seconds.
        duration: of the video, or of its part, in seconds.
        settings: of the vision-language model.
        server: the model. None: the one that the settings name.
        start: second of the whole video at which the part begins, for the report.

    Raises WriterError where the server is not there or refuses access.
    """
    places = []
    for place in video_places(shots):
        if place.start < duration:
            places.append(Span(float(place.start), min(float(place.stop), duration)))

    # the places that are looked at, by the middle of their middle second
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
    with closing(server or open_server(settings)) as opened:
        runner = QuestionRunner.begin(opened, settings)
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
        _steps(described, reliability), report, _notes(replies, len(places), settings)
    )


def _notes(
    replies: Sequence[Reply], pictures: int, settings: VisionLanguageSettings
) -> tuple[str, ...]:
    """Return what the user should know: pictures without words, and what a dry run would ask."""
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


def _steps(described: Sequence[tuple[Span, str]], score: float) -> tuple[Step, ...]:
    """Return a step for each run of neighbouring places of the same words. Places of no words give
    no step."""
    # Neighbouring places of the same words are one run.
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
            status="shown",
            score=score,
            seen=(SEEN_BY_VLM,),
        )
        steps.append(step)
    return tuple(steps)
