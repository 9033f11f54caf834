"""What a benchmark asks, what a trained network answers, and the official form of the answer.

    htm-align   every sentence of a video, in spoken order (narration mode)
    ht-step     every line of the article's variation that a video follows, in no order (step mode)
    crosstask   every step of a task, in no order (step mode)

A network is never told the truth: when a sentence is said is not read either, since HTM-Align's file gives it only
for sentences that are not alignable. K texts a video.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from stepline.datasets import read, write_htstep_grounding, write_htstep_result
from stepline.errors import DatasetError, SteplineError
from stepline.nasva.aligner_settings import AlignerSettings, Mode
from stepline.nasva.infer.align import Fit, fit_texts
from stepline.nasva.infer.load import Loaded
from stepline.nasva.infer.placing import Placing, place_steps
from stepline.nasva.infer.sources import Features, Vectors
from stepline.records import Record, Step, Video
from stepline.store import write_atomic

BenchmarkName: TypeAlias = Literal["htm-align", "ht-step", "crosstask"]
MODES: dict[BenchmarkName, Mode] = {"htm-align": "narration", "ht-step": "step", "crosstask": "step"}
NO_TEXT = "names no text to place"


@dataclass(frozen=True)
class Asked:
    """One video of a benchmark and its texts: id keys the answer, video the features; shown: (K,) the truth."""

    id: str
    video: str
    steps: tuple[Step, ...]
    shown: tuple[bool, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The K texts."""
        return tuple(step.text for step in self.steps)


@dataclass(frozen=True)
class Questions:
    """The videos of a benchmark that ask something, and by id why the others of its files do not."""

    asked: tuple[Asked, ...]
    unasked: dict[str, str]

    def reasons(self) -> dict[str, int]:
        """Return how many videos ask nothing for each reason, the most frequent first."""
        return dict(Counter(self.unasked.values()).most_common())


@dataclass(frozen=True)
class Given:
    """What stands for the encoders: the videos' features, and the texts' vectors."""

    features: Features
    vectors: Vectors


@dataclass(frozen=True)
class Answered:
    """How many videos the file holds, and why the others are not in it, by id."""

    count: int
    missing: dict[str, str]


def asked_by(name: BenchmarkName, reference: Path, subset: str | None = None) -> Questions:
    """Return what a benchmark asks, in the order of its files. Raises DatasetError where they cannot be read."""
    reading = read(name, reference, subset=subset)
    asked = [_asked(name, record) for record in reading.records]
    unasked = {row.id: row.reason for row in reading.rejected if row.what == "video"}
    unasked |= {one.id: NO_TEXT for one in asked if not one.steps}
    if not any(one.steps for one in asked):
        where = f" of subset {subset!r}" if subset else ""
        raise DatasetError(f"{reference}: no video{where} names a text to place; give the annotations of {name}")
    return Questions(tuple(one for one in asked if one.steps), unasked)


def fits(
    asked: Sequence[Asked], loaded: Loaded, given: Given, settings: AlignerSettings, missing: dict[str, str]
) -> Iterator[tuple[Asked, Fit]]:
    """Yield each video with how its texts fit; `missing` gets the ids of the others, with the reason."""
    for one in asked:
        try:
            features = given.features.read(one.video)
            loaded.check(features, given.vectors.encoder(one.video))
            fit = fit_texts(loaded.aligner, features, given.vectors.read(one.video, one.texts), settings=settings)
        except SteplineError as error:
            missing[one.id] = str(error)
            continue
        yield one, fit


def predict(
    name: BenchmarkName, asked: Sequence[Asked], loaded: Loaded, given: Given, out: Path, settings: AlignerSettings
) -> Answered:
    """Write the answer of a network in the benchmark's official form, and return what is in it and what is not.

    out: JSON; for ht-step also .csv, which its mAP needs. Raises DatasetError when no video at all can be answered.
    """
    settings = settings.model_copy(update={"mode": MODES[name]})
    missing: dict[str, str] = {}
    answers = {
        one.id: (one, place_steps(one.steps, fit, loaded.calibration, settings=settings), fit.rate)
        for one, fit in fits(asked, loaded, given, settings, missing)
    }
    if not answers:
        id, reason = next(iter(missing.items()))
        raise DatasetError(f"none of {len(asked)} videos can be answered, the first, {id}, since: {reason}")
    if name == "ht-step":
        records = [_placed(one, placing, rate) for one, placing, rate in answers.values()]
        (write_htstep_grounding if out.suffix == ".csv" else write_htstep_result)(records, out)
    else:
        form = _alignment if name == "htm-align" else _seconds
        tree = {id: form(placing, rate) for id, (_, placing, rate) in answers.items()}
        write_atomic(out, json.dumps(tree, allow_nan=False) + "\n")
    return Answered(len(answers), missing)


def _asked(name: BenchmarkName, record: Record) -> Asked:
    steps = record.reference
    if name == "ht-step":  # its evaluators count the steps of a variation by their numbers
        steps = tuple(sorted(steps, key=lambda step: int(step.id)))
    plain = tuple(Step(id=step.id, text=step.text) for step in steps)
    return Asked(record.id, record.video.id, plain, tuple(bool(step.spans) for step in steps))


def _seconds(placing: Placing, rate: float) -> list[float]:
    """Return the second at which the best row of each text starts, as the released code counts."""
    return [float(row / rate) for row in placing.chances.best]


def _alignment(placing: Placing, rate: float) -> dict[str, list[float] | list[list[float]]]:
    return {
        "seconds": _seconds(placing, rate),
        "spans": [[span.start, span.end] for span in placing.spans],
        "alignability": [float(np.round(p, 6)) for p in placing.chances.shown],
    }


def _placed(one: Asked, placing: Placing, rate: float) -> Record:
    """Return a record in which every step is placed: HT-Step takes no abstention."""
    steps = zip(one.steps, placing.spans, _seconds(placing, rate), placing.chances.shown, strict=True)
    placed = tuple(
        step.model_copy(update={"spans": (span,), "at": second, "score": float(p)}) for step, span, second, p in steps
    )
    return Record(id=one.id, video=Video(id=one.video), steps=placed)
