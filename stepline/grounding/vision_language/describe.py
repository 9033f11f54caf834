"""Steps of a video in which no one speaks, in the words of a vision-language model for the pictures
of its places.

Every step rests on the seconds of a place and is marked as seen and not said. Nothing measures here
how true the words are: P(shown) is the reliability that the settings give the model before any
answer.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from pydantic import JsonValue

from stepline.grounding.vision_language.places import clip_report, last_picture_second, video_places
from stepline.grounding.vision_language.questions import QuestionRunner, Reply
from stepline.llm.pictures import PictureReader
from stepline.llm.servers import Server, open_server
from stepline.records import Rejected, Span, Step
from stepline.vision.settings import VisionLanguageSettings
from stepline.writing.types import instruction_kind

SEEN_BY_VLM = "seen, not said: the words of a vision-language model"


@dataclass(frozen=True)
class DescribedSteps:
    """The steps that are seen, what was left out, what the record says of the asking, and notes."""

    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...]
    report: dict[str, JsonValue]
    notes: tuple[str, ...]


def describe_places(
    shots: Sequence[slice],
    pictures: PictureReader,
    *,
    duration: float,
    settings: VisionLanguageSettings,
    network_steps: Sequence[Step] = (),
    server: Server | None = None,
    start: float = 0.0,
) -> DescribedSteps:
    """Return the steps that are seen in the places of a video in which no one speaks.

    shots: slices of whole seconds. network_steps: steps of a network (ProcX). Their spans are the
    places then, and keep its beliefs: words are the model's, its own an alternative. Of more places
    than the requests allow, evenly spread ones are looked at. start: as of `GroundedVideo`. Raises
    WriterError where the server is not there or refuses access.
    """
    places = [step.spans[0] for step in network_steps] or _place_spans(shots, duration)

    # the places that are looked at, and their seconds
    most_places = max(1, settings.requests * settings.choices)
    rows = _spread(len(places), most_places)
    last = last_picture_second(duration)
    seconds = []
    for row in rows:
        middle = places[row].center if network_steps else _middle_of_whole_seconds(places[row])
        seconds.append(round(min(middle, last), 2))
    images: dict[float, bytes] = {}
    if settings.requests and not settings.dry_run:
        images = pictures(seconds)
    visible = [(row, at) for row, at in zip(rows, seconds, strict=True) if at in images]
    with closing(server or open_server(settings)) as opened:
        runner = QuestionRunner.begin(opened, settings)
        replies = runner.describe([images[second] for _, second in visible])

    # report and notes
    report: dict[str, JsonValue] = {
        "server": opened.name,
        "requests": runner.limits.sent,
        "tokens": runner.limits.used,
        "pictures": [start + second for _, second in visible],
        "described": [reply.after for reply in replies],
        **clip_report(settings),
    }
    notes = _notes(replies, len(rows), settings)

    # steps
    reply_of = {}
    for (row, _), reply in zip(visible, replies, strict=True):
        reply_of[row] = reply
    if network_steps:
        steps, dropped = _in_words_of_model(network_steps, reply_of)
        return DescribedSteps(steps, dropped, report, notes)
    reliability = settings.right / (settings.right + settings.wrong)
    described = [(places[row], reply.after) for row, reply in reply_of.items()]
    steps = _steps(described, reliability)
    return DescribedSteps(steps, (), report, notes)


def _place_spans(shots: Sequence[slice], duration: float) -> list[Span]:
    """Return the seconds of the places of a video, cut to its end."""
    spans = []
    for place in video_places(shots):
        if place.start < duration:
            end = min(float(place.stop), duration)
            spans.append(Span(float(place.start), end))
    return spans


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


def _spread(count: int, most: int) -> list[int]:
    """Return the indices of `count` places, at most `most` of them, evenly spread."""
    if count <= most:
        return list(range(count))
    return [n * count // most for n in range(most)]


def _middle_of_whole_seconds(span: Span) -> float:
    """Return the middle of the second in the middle of a place of whole seconds."""
    first = int(span.start)
    return (first + math.ceil(span.end)) // 2 + 0.5


def _in_words_of_model(
    steps: Sequence[Step], reply_of: Mapping[int, Reply]
) -> tuple[tuple[Step, ...], tuple[Rejected, ...]]:
    """Return a network's steps in the model's words, and those in whose pictures it sees nothing
    being done."""
    described: list[Step] = []
    dropped: list[Rejected] = []
    for row, step in enumerate(steps):
        reply = reply_of.get(row)
        # Without an answer the step keeps its own words.
        if reply is None or reply.refusal:
            described.append(step)
            continue
        if not reply.after:
            reason = "a vision-language model sees nothing being done there"
            dropped.append(Rejected("step", reason, text=step.text))
            continue
        wordings = (step.text, *step.alternatives)
        others = [text for text in wordings if text != reply.after]
        changes = {
            "text": reply.after,
            "alternatives": tuple(others),
            "kind": instruction_kind(reply.after),
            "seen": (SEEN_BY_VLM,),
        }
        described.append(step.model_copy(update=changes))
    return tuple(described), tuple(dropped)


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
