"""A simulated video as a Record, with the truth about any of its three kinds of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.world.simulate.lines import NONE, Lines, Style
from stepline.world.simulate.settings import RECOGNISERS, RecogniserSettings
from stepline.world.simulate.texts import captions, texts, title

if TYPE_CHECKING:
    from stepline.world.simulate.sample import Sample


def record(sample: Sample, about: Style = "recipe") -> Record:
    """Return the record of a video; its reference is the truth about the texts of one style."""
    settings = sample.world.settings
    return Record(
        id=sample.id,
        video=Video(id=sample.id, duration=sample.duration, task=title(sample.task.number),
                    title=title(sample.task.number)),
        transcript=transcript(sample.narration, settings.recogniser),
        steps=steps(sample),
        recipe=texts(sample.recipe),
        captions=described(sample),
        reference=reference(sample, about),
        settings={"world": {"seed": sample.world.seed, "video": sample.index, "subset": sample.subset}},
    )  # fmt: skip


def transcript(lines: Lines, recogniser: str) -> Transcript:
    """Return the narration as that recogniser writes it."""
    said = zip(texts(lines, RECOGNISERS[recogniser]), lines.times, strict=True)
    sentences = tuple(Sentence(text=text, span=_span(times)) for text, times in said)
    return Transcript(language="en", sentences=sentences, recogniser=f"world-{recogniser}")


def steps(sample: Sample) -> tuple[Step, ...]:
    """Return the written steps: not placed, each with its sentences."""
    rows = zip(texts(sample.steps), sample.steps.times, sample.steps.sources, strict=True)
    return tuple(
        Step(id=str(number), text=text, said=_span(times), sources=sources)
        for number, (text, times, sources) in enumerate(rows, start=1)
    )


def described(sample: Sample) -> tuple[Step, ...]:
    """Return a person's captions of all windows, in the order of time."""
    lines, timeline = sample.recipe, sample.timeline
    row = {int(step): place for place, step in enumerate(lines.step)}
    said = captions(lines)
    return tuple(
        Step(id=str(number), text=said[row[int(step)]], spans=(_span(timeline.windows[number]),))
        for number, step in enumerate(timeline.steps)
    )


def reference(sample: Sample, about: Style) -> tuple[Step, ...]:
    """Return every text of a style with where it is shown: a recipe line's every window, else the one it tells of.

    ids: a recipe line's number among all tasks' lines (HT-Step), a sentence's row (HTM-Align), a step's own id.
    """
    lines = sample.lines(about)
    said = texts(lines, RECOGNISERS[sample.world.settings.recogniser] if about == "narration" else None)
    return tuple(
        Step(id=str(row + first_number(sample, about)), text=text, spans=_shown(sample, lines, row),
             said=None if np.isnan(lines.times[row, 0]) else _span(lines.times[row]))
        for row, text in enumerate(said)
    )  # fmt: skip


def first_number(sample: Sample, about: Style) -> int:
    """Return the id of a style's first text."""
    if about == "recipe":
        return sample.world.domain.first_line(sample.task.number)
    return 1 if about == "step" else 0


def spoken_words(text: str, span: Span, settings: RecogniserSettings) -> list[dict[str, str | float]]:
    """Return a sentence's words as WhisperX has them; times in proportion to the words' letters."""
    words = text.split()
    edges = np.concatenate(([0.0], np.cumsum([len(word) + 1.0 for word in words])))
    times = np.round(span.start + edges / edges[-1] * span.duration, 3)
    score = round(1.0 - settings.word_error, 3)
    return [
        {"word": word, "start": float(start), "end": float(end), "score": score}
        for word, start, end in zip(words, times[:-1], times[1:], strict=True)
    ]


def _shown(sample: Sample, lines: Lines, row: int) -> tuple[Span, ...]:
    if lines.style == "recipe":
        return tuple(_span(times) for times in sample.timeline.of(int(lines.step[row])))
    window = int(lines.window[row])
    return () if window == NONE else (_span(sample.timeline.windows[window]),)


def _span(times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Span:
    return Span(float(times[0]), float(times[1]))
