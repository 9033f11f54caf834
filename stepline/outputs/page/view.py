"""The values of the page's template: texts and seconds of each step and sentence, no markup."""

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from stepline.outputs.text import (
    amount_text,
    clock,
    needed_things,
    no_step_text,
    one_line,
    percent_text,
    sentence_case,
    shown_span,
    step_lengths,
    title,
    total_times,
)
from stepline.outputs.verdict import (
    VERDICT_TEXTS,
    count_verdicts,
    most_certain,
    picture_scores,
    step_verdict,
)
from stepline.outputs.web_addresses import picture_link
from stepline.records import Alignment, Material, Record, Sentence, Span, Step

# Values of the template by name: texts, seconds, and lists of views.
View = dict[str, Any]
MARK_TEXTS: dict[str, str] = {**VERDICT_TEXTS, "none": "no step"}  # of a sentence
MIN_DRIFT_SECONDS = 5.0  # between words and pictures, from which the page mentions it


def page_view(record: Record, alignment: Alignment | None, keyframes: Mapping[str, bytes]) -> View:
    """Return the values of the page's template.

    `total` is the length of every time axis in seconds. `needed` is materials and tools under their
    headings. `marks` is the legend of sentences and steps. `pictures` are the pictures that several
    steps share. `models` are rows of dotted key and value.

    Args:
        record: the steps, sentences and materials to show.
        alignment: P(each step is shown in each second). None: no image of scores is drawn.
        keyframes: step id -> JPEG of the step.
    """
    # pictures that several steps have
    uses = Counter(keyframes[step.id] for step in record.steps if step.id in keyframes)
    common_pictures = [picture for picture, count in uses.items() if count > 1]
    shared = {picture: number for number, picture in enumerate(common_pictures)}

    # the steps, and which of them are shown in the same seconds
    steps = []
    first_numbers: dict[Span | None, int] = {None: 0}  # number of the first step with a span
    scores = picture_scores(record)
    for number, step in enumerate(record.steps, start=1):
        view = _step_view(number, step, record.sentences, scores.get(step.id))
        first = first_numbers.setdefault(shown_span(step), number)
        view["together"] = first if first and first != number else None
        # A picture of its own is inside the step, one of several steps is named by its number.
        picture = keyframes.get(step.id)
        view["shared"] = shared.get(picture) if picture else None
        is_own = picture and view["shared"] is None
        view["picture"] = picture_link(picture) if picture and is_own else None
        steps.append(view)

    # the legend has what occurs
    sentences = list(map(_sentence_view, record.sentences, citing_steps(record)))
    marks = {sentence["mark"] for sentence in sentences}
    marks |= {step["kind"] for step in steps if step["start"] is not None}
    return {
        "title": title(record),
        "language": (record.transcript and record.transcript.language) or "",
        "facts": _header_facts(record),
        "total": total_seconds(record, alignment),
        "counts": [
            (verdict, f"{count} {VERDICT_TEXTS[verdict]}")
            for verdict, count in count_verdicts(record.steps).items()
        ],
        "marks": [(mark, text) for mark, text in MARK_TEXTS.items() if mark in marks],
        "needed": [
            (name, list(map(_material_view, materials)))
            for name, materials in needed_things(record)
        ],
        "steps": steps,
        "pictures": list(map(picture_link, common_pictures)),
        "sentences": sentences,
        "reference": _texts_with_times(record.reference),
        "captions": _texts_with_times(record.captions),
        "dropped": record.dropped,
        "warnings": record.warnings,
        "has_settings": bool(record.settings),
        "is_portrait": _is_portrait(keyframes),
        "models": flatten(record.models),
    }


def total_seconds(record: Record, alignment: Alignment | None) -> float:
    """Return the length of the page's time axis in seconds, 1 or more.

    It is the duration of the video, or the latest end of a step, caption, sentence or alignment
    column if that is later.
    """
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


def sentence_mark(citing: Iterable[Step]) -> str:
    """Return the mark of a sentence: the most certain verdict on the steps that cite it."""
    step = most_certain(citing)
    return "none" if step is None else step_verdict(step)


