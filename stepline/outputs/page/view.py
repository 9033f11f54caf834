"""What the page says of each step and sentence, ready for the template: words and seconds, no
markup."""

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

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
from stepline.outputs.verdict import VERDICT_TEXTS, step_verdict, verdict_lines
from stepline.outputs.web_addresses import picture_link
from stepline.records import Alignment, Material, Record, Sentence, Span, Step

# What the template reads: texts, seconds, and lists of such views.
View: TypeAlias = dict[str, Any]
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


def page_view(record: Record, alignment: Alignment | None, keyframes: Mapping[str, bytes]) -> View:
    """Return everything that the page says of a record.

    total: seconds on every time axis. score: what its per cent are, long and short. needed:
    materials and tools under their headings. marks, looks: the colours of sentences and of placed
    steps that occur, in words. pictures: those that several steps have, held once. models: rows of
    dotted key and value.
    """
    # pictures that several steps have
    uses = Counter(keyframes[step.id] for step in record.steps if step.id in keyframes)
    common_pictures = [picture for picture, count in uses.items() if count > 1]
    shared = {picture: number for number, picture in enumerate(common_pictures)}

    # the steps, and which of them are shown in the same seconds
    steps = []
    first_numbers: dict[Span | None, int] = {None: 0}  # of the step that has a span first
    for number, step in enumerate(record.steps, start=1):
        view = _step(number, step, record.sentences)
        first = first_numbers.setdefault(shown_span(step), number)
        view["together"] = first if first and first != number else None
        # A picture of its own is inside the step, one of several steps is named by its number.
        picture = keyframes.get(step.id)
        view["shared"] = shared.get(picture) if picture else None
        is_own = picture and view["shared"] is None
        view["picture"] = picture_link(picture) if picture and is_own else None
        steps.append(view)

    # the legend has what occurs
    sentences = list(map(_sentence, record.sentences, citing_steps(record)))
    marks = {sentence["mark"] for sentence in sentences}
    looks = {step["kind"] for step in steps if step["start"] is not None}
    return {
        "title": _title(record),
        "language": (record.transcript and record.transcript.language) or "",
        "facts": _facts(record),
        "total": total_seconds(record, alignment),
        "counts": list(verdict_lines(record.steps).items()),
        "marks": [(mark, text) for mark, text in MARK_TEXTS.items() if mark in marks],
        "looks": [(kind, text) for kind, text in VERDICT_TEXTS.items() if kind in looks],
        "score": UNCALIBRATED_SCORE if from_pictures(record) else CALIBRATED_SCORE,
        "needed": [(name, list(map(_thing, things))) for name, things in needed_things(record)],
        "steps": steps,
        "pictures": list(map(picture_link, common_pictures)),
        "sentences": sentences,
        "reference": _placed_texts(record.reference),
        "captions": _placed_texts(record.captions),
        "dropped": record.dropped,
        "warnings": record.warnings,
        "has_settings": bool(record.settings),
        "is_portrait": _is_portrait(keyframes),
        "models": flatten(record.models),
    }


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


def flatten(tree: Mapping[str, JsonValue], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as rows of dotted key and value."""
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            rows.extend(flatten(value, f"{prefix}{key}."))
        else:
            rows.append((prefix + key, _plain(value)))
    return rows


def _plain(value: JsonValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    if value is None:
        return "not set"
    return str(value)


def _step(number: int, step: Step, sentences: Sequence[Sentence]) -> View:
    """Return what the page says of a step, apart from its picture.

    `start` and `end` are where it is highlighted, `at` where it is most itself, `seek` where a
    click goes. None where it has no time.
    """
    best = shown_span(step)
    verdict = step_verdict(step)
    view: View = {
        "number": number,
        "text": sentence_case(one_line(step.text)),
        "kind": verdict,
        "badge": sentence_case(VERDICT_TEXTS[verdict]),
        "avoid": step.kind == "avoid",
        "start": None,
        "end": None,
        "at": step.at,
        "seek": None,
        "times": "",
        "also": (),
        "percent": None,
        "percent_text": "",
        "drift": _drift(step),
        "sources": [],
        "provenance": " · ".join(filter(None, (step.source_text, step.licence))),
        "alternatives": [sentence_case(one_line(text)) for text in step.alternatives],
        "seen": list(map(one_line, step.seen)),
    }
    if best is not None:
        at = best.center if step.at is None else step.at
        view |= {"start": best.start, "end": best.end, "at": at, "seek": best.start}
        view |= {"times": _range(best), "also": _ranges(step.spans[1:])}
    elif step.said is not None:
        view |= {"seek": step.said.start, "times": f"said {_range(step.said)}"}
    if step.score is not None and verdict != "likely":
        view |= {"percent": round(step.score * 100), "percent_text": percent_text(step.score)}
    for index in step.sources:
        start = sentences[index].span.start
        text = one_line(sentences[index].text)
        view["sources"].append({"text": text, "seek": start, "clock": clock(start)})
    return view


def _is_portrait(keyframes: Mapping[str, bytes]) -> bool:
    """Return whether the pictures are higher than wide. The first stands for all."""
    from PIL import Image

    for picture in keyframes.values():
        with Image.open(io.BytesIO(picture)) as image:
            return image.height > image.width
    return False


def _thing(thing: Material) -> View:
    amount = " + ".join(map(amount_text, thing.amounts))
    name = one_line(thing.name)
    return {"amount": amount, "name": name, "seek": thing.at, "clock": clock(thing.at)}


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


def _sentence(sentence: Sentence, citing: Mapping[int, Step]) -> View:
    mark = sentence_mark(sentence, citing.values())
    return {
        "text": one_line(sentence.text),
        "start": sentence.span.start,
        "end": sentence.span.end,
        "clock": clock(sentence.span.start),
        "mark": mark,
        "meaning": MARK_TEXTS[mark],
        "steps": list(citing),
    }


def _placed_texts(steps: Iterable[Step]) -> list[tuple[str, list[tuple[float, str]]]]:
    return [(sentence_case(one_line(step.text)), _ranges(step.spans)) for step in steps]


def _range(span: Span) -> str:
    return f"{clock(span.start)}–{clock(span.end)}"


def _ranges(spans: Iterable[Span]) -> list[tuple[float, str]]:
    return [(span.start, _range(span)) for span in spans]


def _title(record: Record) -> str:
    return one_line(record.video.title or record.video.task or "") or record.id


def _facts(record: Record) -> list[str]:
    count = len(record.steps)
    facts = [f"{count} step{'' if count == 1 else 's'}" if count else "No steps"]
    if record.video.duration is not None:
        facts.append(clock(record.video.duration))
    if record.transcript is not None and record.transcript.recogniser:
        facts.append(record.transcript.recogniser)
    if record.id != _title(record):
        facts.append(record.id)
    return facts
