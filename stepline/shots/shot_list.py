"""A shot list as it is written: each shot with its seconds, its picture and its steps."""

from pathlib import Path
from typing import Literal

from stepline.outputs.text import one_line, safe_stem, sentence_case, shown_span, step_line, title
from stepline.outputs.verdict import VERDICT_TEXTS, VerdictText, step_verdict
from stepline.pipeline.request import Request
from stepline.pipeline.titles import choose_title
from stepline.records import FrozenModel, Record, Seconds, Span
from stepline.shots.find import VideoShots
from stepline.shots.sources import ShotSource

# seconds of a step within a shot from which on it is shown there. Or half of a shorter step or shot
MIN_STEP_SECONDS = 0.5


class ShotStep(FrozenModel):
    """A step that is shown in a shot. number: in the record, from 1 on. verdict: whether it is
    shown, in words."""

    number: int
    id: str
    text: str
    verdict: VerdictText


class Shot(FrozenModel):
    """A shot, from a cut up to the next. number: from 1 on. start, end: seconds.

    thumbnail: its picture, below the folder of the list. None where none can be decoded.
    """

    number: int
    start: Seconds
    end: Seconds
    thumbnail: str | None = None
    steps: tuple[ShotStep, ...] = ()


class ShotList(FrozenModel):
    """All shots of a video. duration: seconds. width, height: pixels of the upright picture.

    record: whether steps are known.
    """

    version: Literal[1] = 1
    id: str
    title: str
    video: str
    duration: Seconds
    width: int
    height: int
    record: bool
    shots: tuple[Shot, ...]
    warnings: tuple[str, ...] = ()


def list_shots(source: ShotSource, video_shots: VideoShots) -> ShotList:
    """Return the shot list of a video, with the steps of its record."""
    record = source.record
    shots = []
    for index, span in enumerate(video_shots.shots):
        number = index + 1
        thumbnail = None
        # A shot whose picture cannot be decoded has no thumbnail.
        if index in video_shots.pictures:
            thumbnail = thumbnail_name(source.id, number)
        steps: tuple[ShotStep, ...] = ()
        if record is not None:
            steps = shown_steps(record, span)
        shot = Shot(number=number, start=span.start, end=span.end, thumbnail=thumbnail, steps=steps)
        shots.append(shot)
    # The title of the record, else what the file itself gives.
    if record is None:
        name, _ = choose_title(Request(source.path, source.id), video_shots.info, None)
    else:
        name = title(record)
    return ShotList(
        id=source.id,
        title=sentence_case(one_line(name)),
        video=str(source.path),
        duration=video_shots.shots[-1].end,
        width=video_shots.info.width,
        height=video_shots.info.height,
        record=record is not None,
        shots=tuple(shots),
        warnings=video_shots.warnings,
    )


def shown_steps(record: Record, shot: Span) -> tuple[ShotStep, ...]:
    """Return the steps of a record that are shown in a shot, in their order."""
    steps = []
    for number, step in enumerate(record.steps, start=1):
        span = shown_span(step)
        if span is None:
            continue
        needed = min(MIN_STEP_SECONDS, shot.duration / 2, span.duration / 2)
        if span.overlap(shot) >= needed:
            verdict = VERDICT_TEXTS[step_verdict(step)]
            text = step_line(step)
            steps.append(ShotStep(number=number, id=step.id, text=text, verdict=verdict))
    return tuple(steps)


def thumbnail_name(id: str, number: int) -> str:
    """Return the path of a shot's picture below the folder of its list."""
    return f"{thumbnails_folder(Path(), id).name}/{number:04d}.jpg"


def thumbnails_folder(folder: Path, id: str) -> Path:
    """Return the folder of the pictures of a list in `folder`."""
    return folder / f"{safe_stem(id)}.shots"
