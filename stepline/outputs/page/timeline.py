"""The two drawings of the page, on one axis of seconds.

`timeline`           what is said, what is shown and the reference, as bars
`alignment_picture`  the alignment: one row a text, one column a second, the darker the better the fit

Every x is a percentage of the axis, so that a drawing stretches with the page without stretching
its text. Letters: K texts, T seconds.
"""

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepline.outputs.page.view import PageView, StepView, citing_steps, sentence_mark
from stepline.outputs.text import clock, one_line, sentence_case, shorten, shown_span, step_line
from stepline.outputs.verdict import VERDICT_TEXTS, step_verdict
from stepline.records import Alignment, Matrix, Record, Span, Step

LABEL_PIXELS = 22  # pixels above the bars of a row, for its name
ROW_GAP_PIXELS = 16  # pixels between rows
MAX_LANES = 6  # bars that overlap deeper than this share the last lane
MAX_PHONE_BARS = 16  # bars in a row that a phone's 330 pixels still hold with their numbers
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


@dataclass(frozen=True)
class TimelineBar:
    """A span: x and width in per cent of the axis, y and height in pixels, `seek` in seconds."""

    x: float
    width: float
    y: int
    height: int
    look: str
    seek: float
    label: str
    title: str


@dataclass(frozen=True)
class TimelineRow:
    """A named row of bars. Its name is at `y`."""

    name: str
    y: int
    bars: tuple[TimelineBar, ...]


@dataclass(frozen=True)
class TimelineLink:
    """A line from where a step is said to where it is shown."""

    x1: float
    y1: int
    x2: float
    y2: int


@dataclass(frozen=True)
class TimelineTick:
    """A second on the axis. `anchor` is the SVG text-anchor that keeps its label inside."""

    x: float
    label: str
    anchor: str


@dataclass(frozen=True)
class Timeline:
    """Rows from top to bottom, height in pixels. Crowded where a phone is too narrow and must
    scroll sideways."""

    rows: tuple[TimelineRow, ...]
    ties: tuple[TimelineLink, ...]
    ticks: tuple[TimelineTick, ...]
    height: int
    summary: str
    crowded: bool


@dataclass(frozen=True)
class TimelineItem:
    """What a bar stands for, before it is laid out."""

    span: Span
    look: str
    label: str
    title: str


def timeline(record: Record, total: float) -> Timeline:
    """Return the record's rows on an axis of `total` seconds. A row with nothing in it is left
    out."""
    rows: list[TimelineRow] = []
    top = 0

    # the rows, from top to bottom
    for name, items, height in (
        ("Said", _said(record), 14),
        (_placed_row_name(record), _shown(record), 22),
        ("Described", _placed("Described", "captions", record.captions), 14),
        ("Reference", _placed("Reference", "reference", record.reference), 14),
    ):
        if items:
            row, top = _row(name, items, total, top, height)
            rows.append(row)
    # What a screen reader says of the drawing.
    summary = ", ".join(f"{row.name.lower()}: {len(row.bars)} spans" for row in rows)
    crowded = any(len(row.bars) > MAX_PHONE_BARS for row in rows)
    return Timeline(
        rows=tuple(rows),
        ties=tuple(_ties(record, rows, total)),
        ticks=ticks(total),
        height=top,
        summary=summary,
        crowded=crowded,
    )


def ticks(total: float) -> tuple[TimelineTick, ...]:
    """Return at most seven labelled seconds, evenly spaced from 0."""
    labelled_ticks = []
    for second in range(0, int(total) + 1, _tick_stride(total)):
        x = percent(second, total)
        anchor = _anchor(second / total)
        labelled_ticks.append(TimelineTick(x, clock(second), anchor))
    return tuple(labelled_ticks)


