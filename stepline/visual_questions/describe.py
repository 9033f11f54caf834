"""Steps of a video in which nobody speaks, in the words of a vision-language model for the pictures of its places.

Every step rests on the seconds of a place and is marked as seen and not said. Nothing measures here how true the words
are: P(shown) is the reliability that the settings give the model before any answer.
"""

import time
from collections.abc import Sequence

from pydantic import JsonValue

from stepline.chat.requests import RequestLimits, open_cache, run_in_threads
from stepline.chat.servers import Server, open_server
from stepline.records import Span, Step
from stepline.vision.settings import WitnessSettings
from stepline.visual_questions.ask import PictureReader, QuestionRunner
from stepline.visual_questions.places import video_places
from stepline.visual_questions.questions import (
    DESCRIPTION,
    Reply,
    description_question,
    description_schema,
    read_descriptions,
)
from stepline.writing.types import instruction_kind

SEEN = "seen, not said: the words of a vision-language model"


def describe_places(
    shots: Sequence[slice],
    pictures: PictureReader,
    *,
    duration: float,
    settings: WitnessSettings,
    server: Server | None = None,
    start: float = 0.0,
) -> tuple[tuple[Step, ...], dict[str, JsonValue], tuple[str, ...]]:
    """Return the steps that are seen, what the record says of the asking, and notes.

    shots: slices of whole seconds. Of more places than the requests allow, evenly spread ones are looked at. start: as
    of `ask_about_steps`. Raises WriterError where the server is not there or refuses access.
    """
    places = [place for place in video_places(shots) if place.start < duration]
    most = max(1, settings.requests * settings.choices)
    chosen = [places[n * len(places) // most] for n in range(most)] if len(places) > most else places
    seconds = [min((place.start + place.stop) // 2 + 0.5, max(0.0, duration - 0.1)) for place in chosen]
    found = pictures(seconds) if settings.requests and not settings.dry_run else {}
    looked = [(place, second) for place, second in zip(chosen, seconds, strict=True) if second in found]
    groups = [looked[n : n + settings.choices] for n in range(0, len(looked), settings.choices)]
    limits = RequestLimits(settings.requests, settings.tokens)
    opened = server or open_server(settings)
    until = time.monotonic() + settings.deadline
    runner = QuestionRunner(opened, settings, open_cache(settings.cache), limits, until)

    def describe(group: Sequence[tuple[slice, float]]) -> tuple[Reply, ...]:
        shown = [found[second] for _, second in group]
        return runner.ask(
            [DESCRIPTION],
            shown,
            lambda reminded: description_question(shown, together=settings.together, reminded=reminded),
            description_schema(len(shown)),
            lambda text: read_descriptions(text, len(shown)),
        )

    try:
        answered = run_in_threads(describe, groups, workers=opened.workers, until=until)
    finally:
        opened.close()
    late = Reply(refusal="no answer in time")
    replies = [reply for n, group in enumerate(groups) for reply in answered.get(n, (late,) * len(group))]
    refused = [reply.refusal for reply in replies if reply.refusal]
    notes = []
    if refused:
        notes.append(f"provisional: {len(refused)} of {len(replies)} pictures are not described ({refused[0]})")
    report: dict[str, JsonValue] = {
        "server": opened.name,
        "requests": limits.sent,
        "tokens": limits.used,
        "pictures": [start + second for _, second in looked],
        "described": [reply.after for reply in replies],
    }
    if settings.dry_run:
        count = -(-len(chosen) // settings.choices)
        notes.append(f"dry run: a vision-language model would be shown {len(chosen)} pictures in {count} requests")
    reliability = settings.right / (settings.right + settings.wrong)
    return _steps([(place, reply.after) for (place, _), reply in zip(looked, replies, strict=True)], duration,
                  reliability), report, tuple(notes)  # fmt: skip


def _steps(described: Sequence[tuple[slice, str]], duration: float, score: float) -> tuple[Step, ...]:
    """Return a step for each run of neighbouring places of the same words; places of no words are none."""
    runs: list[tuple[int, int, str]] = []
    for place, text in described:
        if runs and runs[-1][2].lower() == text.lower() and runs[-1][1] == place.start:
            runs[-1] = (runs[-1][0], place.stop, runs[-1][2])
        else:
            runs.append((place.start, place.stop, text))
    spans = [(Span(float(first), min(float(last), duration)), text) for first, last, text in runs if text]
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
        for number, (span, text) in enumerate(spans, start=1)
    )
