"""The two drawings of the page, on one axis of seconds.

`timeline`           sentences, seen and placed steps, and reference steps, as bars
`alignment_picture`  the alignment as an image: a row per text, a column per second, darker for higher scores

Every x is a percentage of the axis, so that a drawing stretches with the page without stretching
its text. Letters: K texts, T seconds.
"""

import base64
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepline.outputs.page.view import View, citing_steps, sentence_mark
from stepline.outputs.text import clock, one_line, sentence_case, shorten, shown_span, step_line
from stepline.outputs.verdict import VERDICT_TEXTS, step_verdict
from stepline.records import Alignment, Matrix, Record, Span, Step

LABEL_PIXELS = 22  # pixels above the bars of a row, for its name
ROW_GAP_PIXELS = 16  # pixels between rows
MAX_LANES = 6  # lanes of overlapping bars; the last one holds all that are left
MAX_PHONE_BARS = 16  # bars per row that fit a phone's 330 pixels with their numbers
# per cent of the axis, about 16 pixels: a bar below it has no room for its number
MIN_LABELLED_PERCENT = 2.4
MAX_TICKS = 6  # labels that fit under the axis on a phone
TICK_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)  # s between two ticks

MAX_TITLE_CHARS = 160  # of a text in the title of a bar

MAX_COLUMNS = 1600  # pixels. More columns than a screen shows are pooled by their maximum
TALL_ROW_PIXELS = 24  # of few texts
TIGHT_ROW_PIXELS = 14  # of many texts
MAX_TALL_ROWS = 24  # texts up to which rows are tall
# RGB, least to greatest
COLOUR_RAMP = ((244, 249, 247), (207, 233, 227), (108, 192, 179), (18, 128, 118), (6, 64, 61))


class TimelineItem(NamedTuple):
    """A bar of the timeline before it has a position on the page.

    Attributes:
        span: start and end in seconds of the video.
        look: CSS classes of the bar.
        label: text in the bar.
        title: tooltip of the bar.
    """

    span: Span
    look: str
    label: str
    title: str


def timeline(record: Record, total: float) -> View:
    """Return the timeline of a record as values for the template, without empty rows.

    x and width are per cent of an axis of `total` seconds, y and height are pixels, seek is a
    second. `ties` are lines between the words and the picture of a step. `crowded` is True if a
    phone's screen is too narrow and must scroll.
    """
    rows: list[View] = []
    top = 0

    # the rows, from top to bottom
    for name, items, height in (
        ("Said", _sentence_items(record), 14),
        ("Steps", _step_items(record), 22),
        ("Described", _span_items("Described", "captions", record.captions), 14),
        ("Reference", _span_items("Reference", "reference", record.reference), 14),
    ):
        if items:
            row, top = _layout_row(name, items, total, top, height)
            rows.append(row)
    # read aloud by screen readers
    summary = ", ".join(f"{row['name'].lower()}: {len(row['bars'])} spans" for row in rows)
    return {
        "rows": rows,
        "ties": list(_connection_lines(record, {row["name"]: row["bars"] for row in rows}, total)),
        "ticks": ticks(total),
        "height": top,
        "summary": summary,
        "crowded": any(len(row["bars"]) > MAX_PHONE_BARS for row in rows),
    }


def ticks(total: float) -> list[View]:
    """Return at most seven labelled ticks of the axis, evenly spaced from second 0.

    `anchor` is the SVG text-anchor that keeps the label inside the drawing.
    """
    labelled_ticks = []
    for second in range(0, int(total) + 1, _tick_stride(total)):
        tick = {"x": percent(second, total), "label": clock(second)}
        labelled_ticks.append(tick | {"anchor": _label_anchor(second / total)})
    return labelled_ticks


