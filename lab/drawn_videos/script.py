"""What a drawn video shows and says, second by second, and therefore its true steps."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass as validated_dataclass

from stepline.errors import DatasetError
from stepline.files.atomic_files import write_atomic
from stepline.records import FrozenModel, Record, Seconds, Sentence, Span, Step, Transcript, Video
from stepline.settings import CountOrZero, Positive

# The renderer and its scripts are FROZEN: grounding is tuned after them, so no drawing may change.
WORLD_VERSION = 1

TIME_TOLERANCE = 1e-6  # s; times that differ by less are equal

Place = Literal["kitchen", "workshop", "garden", "sewing room", "garage", "living room"]
Camera = Literal["wide", "close"]


class Scene(FrozenModel):
    """One thing the camera sees.

    talk: the presenter speaks into the camera. table: hands do `action` with `item` on `target`,
    `props` are around.
    roll: the things are there and no one touches them. title: a card with `caption`.
    """

    kind: Literal["talk", "table", "roll", "title"]
    place: Place
    camera: Camera = "wide"
    action: str | None = None
    item: str | None = None
    target: str | None = None
    props: tuple[str, ...] = ()
    caption: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Scene":
        if self.kind == "table" and (self.action is None or self.target is None):
            raise ValueError("a table scene needs an action and a target")
        if self.kind == "title" and not self.caption:
            raise ValueError("a title card needs a caption")
        return self


class Shot(FrozenModel):
    """A scene between two cuts."""

    span: Span
    scene: Scene


class Utterance(FrozenModel):
    """Something said, requested to start at `at`. Rendering sets `span`, where it is spoken."""

    at: Seconds
    text: Annotated[str, Field(min_length=1)]
    span: Span | None = None


class TrueStep(FrozenModel):
    """A step that the video teaches: where it is drawn, and the utterance that says it."""

    id: Annotated[str, Field(min_length=1)]
    text: Annotated[str, Field(min_length=1)]
    utterance: CountOrZero
    spans: tuple[Span, ...] = ()


@validated_dataclass(frozen=True)
class Voice:
    """An espeak-ng voice. Speed in words per minute, pitch 0..99."""

    name: str
    speed: int
    pitch: int


class Script(FrozenModel):
    """A whole video: shots tile [0, duration), utterances are sorted, steps point at both.

    voice: who speaks. None lets the seed choose.
    """

    id: Annotated[str, Field(min_length=1)]
    seed: CountOrZero
    title: str
    task: str
    duration: Positive
    shots: Annotated[tuple[Shot, ...], Field(min_length=1)]
    utterances: tuple[Utterance, ...] = ()
    steps: tuple[TrueStep, ...] = ()
    voice: Voice | None = None
    version: Literal[1] = 1  # WORLD_VERSION

    @model_validator(mode="after")
    def _consistent(self) -> "Script":
        edges = [0.0, *(shot.span.end for shot in self.shots)]
        for shot, edge in zip(self.shots, edges, strict=False):
            if abs(shot.span.start - edge) > TIME_TOLERANCE:
                raise ValueError(
                    f"shots must follow each other: one starts at {shot.span.start}, "
                    f"the last ended at {edge}"
                )
        if abs(edges[-1] - self.duration) > TIME_TOLERANCE:
            raise ValueError(f"shots end at {edges[-1]}, the video at {self.duration}")
        starts = [utterance.at for utterance in self.utterances]
        if starts != sorted(starts):
            raise ValueError("utterances must be sorted by their time")
        for step in self.steps:
            self._check(step)
        return self

    def _check(self, step: TrueStep) -> None:
        if step.utterance >= len(self.utterances):
            raise ValueError(
                f"step {step.id!r} names utterance {step.utterance}; "
                f"there are {len(self.utterances)}"
            )
        for span in step.spans:
            if span.end > self.duration + TIME_TOLERANCE:
                raise ValueError(
                    f"step {step.id!r} ends at {span.end}, the video at {self.duration}"
                )
            for shot in self.shots:
                overlaps = shot.span.overlap(span) > TIME_TOLERANCE
                if overlaps and shot.scene.kind != "table":
                    raise ValueError(
                        f"step {step.id!r} is shown in {span}, where no hands are drawn"
                    )

    def said(self, step: TrueStep) -> Span | None:
        """Return where a step is spoken, None before rendering."""
        return self.utterances[step.utterance].span


def read_script(path: Path) -> Script:
    """Return the script in a JSON file. Raises DatasetError, naming the first wrong field."""
    try:
        return Script.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read ({error.strerror}); give a script's JSON file"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "script"
        raise DatasetError(
            f"{path}: not a script ({field}: {first['msg']}); correct that field"
        ) from error


def write_script(script: Script, path: Path) -> None:
    """Write a script as JSON, 2-space indent."""
    write_atomic(path, script.model_dump_json(indent=2) + "\n")


def true_record(script: Script) -> Record:
    """Return what a rendered script truly says (transcript) and shows (reference), as a record.

    Raises DatasetError for a script that was not rendered: its spoken times are not known yet.
    """
    # its sentences, as the recogniser would give them without an error
    sentences = []
    for utterance in script.utterances:
        if utterance.span is None:
            raise DatasetError(
                f"{script.id}: not rendered yet, so its spoken times are unknown; render it first"
            )
        sentences.append(Sentence(text=utterance.text, span=utterance.span))
    transcript = Transcript(language="en", sentences=tuple(sentences), recogniser="script")
    video = Video(
        id=script.id,
        path=f"{script.id}.mp4",
        duration=script.duration,
        title=script.title,
        task=script.task,
    )
    return Record(
        id=script.id,
        video=video,
        transcript=transcript,
        reference=tuple(_reference_step(script, step) for step in script.steps),
        settings={"world": script.version, "seed": script.seed},
    )


def _reference_step(script: Script, step: TrueStep) -> Step:
    best = step.spans[0].center if step.spans else None
    return Step(
        id=step.id,
        text=step.text,
        spans=step.spans,
        at=best,
        said=script.said(step),
        status="seen" if step.spans else "said_only",
        basis="pictures" if step.spans else None,
        sources=(step.utterance,),
    )
