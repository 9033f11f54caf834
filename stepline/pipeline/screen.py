"""Screen recordings in the main job: their steps are placed where the screen changes."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import JsonValue

from stepline.grounding.fusion import picture_status, separate_overlapping_spans
from stepline.grounding.screens.captions import typed_captions, without_captions
from stepline.grounding.screens.changes import ScreenStatistics
from stepline.grounding.screens.clicks import Click, place_clicks
from stepline.grounding.screens.reading import (
    TEXT_SAMPLE_COUNT,
    ScreenEvent,
    ScreenReading,
    has_screen_text,
    lines_with_new_text,
    read_screen,
    sampled_screen_statistics,
)
from stepline.media import MediaInfo
from stepline.networks.weights import weights_fetched
from stepline.outputs.text import one_line, shorten
from stepline.pipeline.placing import GroundedVideoSteps
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import Alignment, ScreenTarget, Step, Transcript
from stepline.vision.on_screen_text import TEXT_WEIGHTS

log = logging.getLogger(__name__)

SCREEN_NOTE = (
    "a screen recording: some steps are placed where the screen changes; "
    "`--set vision.screen=off` places them as in a film"
)
CAPTIONS_NOTE = "no one speaks; the steps are the captions on the screen"
SCREEN_CAPTIONS_RECOGNISER = "captions on the screen"
MAX_LABEL_CHARS = 60  # letters of a label or line in a remark
SECONDS_BEFORE_CLICK = 0.3  # s before a change, in which what is clicked is still seen


def read_silent_screen_recording(
    request: Request, info: MediaInfo, settings: StepsSettings
) -> ScreenReading | None:
    """Read the screen of a video without speech. None if it is not a screen recording."""
    if not info.has_picture or settings.vision.backbone == "none":
        return None
    statistics = sampled_screen_statistics(
        request.path, request.start, info.duration, settings.media
    )
    return read_screen_recording(request, info, settings, statistics)


def transcript_from_screen(reading: ScreenReading, duration: float) -> Transcript | None:
    """Return the captions that a screen recording shows as a transcript, None without captions."""
    sentences = typed_captions(reading, duration)
    if not sentences:
        return None
    return Transcript(sentences=sentences, recogniser=SCREEN_CAPTIONS_RECOGNISER)


def screen_report(reading: ScreenReading) -> JsonValue:
    """Return the number of screen changes, and the seconds of its scenes, for the record."""
    scenes = [round(second, 2) for second in reading.scenes]
    return {"changes": len(reading.events), "scenes": [*scenes]}


def place_steps_at_clicks(
    placed: GroundedVideoSteps, transcript: Transcript, reading: ScreenReading, duration: float
) -> GroundedVideoSteps:
    """Return the steps of a screen recording, with spans at the screen changes that they cause.

    Args:
        placed: the grounded steps.
        transcript: the sentences that are said.
        reading: the text and changes of the screen.
        duration: duration of the video in seconds.
    """
    # Captions that change are not a change of the screen.
    reading = without_captions(reading, duration)
    clicks = place_clicks(placed.steps, transcript.sentences, reading)
    by_step = {click.step: click for click in clicks}
    steps = []
    for step in placed.steps:
        click = by_step.get(step.id)
        steps.append(step if click is None else _place_at_click(step, click, reading))
    alignment = placed.alignment
    if alignment is not None:
        alignment = _set_click_rows(alignment, placed.steps, by_step)
    return replace(placed, steps=separate_overlapping_spans(steps), alignment=alignment)


def _place_at_click(step: Step, click: Click, reading: ScreenReading) -> Step:
    # The frame at the change may already show what comes next.
    at = round(max(click.span.start, click.event.start - SECONDS_BEFORE_CLICK), 3)
    target = None
    # The box of a record is in shares of the picture, so that a page of any size can draw it.
    if click.label is not None:
        x, y, end_x, end_y = click.label.box
        target = ScreenTarget(
            label=one_line(click.label.text),
            at=at,
            box=(
                x / reading.width,
                y / reading.height,
                end_x / reading.width,
                end_y / reading.height,
            ),
        )
    # The change of the screen replaces all that grounding found.
    return step.model_copy(
        update={
            "spans": (click.span,),
            "at": at,
            **picture_status("screen"),
            "score": _probability(click),
            "seen": click_remarks(click),
            "target": target,
        }
    )


def _probability(click: Click) -> float:
    return 1 / (1 + math.exp(-click.log_odds))


def click_remarks(click: Click) -> tuple[str, ...]:
    """Return remarks for `Step.seen`: the label that is clicked, and the change that follows."""
    remarks = []
    if click.label is not None:
        remarks.append(
            f"for: {_quoted(click.label.text)} is on screen, and the screen changes next"
        )
    remarks.append(f"for: {_result(click.event)}")
    return tuple(remarks)


def _result(event: ScreenEvent) -> str:
    appeared = lines_with_new_text(event.appeared, event.before)
    vanished = lines_with_new_text(event.vanished, event.after)
    if appeared:
        kind = "a new screen opens" if event.scene else "then appears"
        return f"{kind}: {_quoted(appeared[0].text)}"
    if vanished:
        return f"then goes: {_quoted(vanished[0].text)}"
    return "then the picture changes there"


def _quoted(text: str) -> str:
    return f'"{shorten(one_line(text), MAX_LABEL_CHARS)}"'


def _set_click_rows(
    alignment: Alignment, steps: Sequence[Step], clicks: dict[str, Click]
) -> Alignment:
    """Return the alignment with new rows for clicked steps: P(click) in their span, else 0."""
    # The rows of steps with a click agree with their new span.
    scores = alignment.scores.copy()
    seconds = (np.arange(scores.shape[1]) + 0.5) / alignment.rate
    for row, step in zip(scores, steps, strict=False):
        click = clicks.get(step.id)
        if click is not None:
            inside = (seconds >= click.span.start) & (seconds < click.span.end)
            row[:] = np.where(inside, _probability(click), 0.0)
    return replace(alignment, scores=scores)


# Times as long as wide, beyond which a picture is not a screen. A look at one of 16 x 4,000 pixels
# took 3.6 GB, since looks have one width.
MAX_ASPECT_RATIO = 4.0


def read_screen_recording(
    request: Request, info: MediaInfo, settings: StepsSettings, statistics: ScreenStatistics
) -> ScreenReading | None:
    """Read the text and changes of a screen recording. None for any other video.

    Without the weights that read text, no video counts as a screen recording.

    Args:
        request: the video.
        info: streams and duration of the video file.
        settings: settings of all stages. `vision.screen` sets whether the screen is read.
        statistics: statistics of the video's frames that tell a screen recording from a film.
    """
    vision = settings.vision
    # "auto" needs the cheap signs first, then text in sampled pictures.
    if vision.screen == "off" or not weights_fetched(TEXT_WEIGHTS):
        return None
    if vision.screen == "auto":
        shorter = min(info.width, info.height)
        has_screen_shape = max(info.width, info.height) <= MAX_ASPECT_RATIO * shorter
        if not (vision.screen_text and statistics.is_candidate and has_screen_shape):
            return None
        # The middles of equal pieces of the video.
        seconds = [
            request.start + (sample + 0.5) * info.duration / TEXT_SAMPLE_COUNT
            for sample in range(TEXT_SAMPLE_COUNT)
        ]
        if not has_screen_text(request.path, seconds):
            return None
    reading = read_screen(request.path, info, settings.media, request.part)
    log.info("a screen recording; it changes %d times", len(reading.events))
    return reading