def _tick_stride(total: float) -> int:
    """Return the seconds between two ticks on an axis of `total` seconds."""
    # An axis longer than the table of strides has MAX_TICKS parts.
    longest = -(-int(total) // MAX_TICKS)
    return next((stride for stride in TICK_SECONDS if total / stride <= MAX_TICKS), longest)


def _label_anchor(fraction: float) -> str:
    """Return the SVG text-anchor of a tick's label. fraction: of the axis before the tick."""
    # A centred label at an end of the axis would stick out.
    last = "end" if fraction > 0.94 else "middle"
    return "start" if fraction == 0 else last


def percent(second: float, total: float) -> float:
    """Return the position of a second on the axis, in per cent."""
    return round(100 * second / total, 3)


def assign_lanes(spans: Iterable[Span]) -> list[int]:
    """Return the lane (0, 1, ...) of each span, so that spans in a lane do not overlap.

    Each span takes the first free lane. spans: sorted by start.
    """
    ends: list[float] = []
    lanes = []
    for span in spans:
        free_lanes = [lane for lane, end in enumerate(ends) if end <= span.start]
        lane = free_lanes[0] if free_lanes else len(ends)

        # beyond the last lane bars overlap
        lane = min(lane, MAX_LANES - 1)
        if lane == len(ends):
            ends.append(span.end)
        ends[lane] = max(ends[lane], span.end)
        lanes.append(lane)
    return lanes


def _layout_row(
    name: str, items: list[TimelineItem], total: float, top: int, height: int
) -> tuple[View, int]:
    """Return a row of bars, and the y position in pixels of the next row.

    Args:
        name: name of the row.
        items: the bars.
        total: length of the time axis in seconds.
        top: y position of the row's name in pixels.
        height: height of a bar in pixels.
    """
    items = sorted(items, key=lambda item: (item.span.start, item.span.end))

    # bars that overlap go below each other
    lanes = assign_lanes(item.span for item in items)
    lane_pixels = height + 3
    bars_top = top + LABEL_PIXELS
    bars = []
    for item, lane in zip(items, lanes, strict=True):
        width = percent(item.span.duration, total)
        bars.append(
            {
                "x": percent(item.span.start, total),
                "width": width,
                "y": bars_top + lane * lane_pixels,
                "height": height,
                "look": item.look,
                "seek": _seek_second(item.span),
                "label": item.label if width >= MIN_LABELLED_PERCENT else "",
                "title": item.title,
            }
        )
    bottom = bars_top + (max(lanes) + 1) * lane_pixels
    return {"name": name, "y": top, "bars": bars}, bottom + ROW_GAP_PIXELS


def _sentence_items(record: Record) -> list[TimelineItem]:
    items = []
    for sentence, citing in zip(record.sentences, citing_steps(record), strict=True):
        mark = sentence_mark(citing.values())
        text = _bar_title(sentence.span, sentence.text)
        items.append(TimelineItem(sentence.span, f"said-{mark}", "", text))
    return items


def _span_items(name: str, look: str, steps: Iterable[Step]) -> list[TimelineItem]:
    return [
        TimelineItem(span, look, "", f"{name} · {_bar_title(span, step.text)}")
        for step in steps
        for span in step.spans
    ]


def _step_items(record: Record) -> list[TimelineItem]:
    items = []
    for number, step in enumerate(record.steps, start=1):
        if shown_span(step) is None:
            continue
        verdict = step_verdict(step)
        for rank, span in enumerate(step.spans):
            look = f"{'other' if rank else 'best'} {verdict}"
            text = _bar_title(span, step_line(step))
            title = f"Step {number} · {VERDICT_TEXTS[verdict]} · {text}"
            items.append(TimelineItem(span, look, str(number), title))
    return items


def _seek_second(span: Span) -> float:
    return round(span.start, 3)  # seconds. A player knows no finer ones


def _bar_title(span: Span, text: str) -> str:
    line = shorten(sentence_case(one_line(text)), MAX_TITLE_CHARS)
    return f"{clock(span.start)}–{clock(span.end)} · {line}"


def _connection_lines(
    record: Record, bars: Mapping[str, list[View]], total: float
) -> Iterator[View]:
    """Yield a line from the words of each step to the step's best span.

    Args:
        record: the steps and sentences.
        bars: name of a row -> its bars.
        total: length of the time axis in seconds.
    """
    if "Said" not in bars or "Steps" not in bars:
        return

    # from below the row of speech to the best bar of each step
    y1 = max(bar["y"] + bar["height"] for bar in bars["Said"])
    tops = {bar["seek"]: bar["y"] for bar in bars["Steps"] if bar["look"].startswith("best")}
    for step in record.steps:
        best = shown_span(step)
        if best is not None and step.said is not None:
            x1 = percent(step.said.center, total)
            x2 = percent(best.center, total)
            yield {"x1": x1, "y1": y1, "x2": x2, "y2": tops[_seek_second(best)]}


def alignment_picture(alignment: Alignment, view: View) -> View:
    """Return the image of an alignment's scores, as values for the page's template.

    `source` is a PNG data URL, which covers `width` per cent of the time axis. `lines` are the
    names of the rows. `boxes` are outlines of the best spans, in per cent and pixels.

    Args:
        alignment: P(each text is shown in each second).
        view: the values that `page_view` has computed for the record.
    """
    row_pixels = TALL_ROW_PIXELS if len(alignment.texts) <= MAX_TALL_ROWS else TIGHT_ROW_PIXELS

    # texts and boxes over the image
    total = view["total"]
    lines = []
    boxes = []
    for index, step in enumerate(match_texts_to_steps(alignment.texts, view["steps"])):
        if step is None:
            lines.append({"number": None, "text": sentence_case(one_line(alignment.texts[index]))})
            continue
        lines.append({"number": step["number"], "text": step["text"]})
        if step["start"] is not None:
            x = percent(step["start"], total)
            width = percent(step["end"] - step["start"], total)
            boxes.append({"x": x, "width": width, "y": index * row_pixels})

    png = scores_to_png(pool_columns(alignment.scores, MAX_COLUMNS))
    return {
        "source": f"data:image/png;base64,{base64.b64encode(png).decode()}",
        "width": percent(alignment.scores.shape[1] / alignment.rate, total),
        "row": row_pixels,
        "height": row_pixels * len(lines),
        "lines": lines,
        "boxes": boxes,
    }


def match_texts_to_steps(texts: Sequence[str], steps: Sequence[View]) -> list[View | None]:
    """Return the step of each text: the next unused step with the same words, or None."""
    unused: dict[str, list[View]] = {}
    # From the last step, so that `pop` takes the first one.
    for step in reversed(steps):
        unused.setdefault(step["text"], []).append(step)
    matches = []
    for text in texts:
        same_words = unused.get(sentence_case(one_line(text)))
        matches.append(same_words.pop() if same_words else None)
    return matches


def pool_columns(scores: Matrix, columns: int) -> Matrix:
    """Return scores (K texts, T seconds) max-pooled over time to at most `columns` columns."""
    seconds = scores.shape[1]
    # Seconds per column, rounded up.
    group = -(-seconds // columns)
    if group <= 1:
        return scores
    return np.maximum.reduceat(scores, np.arange(0, seconds, group), axis=1)


def scores_to_png(scores: Matrix) -> bytes:
    """Return scores (K texts, T columns) as a palette PNG with one pixel per score.

    Colours are scaled from the minimum to the maximum score.
    """
    from PIL import Image

    low = float(scores.min())
    high = float(scores.max())
    # Scores that are all equal have the palest colour.
    levels = np.zeros_like(scores)
    if high > low:
        levels = (scores - low) / (high - low) * 255
    image = Image.fromarray(np.rint(levels).astype(np.uint8))  # (K, T)

    # the colour of each level
    stops = np.linspace(0, 255, len(COLOUR_RAMP))
    ramps = zip(*COLOUR_RAMP, strict=True)
    channels = [np.interp(np.arange(256), stops, ramp) for ramp in ramps]
    palette = np.rint(np.stack(channels, axis=1)).astype(np.uint8)  # (256, 3)
    image.putpalette(palette.tobytes())
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()