def _tick_stride(total: float) -> int:
    """Return the seconds between two ticks on an axis of `total` seconds."""
    for stride in TICK_SECONDS:
        if total / stride <= MAX_TICKS:
            return stride
    # An axis longer than the table of strides has MAX_TICKS parts.
    return -(-int(total) // MAX_TICKS)


def _anchor(fraction: float) -> str:
    if fraction == 0:
        return "start"
    # the last label would stick out
    if fraction > 0.94:
        return "end"
    return "middle"


def percent(second: float, total: float) -> float:
    """Return where a second is on the axis, in per cent."""
    return round(100 * second / total, 3)


def assign_lanes(spans: Iterable[Span]) -> list[int]:
    """Return the lane of each span (given sorted by start): the first that is free, so that no two
    bars overlap."""
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


def _row(
    name: str, items: list[TimelineItem], total: float, top: int, height: int
) -> tuple[TimelineRow, int]:
    """Return the row whose name starts at `top` and the top of the next."""
    items = sorted(items, key=lambda item: (item.span.start, item.span.end))

    # bars that overlap go below each other
    lanes = assign_lanes(item.span for item in items)
    lane_pixels = height + 3
    bars_top = top + LABEL_PIXELS
    bars = []
    for item, lane in zip(items, lanes, strict=True):
        width = percent(item.span.duration, total)
        label = ""
        if width >= MIN_LABELLED_PERCENT:
            label = item.label
        bar = TimelineBar(
            x=percent(item.span.start, total),
            width=width,
            y=bars_top + lane * lane_pixels,
            height=height,
            look=item.look,
            seek=_seek(item.span),
            label=label,
            title=item.title,
        )
        bars.append(bar)
    bottom = bars_top + (max(lanes) + 1) * lane_pixels
    return TimelineRow(name, top, tuple(bars)), bottom + ROW_GAP_PIXELS


def _said(record: Record) -> list[TimelineItem]:
    items = []
    for sentence, citing in zip(record.sentences, citing_steps(record), strict=True):
        mark = sentence_mark(sentence, citing.values())
        title = _title(sentence.span, sentence.text)
        items.append(TimelineItem(sentence.span, f"said-{mark}", "", title))
    return items


def _placed(name: str, look: str, steps: Iterable[Step]) -> list[TimelineItem]:
    items = []
    for step in steps:
        for span in step.spans:
            title = f"{name} · {_title(span, step.text)}"
            items.append(TimelineItem(span, look, "", title))
    return items


def _placed_row_name(record: Record) -> str:
    """Return the name of the row of steps that have a time: "Shown" where all of them are."""
    for step in record.steps:
        if shown_span(step) is not None and step_verdict(step) != "shown":
            return "Steps"
    return "Shown"


def _shown(record: Record) -> list[TimelineItem]:
    items = []
    for number, step in enumerate(record.steps, start=1):
        if shown_span(step) is None:
            continue
        verdict = step_verdict(step)
        for rank, span in enumerate(step.spans):
            look = f"{'other' if rank else 'best'} {verdict}"
            text = _title(span, step_line(step))
            title = f"Step {number} · {VERDICT_TEXTS[verdict]} · {text}"
            items.append(TimelineItem(span, look, str(number), title))
    return items


def _seek(span: Span) -> float:
    return round(span.start, 3)  # seconds. A player knows no finer ones


def _title(span: Span, text: str) -> str:
    line = shorten(sentence_case(one_line(text)), MAX_TITLE_CHARS)
    return f"{clock(span.start)}–{clock(span.end)} · {line}"


def _ties(record: Record, rows: list[TimelineRow], total: float) -> Iterable[TimelineLink]:
    """Yield a line from the middle of what is said to the middle of what is shown, for each shown
    step."""
    named = {row.name: row for row in rows}
    placed_row = _placed_row_name(record)
    if "Said" not in named or placed_row not in named:
        return

    # from below the row of speech to the best bar of each step
    y1 = max(bar.y + bar.height for bar in named["Said"].bars)
    best_bars = [bar for bar in named[placed_row].bars if bar.look.startswith("best")]
    tops = {bar.seek: bar.y for bar in best_bars}
    for step in record.steps:
        best = shown_span(step)
        if best is not None and step.said is not None:
            x1 = percent(step.said.center, total)
            x2 = percent(best.center, total)
            yield TimelineLink(x1, y1, x2, tops[_seek(best)])


@dataclass(frozen=True)
class RowLabel:
    """A row's name: the step it belongs to, None where the text is not a step of the record."""

    number: int | None
    text: str
    seek: float | None


@dataclass(frozen=True)
class SpanBox:
    """The outline of the span a step was given: per cent and pixels."""

    x: float
    width: float
    y: int


@dataclass(frozen=True)
class AlignmentPicture:
    """The image as a PNG data URI that covers `width` per cent of the axis, and what is drawn over
    it."""

    source: str
    width: float
    row: int
    height: int
    lines: tuple[RowLabel, ...]
    boxes: tuple[SpanBox, ...]


def alignment_picture(alignment: Alignment, view: PageView) -> AlignmentPicture:
    """Return the picture of a non-empty alignment on the page's time axis."""
    row = TALL_ROW_PIXELS if len(alignment.texts) <= MAX_TALL_ROWS else TIGHT_ROW_PIXELS

    # what is written and drawn over the image
    lines = []
    boxes = []
    steps = match_steps(alignment.texts, view.steps)
    for index, step in enumerate(steps):
        if step is None:
            text = sentence_case(one_line(alignment.texts[index]))
            lines.append(RowLabel(None, text, None))
            continue
        lines.append(RowLabel(step.number, step.text, step.seek))
        if step.start is not None and step.end is not None:
            x = percent(step.start, view.total)
            width = percent(step.end - step.start, view.total)
            boxes.append(SpanBox(x, width, index * row))

    png = scores_to_png(pool_columns(alignment.scores, MAX_COLUMNS))
    png_text = base64.b64encode(png).decode()
    seconds = alignment.scores.shape[1] / alignment.rate
    return AlignmentPicture(
        source=f"data:image/png;base64,{png_text}",
        width=percent(seconds, view.total),
        row=row,
        height=row * len(lines),
        lines=tuple(lines),
        boxes=tuple(boxes),
    )


def match_steps(texts: tuple[str, ...], steps: tuple[StepView, ...]) -> list[StepView | None]:
    """Return the step of each text: the next unused one with the same words."""
    waiting: dict[str, list[StepView]] = {}
    # From the last step, so that `pop` takes the first one.
    for step in reversed(steps):
        waiting.setdefault(step.text, []).append(step)
    matches = []
    for text in texts:
        same_words = waiting.get(sentence_case(one_line(text)))
        step_of_text = same_words.pop() if same_words else None
        matches.append(step_of_text)
    return matches


def pool_columns(scores: Matrix, columns: int) -> Matrix:
    """Return scores (K, T) as (K, <= columns), each column the maximum of those it stands for."""
    seconds = scores.shape[1]
    # Seconds per column, rounded up.
    group = -(-seconds // columns)
    if group <= 1:
        return scores
    return np.maximum.reduceat(scores, np.arange(0, seconds, group), axis=1)


def scores_to_png(scores: Matrix) -> bytes:
    """Return scores (K, T) as a palette PNG of one pixel a score, stretched from the least to the
    greatest."""
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
    channels = []
    for index in range(3):
        ramp = [colour[index] for colour in COLOUR_RAMP]
        channels.append(np.interp(np.arange(256), stops, ramp))
    palette = np.rint(np.stack(channels, axis=1)).astype(np.uint8)  # (256, 3)
    image.putpalette(palette.tobytes())
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()
