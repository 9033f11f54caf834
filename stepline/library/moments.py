"""Moments of a video, the units of search: its steps, sentences and texts on screen."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from stepline.outputs.text import shown_span
from stepline.pipeline.placing import ON_SCREEN
from stepline.records import Basis, Record, Span, Status

MomentKind: TypeAlias = Literal["step", "sentence", "screen"]


@dataclass(frozen=True)
class Moment:
    """A step, sentence or text on screen of one video.

    Attributes:
        video: id of the video.
        title: of the video.
        start: in seconds, None for a step that was not found.
        end: in seconds.
        status: verdict on a step, None for other kinds.
        basis: whether words or images decided the verdict.
        score: P(shown) of a step or sentence.
        file: path of the record, below the library's folder.
        link: path of the video's page at that second, None without a page.
    """

    video: str
    title: str
    kind: MomentKind
    text: str
    start: float | None
    end: float | None
    status: Status | None
    basis: Basis | None
    score: float | None
    file: str
    link: str | None


def list_moments(record: Record, name: str) -> list[tuple[Moment, list[int]]]:
    """Return the moments of a record, steps first, each with the indices of the steps that cite it.

    name: path of the record, below the library's folder.
    """
    rows: list[tuple[Moment, list[int]]] = []
    title = record.video.title or record.id

    def add(
        kind: MomentKind,
        text: str,
        span: Span | None,
        score: float | None,
        steps: list[int],
        verdict: tuple[Status | None, Basis | None] = (None, None),
    ) -> None:
        moment = Moment(
            record.video.id,
            title,
            kind,
            text,
            None if span is None else span.start,
            None if span is None else span.end,
            *verdict,
            score,
            name,
            None,
        )
        rows.append((moment, steps))

    # the steps, and which sentences they rest on
    citing_step_numbers: dict[int, list[int]] = {}
    for number, step in enumerate(record.steps):
        span = shown_span(step) or step.said
        add("step", step.text, span, step.score, [], (step.status, step.basis))
        for source in step.sources:
            citing_step_numbers.setdefault(source, []).append(number)

    # the sentences
    for number, sentence in enumerate(record.sentences):
        steps = citing_step_numbers.get(number, [])
        add("sentence", sentence.text, sentence.span, sentence.shown, steps)
    # Text on screen, which answers by the step whose picture holds it.
    for number, step in enumerate(record.steps):
        for remark in step.seen:
            text = remark.partition(ON_SCREEN)[2]
            if text:
                add("screen", text, None, None, [number])
    return rows


def moments_as_json(answers: Sequence[Moment]) -> str:
    """Return moments as a JSON list."""
    return json.dumps([asdict(moment) for moment in answers], ensure_ascii=False, indent=2)