def flatten(tree: Mapping[str, JsonValue], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as (dotted key, value) pairs of text.

    Args:
        tree: settings, in which a value may itself be a mapping.
        prefix: text before each key.
    """
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            rows.extend(flatten(value, f"{prefix}{key}."))
        else:
            rows.append((prefix + key, _value_text(value)))
    return rows


def _value_text(value: JsonValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value_text, value)) or "none"
    if value is None:
        return "not set"
    return str(value)


def _step_view(number: int, step: Step, sentences: Sequence[Sentence], score: float | None) -> View:
    """Return the template's values of a step, without its picture.

    `start` and `end` limit its best span, `at` is its most likely second, and `seek` is the second
    to which a click leads. They are None if the step has no time.

    Args:
        number: number of the step in the record, from 1 on.
        step: the step.
        sentences: all sentences of the transcript, to which `step.sources` refers by index.
        score: P(shown) by pictures, None without one.
    """
    best = shown_span(step)
    verdict = step_verdict(step)
    remarks = step.seen if step.doubt is None else (f"against: {step.doubt}", *step.seen)
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
        "lengths": step_lengths(step),
        "also": (),
        "percent": None,
        "percent_text": "",
        "drift": _drift_text(step),
        "sources": [],
        "provenance": " · ".join(filter(None, (step.source_text, step.licence))),
        "alternatives": [sentence_case(one_line(text)) for text in step.alternatives],
        "seen": list(map(one_line, remarks)),
    }
    if best is not None:
        at = best.center if step.at is None else step.at
        view |= {"start": best.start, "end": best.end, "at": at, "seek": best.start}
        view |= {"times": _span_text(best), "also": _span_texts(step.spans[1:])}
    elif step.said is not None:
        view |= {"seek": step.said.start, "times": f"said {_span_text(step.said)}"}
    if score is not None:
        view |= {"percent": round(score * 100), "percent_text": percent_text(score)}
    for index in step.sources:
        start = sentences[index].span.start
        text = one_line(sentences[index].text)
        view["sources"].append({"text": text, "seek": start, "clock": clock(start)})
    return view


def _is_portrait(keyframes: Mapping[str, bytes]) -> bool:
    """Return whether the first picture is higher than wide."""
    from PIL import Image

    for picture in keyframes.values():
        with Image.open(io.BytesIO(picture)) as image:
            return image.height > image.width
    return False


def _material_view(material: Material) -> View:
    return {
        "amount": " + ".join(map(amount_text, material.amounts)),
        "name": one_line(material.name),
        "seek": material.at,
        "clock": clock(material.at),
    }


def _drift_text(step: Step) -> str | None:
    """Return how long before or after its words a step is, in words.

    The value is None if the difference is small or unknown.
    """
    best = shown_span(step)
    if best is None or step.said is None or best.overlap(step.said) > 0:
        return None
    seconds = best.center - step.said.center
    if abs(seconds) < MIN_DRIFT_SECONDS:
        return None
    side = "after" if seconds > 0 else "before"
    return f"{abs(seconds):.0f} s {side} its words"


def _sentence_view(sentence: Sentence, citing: Mapping[int, Step]) -> View:
    mark = sentence_mark(citing.values())
    return {
        "text": one_line(sentence.text),
        "start": sentence.span.start,
        "end": sentence.span.end,
        "clock": clock(sentence.span.start),
        "mark": mark,
        "meaning": MARK_TEXTS[mark],
        "steps": list(citing),
    }


def _texts_with_times(steps: Iterable[Step]) -> list[tuple[str, list[tuple[float, str]]]]:
    return [(sentence_case(one_line(step.text)), _span_texts(step.spans)) for step in steps]


def _span_text(span: Span) -> str:
    return f"{clock(span.start)}–{clock(span.end)}"


def _span_texts(spans: Iterable[Span]) -> list[tuple[float, str]]:
    return [(span.start, _span_text(span)) for span in spans]


def _header_facts(record: Record) -> list[str]:
    count = len(record.steps)
    facts = [f"{count} step{'' if count == 1 else 's'}"]
    if not count:
        facts = [sentence_case(no_step_text(record))]
    if record.video.duration is not None:
        facts.append(clock(record.video.duration))
    if times := total_times(record):
        facts.append(f"steps: {times}")
    if record.transcript is not None and record.transcript.recogniser:
        facts.append(record.transcript.recogniser)
    if record.id != title(record):
        facts.append(record.id)
    return facts
