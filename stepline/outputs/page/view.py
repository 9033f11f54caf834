"""What the page says of each step and sentence, ready for the template: words and seconds, no
markup."""

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from stepline.outputs.text import (
    amount_text,
    clock,
    from_pictures,
    needed_things,
    one_line,
    percent_text,
    sentence_case,
    shown_span,
)
from stepline.outputs.verdict import VERDICT_TEXTS, Verdict, step_verdict, verdict_lines
from stepline.outputs.web_addresses import picture_link
from stepline.records import Alignment, Material, Record, Rejected, Sentence, Span, Step

Mark = Literal["shown", "likely", "unclear", "said", "none"]

MARK_TEXTS: dict[Mark, str] = {
    "shown": "said and shown",
    "likely": "said, likely shown",
    "unclear": "said, unclear whether shown",
    "said": "said, not shown",
    "none": "no step",
}
SHOWN_FLOOR = 0.5  # P(the picture shows it) from which a sentence counts as shown
CALIBRATED_SCORE = ("How sure it is that the picture shows this step", "sure that it is shown")
UNCALIBRATED_SCORE = (
    "The network's own confidence in this step; it is not calibrated",
    "confidence",
)
MIN_DRIFT_SECONDS = 5.0  # s between saying and showing that are not worth a remark


@dataclass(frozen=True)
class SourceView:
    """A sentence that a step rests on."""

    text: str
    seek: float
    clock: str


@dataclass(frozen=True)
class StepView:
    """A step: `start` and `end` are where it is highlighted, `at` where it is most itself, `seek`
    where a click goes.

    None where it has no time. together: the first step that is shown in the very same seconds,
    where that is another.
    shared: the number, in the page's `pictures`, of a picture that other steps have too.
    """

    number: int
    text: str
    kind: Verdict
    badge: str
    avoid: bool
    start: float | None
    end: float | None
    at: float | None
    seek: float | None
    times: str
    also: tuple[tuple[float, str], ...]
    percent: int | None
    percent_text: str
    drift: str | None
    together: int | None
    sources: tuple[SourceView, ...]
    provenance: str | None
    alternatives: tuple[str, ...]
    seen: tuple[str, ...]
    picture: str | None
    shared: int | None


@dataclass(frozen=True)
class ThingView:
    """A material or tool: its amounts, which may be empty, its name, and when it is named."""

    amount: str
    name: str
    seek: float
    clock: str


@dataclass(frozen=True)
class SentenceView:
    """A sentence, what is known of it, and the numbers of the steps that cite it."""

    text: str
    start: float
    end: float
    clock: str
    mark: Mark
    meaning: str
    steps: tuple[int, ...]


@dataclass(frozen=True)
class PageView:
    """Everything the page says.

    total: seconds on every time axis.
    score: what its per cent are, long and short.
    needed: materials and tools under their headings, where there are any.
    marks, looks: the colours of sentences and of placed steps that occur, in words.

    pictures: those that several steps have, held once. has_settings: whether the JSON has settings.
    is_portrait: whether the pictures are higher than wide. models: rows of dotted key and value.
    """

    title: str
    language: str
    facts: tuple[str, ...]
    total: float
    counts: tuple[tuple[Verdict, str], ...]
    marks: tuple[tuple[Mark, str], ...]
    looks: tuple[tuple[Verdict, str], ...]
    score: tuple[str, str]
    needed: tuple[tuple[str, tuple[ThingView, ...]], ...]
    steps: tuple[StepView, ...]
    pictures: tuple[str, ...]
    sentences: tuple[SentenceView, ...]
    reference: tuple[tuple[str, tuple[tuple[float, str], ...]], ...]
    captions: tuple[tuple[str, tuple[tuple[float, str], ...]], ...]
    dropped: tuple[Rejected, ...]
    warnings: tuple[str, ...]
    has_settings: bool
    is_portrait: bool
    models: tuple[tuple[str, str], ...]


