"""The moments of a video that a search answers with: its steps, sentences and texts on screen."""

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
    """An answer: what is done, said or written, and when, in seconds. A step that is not found has
    no times.

    status, basis, score: the verdict on a step, P(shown) of a sentence.
    file: the record.
    link: the page at that second, None where the record has no page. Both are paths below the
    folder.
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


def moments(record: Record, name: str) -> list[tuple[Moment, list[int]]]:
    """Return the moments of a record, its steps first, each with the numbers of the steps that rest
    on it."""
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


def as_json(answers: Sequence[Moment]) -> str:
    """Return moments as a JSON list."""
    return json.dumps([asdict(moment) for moment in answers], ensure_ascii=False, indent=2)
