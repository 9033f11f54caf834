"""Steps of a video in which nobody speaks, in the words of a vision-language model for the pictures
of its places.

Every step rests on the seconds of a place and is marked as seen and not said. Nothing measures here
how true the words are: P(shown) is the reliability that the settings give the model before any
answer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from stepline.chat.pictures import PictureReader
from stepline.chat.servers import Server, open_server
from stepline.records import Rejected, Span, Step
from stepline.vision.settings import VisionLanguageSettings
from stepline.vision_language.pictures import clip_report
from stepline.vision_language.places import video_places
from stepline.vision_language.questions import Reply
from stepline.vision_language.runner import QuestionRunner
from stepline.writing.types import instruction_kind

SEEN = "seen, not said: the words of a vision-language model"


@dataclass(frozen=True)
class PlaceDescriptions:
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
    found: Sequence[Step] = (),
    server: Server | None = None,
    start: float = 0.0,
) -> PlaceDescriptions:
    """Return the steps that are seen in the places of a video in which nobody speaks.

    shots: slices of whole seconds. found: steps of a network (ProcX); their spans are the places
    then, and keep its beliefs: words are the model's, its own an alternative. Of more places than
    the requests allow, evenly spread ones are looked at. start: as of `ask_about_steps`. Raises
    WriterError where the server is not there or refuses access.
    """
    places = [step.spans[0] for step in found] or [
        Span(float(place.start), min(float(place.stop), duration))
        for place in video_places(shots)
        if place.start < duration
    ]
    most = max(1, settings.requests * settings.choices)
    rows = (
        [n * len(places) // most for n in range(most)]
        if len(places) > most
        else list(range(len(places)))
    )
    seconds = [
        round(min(_middle(places[row], whole=not found), max(0.0, duration - 0.1)), 2)
        for row in rows
    ]
    shown = pictures(seconds) if settings.requests and not settings.dry_run else {}
    looked = [(row, second) for row, second in zip(rows, seconds, strict=True) if second in shown]
    opened = server or open_server(settings)
    runner = QuestionRunner.begin(opened, settings)
    try:
        replies = runner.describe([shown[second] for _, second in looked])
    finally:
        opened.close()
    refused = [reply.refusal for reply in replies if reply.refusal]
    notes = []
    if refused:
        notes.append(
            f"provisional: {len(refused)} of {len(replies)} pictures are not described ({refused[0]})"
        )
    report: dict[str, JsonValue] = {
        "server": opened.name,
        "requests": runner.limits.sent,
        "tokens": runner.limits.used,
        "pictures": [start + second for _, second in looked],
        "described": [reply.after for reply in replies],
        **clip_report(settings),
    }
    if settings.dry_run:
        count = -(-len(rows) // settings.choices)
        notes.append(
            f"dry run: a vision-language model would be shown {len(rows)} pictures in {count} requests"
        )
    told = {row: reply for (row, _), reply in zip(looked, replies, strict=True)}
    if found:
        steps, dropped = _in_words_of(found, told)
        return PlaceDescriptions(steps, dropped, report, tuple(notes))
    reliability = settings.right / (settings.right + settings.wrong)
    seen = _steps([(places[row], reply.after) for row, reply in told.items()], reliability)
    return PlaceDescriptions(seen, (), report, tuple(notes))


def _middle(span: Span, *, whole: bool) -> float:
    """Return the second whose picture stands for a place; of whole seconds, the middle of one."""
    return (int(span.start) + math.ceil(span.end)) // 2 + 0.5 if whole else span.center


def _in_words_of(
    found: Sequence[Step], told: Mapping[int, Reply]
) -> tuple[tuple[Step, ...], tuple[Rejected, ...]]:
    """Return a network's steps in the model's words, and those in whose pictures it sees nothing
    being done."""
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for row, step in enumerate(found):
        reply = told.get(row)
        if reply is None or reply.refusal:
            steps.append(step)
        elif not reply.after:
            dropped.append(
                Rejected(
                    "step", "a vision-language model sees nothing being done there", text=step.text
                )
            )
        else:
            words = tuple(text for text in (step.text, *step.alternatives) if text != reply.after)
            kind = instruction_kind(reply.after)
            steps.append(
                step.model_copy(
                    update={
                        "text": reply.after,
                        "alternatives": words,
                        "kind": kind,
                        "seen": (SEEN,),
                    }
                )
            )
    return tuple(steps), tuple(dropped)


def _steps(described: Sequence[tuple[Span, str]], score: float) -> tuple[Step, ...]:
    """Return a step for each run of neighbouring places of the same words; places of no words are
    none."""
    runs: list[tuple[Span, str]] = []
    for place, text in described:
        if runs and runs[-1][1].lower() == text.lower() and runs[-1][0].end == place.start:
            runs[-1] = (Span(runs[-1][0].start, place.end), runs[-1][1])
        else:
            runs.append((place, text))
    return tuple(
        Step(
            id=str(number),
            text=text,
            kind=instruction_kind(text),
            spans=(span,),
            at=span.center,
            status="shown",
            score=score,
            seen=(SEEN,),
        )
        for number, (span, text) in enumerate([run for run in runs if run[1]], start=1)
    )