def page_view(
    record: Record, alignment: Alignment | None, keyframes: Mapping[str, bytes]
) -> PageView:
    """Return what the page says of the record."""
    # pictures that several steps have
    uses = Counter(keyframes[step.id] for step in record.steps if step.id in keyframes)
    common_pictures = [picture for picture, count in uses.items() if count > 1]
    shared = {picture: number for number, picture in enumerate(common_pictures)}

    # the steps, and which of them are shown in the same seconds
    steps = []
    first_numbers: dict[Span | None, int] = {None: 0}  # of the step that has a span first
    for number, step in enumerate(record.steps, start=1):
        picture = keyframes.get(step.id)
        first = first_numbers.setdefault(shown_span(step), number)
        steps.append(_step(number, step, record.sentences, picture, shared, first))

    # the legend has what occurs
    sentences = tuple(map(_sentence, record.sentences, citing_steps(record)))
    marks = {sentence.mark for sentence in sentences}
    looks = {step.kind for step in steps if step.start is not None}
    language = None
    if record.transcript:
        language = record.transcript.language
    needed = []
    for heading, things in needed_things(record):
        needed.append((heading, tuple(map(_thing, things))))
    return PageView(
        title=_title(record),
        language=language or "",
        facts=_facts(record),
        total=total_seconds(record, alignment),
        counts=tuple(verdict_lines(record.steps).items()),
        marks=tuple((mark, text) for mark, text in MARK_TEXTS.items() if mark in marks),
        looks=tuple((kind, text) for kind, text in VERDICT_TEXTS.items() if kind in looks),
        score=UNCALIBRATED_SCORE if from_pictures(record) else CALIBRATED_SCORE,
        needed=tuple(needed),
        steps=tuple(steps),
        pictures=tuple(map(picture_link, common_pictures)),
        sentences=sentences,
        reference=_placed_texts(record.reference),
        captions=_placed_texts(record.captions),
        dropped=record.dropped,
        warnings=record.warnings,
        has_settings=bool(record.settings),
        is_portrait=_is_portrait(keyframes),
        models=flatten(record.models),
    )


def total_seconds(record: Record, alignment: Alignment | None) -> float:
    """Return the seconds that a time axis must hold: the duration, or more where something ends
    later."""
    # At least a second, since all places on the axis are shares of it.
    ends = [record.video.duration or 0.0, 1.0]
    for step in (*record.steps, *record.captions, *record.reference):
        ends += [span.end for span in step.spans]
    ends += [step.said.end for step in record.steps if step.said is not None]
    ends += [sentence.span.end for sentence in record.sentences]
    if alignment is not None:
        ends.append(alignment.scores.shape[1] / alignment.rate)
    return max(ends)


def citing_steps(record: Record) -> list[dict[int, Step]]:
    """Return, for each sentence, the steps that cite it by their numbers."""
    citing: list[dict[int, Step]] = [{} for _ in record.sentences]
    for number, step in enumerate(record.steps, start=1):
        for index in step.sources:
            citing[index][number] = step
    return citing


def sentence_mark(sentence: Sentence, citing: Iterable[Step]) -> Mark:
    """Return whether the sentence is shown, by the steps that cite it, as the page says of them.
    Without such steps it is as judged."""
    verdicts = {step_verdict(step) for step in citing}
    # The most certain verdict of the steps that cite it.
    placed: tuple[Mark, ...] = ("shown", "likely", "unclear")
    for mark in placed:
        if mark in verdicts:
            return mark
    if verdicts:
        return "said"
    if sentence.shown is not None and sentence.shown >= SHOWN_FLOOR:
        return "shown"
    return "none"


def flatten(tree: Mapping[str, JsonValue], prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Return nested settings as rows of dotted key and value."""
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            rows.extend(flatten(value, f"{prefix}{key}."))
        else:
            rows.append((prefix + key, _plain(value)))
    return tuple(rows)


def _plain(value: JsonValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    if value is None:
        return "not set"
    return str(value)


def _step(
    number: int,
    step: Step,
    sentences: tuple[Sentence, ...],
    picture: bytes | None,
    shared: Mapping[bytes, int],
    first: int,
) -> StepView:
    best = shown_span(step)
    start = None
    end = None
    at = step.at
    seek = None
    times = ""
    if best is not None:
        start = best.start
        end = best.end
        seek = best.start
        times = _range(best)
        if at is None:
            at = best.center
    elif step.said is not None:
        seek = step.said.start
        times = f"said {_range(step.said)}"
    verdict = step_verdict(step)
    percent, score_text = None, ""
    if step.score is not None and verdict != "likely":
        percent = round(step.score * 100)
        score_text = percent_text(step.score)
    provenance = " · ".join(part for part in (step.source_text, step.licence) if part)
    alternatives = [sentence_case(one_line(text)) for text in step.alternatives]
    own_picture = None
    shared_picture = None
    if picture:
        shared_picture = shared.get(picture)
        if shared_picture is None:
            own_picture = picture_link(picture)
    return StepView(
        number=number,
        text=sentence_case(one_line(step.text)),
        kind=verdict,
        badge=sentence_case(VERDICT_TEXTS[verdict]),
        avoid=step.kind == "avoid",
        start=start,
        end=end,
        at=at,
        seek=seek,
        times=times,
        also=_ranges(step.spans[1:]) if best is not None else (),
        percent=percent,
        percent_text=score_text,
        drift=_drift(step),
        together=first if first and first != number else None,
        sources=_source_views(step, sentences),
        provenance=provenance or None,
        alternatives=tuple(alternatives),
        seen=tuple(map(one_line, step.seen)),
        picture=own_picture,
        shared=shared_picture,
    )


def _source_views(step: Step, sentences: tuple[Sentence, ...]) -> tuple[SourceView, ...]:
    sources = []
    for index in step.sources:
        sentence = sentences[index]
        begin = sentence.span.start
        sources.append(SourceView(one_line(sentence.text), begin, clock(begin)))
    return tuple(sources)


def _is_portrait(keyframes: Mapping[str, bytes]) -> bool:
    """Return whether the pictures are higher than wide. The first stands for all."""
    from PIL import Image

    for picture in keyframes.values():
        with Image.open(io.BytesIO(picture)) as image:
            return image.height > image.width
    return False


def _thing(thing: Material) -> ThingView:
    amount = " + ".join(map(amount_text, thing.amounts))
    return ThingView(amount, one_line(thing.name), thing.at, clock(thing.at))


def _drift(step: Step) -> str | None:
    """Return how far from its words the step is shown, None where that is near or not known."""
    best = shown_span(step)
    if best is None or step.said is None or best.overlap(step.said) > 0:
        return None
    seconds = best.center - step.said.center
    if abs(seconds) < MIN_DRIFT_SECONDS:
        return None
    side = "after" if seconds > 0 else "before"
    return f"shown {abs(seconds):.0f} s {side} it is said"


def _sentence(sentence: Sentence, citing: Mapping[int, Step]) -> SentenceView:
    mark = sentence_mark(sentence, citing.values())
    return SentenceView(
        text=one_line(sentence.text),
        start=sentence.span.start,
        end=sentence.span.end,
        clock=clock(sentence.span.start),
        mark=mark,
        meaning=MARK_TEXTS[mark],
        steps=tuple(citing),
    )


def _placed_texts(steps: tuple[Step, ...]) -> tuple[tuple[str, tuple[tuple[float, str], ...]], ...]:
    return tuple((sentence_case(one_line(step.text)), _ranges(step.spans)) for step in steps)


def _range(span: Span) -> str:
    return f"{clock(span.start)}–{clock(span.end)}"


def _ranges(spans: tuple[Span, ...]) -> tuple[tuple[float, str], ...]:
    return tuple((span.start, _range(span)) for span in spans)


def _title(record: Record) -> str:
    return one_line(record.video.title or record.video.task or "") or record.id


def _facts(record: Record) -> tuple[str, ...]:
    count = len(record.steps)
    facts = [f"{count} step{'' if count == 1 else 's'}" if count else "No steps"]
    if record.video.duration is not None:
        facts.append(clock(record.video.duration))
    if record.transcript is not None and record.transcript.recogniser:
        facts.append(record.transcript.recogniser)
    if record.id != _title(record):
        facts.append(record.id)
    return tuple(facts)
