"""Plots as SVG text, drawn from counts: no library, no script, nothing fetched. plots.css gives
them their colours.

Histograms, ranked bars, a waterfall of what each stage took away, a cloud of words, points in the
plane. Drawn by hand: matplotlib would add 60 MB for these few shapes, and its pictures would not
follow a page from light to dark.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

EMPTY_PLOT = "<p>Nothing to draw.</p>"


def plot_style() -> str:
    """Return the style sheet of the plots, for light and dark pages."""
    return files("stepline").joinpath("plots.css").read_text(encoding="utf-8")


def svg_picture(width: float, height: float, label: str, body: str) -> str:
    """Return an SVG picture of width x height pixels. label: what a screen reader says of it."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    role = f'role="img" aria-label="{escape(label)}"'
    return f"<svg {size} {role}>{body}</svg>"


def shortened(name: str, longest: int = 40) -> str:
    """Return the name, cut at `longest` characters."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - 1]}…"


# ---------------------------------------------------------------- histograms and ranked bars

# pixels of a histogram, and of its margins
PLOT_WIDTH = 460
PLOT_HEIGHT = 210
LEFT_MARGIN = 52
RIGHT_MARGIN = 8
TOP_MARGIN = 22
BOTTOM_MARGIN = 40
TICK_COUNT = 4  # marks on an axis
MAX_AXIS_LABELS = 8
# pixels of a list of bars, its letters legible on a phone of 390. Of a row, its words, a number
LIST_WIDTH = 400
ROW_HEIGHT = 30
WORDS_HEIGHT = 15
NUMBER_WIDTH = 62
TEXT_PIXELS = 11.5  # pixels of letters, in plots.css
# width of a letter over its height. Wide for most fonts, so that words stay apart
LETTER_WIDTH = 0.6


def histogram(
    counts: Mapping[str, int], unit: str, *, bar: float = 1.0, last: int | None = None
) -> str:
    """Return a histogram. Keys are whole numbers, each the lower end of a bar.

    unit: the axis' name. bar: what one step of the key is worth on the axis. last: the key that
    stands for all above.
    """
    return grouped_histogram({"": counts}, unit, bar=bar, last=last)


def grouped_histogram(
    series: Mapping[str, Mapping[str, int]], unit: str, *, bar: float = 1.0, last: int | None = None
) -> str:
    """Return histograms on one axis, each in fractions of its own sum where there are several."""
    values: dict[str, dict[int, int]] = {}
    for name, counts in series.items():
        values[name] = {int(key): count for key, count in counts.items()}
    keys = sorted(set(itertools.chain(*values.values())))
    if not keys:
        return EMPTY_PLOT

    # bins, and the height of each bar
    steps = [after - before for before, after in itertools.pairwise(keys)]
    step = min(steps, default=1)
    bins = range(keys[0], keys[-1] + step, step)
    as_fractions = len(values) > 1
    heights = {}
    for name, own_counts in values.items():
        total = 1
        if as_fractions:
            total = max(1, sum(own_counts.values()))
        heights[name] = [own_counts.get(index, 0) / total for index in bins]
    highest = [max(row) for row in heights.values()]
    top = max(highest) or 1.0

    # axes and bars
    bin_width = (PLOT_WIDTH - LEFT_MARGIN - RIGHT_MARGIN) / len(bins)
    shapes = [_axis(bins, bin_width, unit, bar, last)]
    shapes.append(_scale(top, as_fractions))
    group_count = len(heights)
    bar_width = max(0.6, bin_width / group_count - 0.8)
    for number, row in enumerate(heights.values()):
        for index, value in enumerate(row):
            if not value:
                continue
            height = (PLOT_HEIGHT - TOP_MARGIN - BOTTOM_MARGIN) * value / top
            x = LEFT_MARGIN + bin_width * (index + number / group_count)
            y = PLOT_HEIGHT - BOTTOM_MARGIN - height
            size = f'width="{bar_width:.1f}" height="{height:.1f}"'
            colour = _series(number, group_count)
            shapes.append(f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" {size}/>')

    # names of the series
    for number, name in enumerate(heights):
        if name:
            name_x = LEFT_MARGIN + 10 + 150 * number
            square = f'<rect class="s{number}" x="{name_x}" y="2" width="10" height="10"/>'
            shapes.append(f'{square}<text x="{name_x + 14}" y="11">{escape(name)}</text>')
    names = ", ".join(filter(None, heights)) or "histogram"
    return svg_picture(PLOT_WIDTH, PLOT_HEIGHT, f"{unit}: {names}", "".join(shapes))


def _series(number: int, groups: int) -> str:
    """Return the class that gives a bar its colour: grey is what was before, green what is."""
    if groups > 1:
        return f"s{number}"
    return "s1"


def _axis(bins: range, bin_width: float, unit: str, bar: float, last: int | None) -> str:
    floor = PLOT_HEIGHT - BOTTOM_MARGIN
    end = PLOT_WIDTH - RIGHT_MARGIN
    shapes = [f'<line x1="{LEFT_MARGIN}" x2="{end}" y1="{floor}" y2="{floor}"/>']
    # No more labels than there is room for.
    every = max(1, -(-len(bins) // MAX_AXIS_LABELS))
    for index in range(0, len(bins), every):
        text = f"{bins[index] * bar:g}"
        if last is not None and bins[index] >= last:
            text = f"{text}+"
        x = LEFT_MARGIN + bin_width * (index + 0.5)
        shapes.append(f'<text x="{x:.1f}" y="{floor + 14}" class="m">{text}</text>')
    middle = (LEFT_MARGIN + PLOT_WIDTH) / 2
    y = PLOT_HEIGHT - 6
    shapes.append(f'<text x="{middle:.0f}" y="{y}" class="m">{escape(unit)}</text>')
    return "".join(shapes)


def _scale(top: float, as_fractions: bool) -> str:
    plot_height = PLOT_HEIGHT - TOP_MARGIN - BOTTOM_MARGIN
    step = _round_step(max(1.0, top))
    if as_fractions:
        step = _round_step(100 * top) / 100
    shapes = []
    for tick in range(int(top / step + 1e-9) + 1):
        value = step * tick
        text = f"{value:,.10g}"
        if as_fractions:
            text = f"{100 * value:.3g} %"
        y = TOP_MARGIN + plot_height * (1 - value / top)
        shapes.append(f'<text x="{LEFT_MARGIN - 5}" y="{y + 4:.1f}" class="e">{text}</text>')
    return "".join(shapes)


def _round_step(top: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that at most TICK_COUNT of it fit below top."""
    power = 10.0 ** math.floor(math.log10(top / TICK_COUNT))
    for factor in (1, 2, 5):
        step = power * factor
        if step * TICK_COUNT >= top:
            return step
    return power * 10


def ranked_bars(rows: Sequence[tuple[str, Sequence[float]]], forms: Sequence[str]) -> str:
    """Return named rows with a bar for each series. forms: how the number of each is written, as
    "{:,.0f}"."""
    if not rows:
        return EMPTY_PLOT
    top = max(max(values) for _, values in rows) or 1.0
    shapes = []
    for index, (name, values) in enumerate(rows):
        numbers = []
        for form, value in zip(forms, values, strict=True):
            numbers.append(form.format(value))
        shapes.append(_list_row(index, name, numbers))
        # The bars of a row share what its words leave.
        height = (ROW_HEIGHT - WORDS_HEIGHT - 3) / len(values)
        for number, value in enumerate(values):
            width = LIST_WIDTH * value / top
            size = f'width="{width:.1f}" height="{height:.1f}"'
            y = ROW_HEIGHT * index + WORDS_HEIGHT + height * number
            colour = _series(number, len(values))
            shapes.append(f'<rect class="{colour}" x="0" y="{y:.1f}" {size}/>')
    list_height = ROW_HEIGHT * len(rows)
    return svg_picture(LIST_WIDTH, list_height, "bars", "".join(shapes))


def _list_row(row: int, name: str, numbers: Sequence[str]) -> str:
    """Return the words of a row above its bars: the name at the left, cut where the numbers at the
    right begin."""
    y = ROW_HEIGHT * row + WORDS_HEIGHT - 4
    name_width = LIST_WIDTH - NUMBER_WIDTH * len(numbers)
    short_name = shortened(name, int(name_width / (LETTER_WIDTH * TEXT_PIXELS)))
    texts = [f'<text x="0" y="{y}">{escape(short_name)}<title>{escape(name)}</title></text>']
    for column, number in enumerate(numbers):
        x = LIST_WIDTH - NUMBER_WIDTH * (len(numbers) - 1 - column)
        texts.append(f'<text x="{x}" y="{y}" class="e">{number}</text>')
    return "".join(texts)


# ---------------------------------------------------------------- a cloud of words

# pixels of the cloud, and of its letters
CLOUD_WIDTH = 580
CLOUD_HEIGHT = 320
MIN_LETTER_PIXELS = 11.0
MAX_LETTER_PIXELS = 46.0
# the spiral on which a word seeks its place
TURN_RADIANS = 0.35  # per try
GROWTH_PIXELS = 1.1  # per radian and half
MAX_TRIES = 1200


class Box(NamedTuple):
    """The place of a word, in pixels."""

    first_x: float
    first_y: float
    last_x: float
    last_y: float


def word_cloud(series: Mapping[str, Mapping[str, int]], words: int = 90) -> str:
    """Return the commonest words of one or more series as a cloud, a colour per series. Areas
    follow the counts.

    A word that finds no room is left out, the rarest first.
    """
    # the commonest words of all series
    rows = []
    for number, counts in enumerate(series.values()):
        for word, count in counts.items():
            if count > 0:
                rows.append((count, word, number))
    rows.sort(key=lambda row: (-row[0], *row[1:]))
    rows = rows[:words]
    if not rows:
        return EMPTY_PLOT

    # each where there is room
    max_count = rows[0][0]
    full_boxes: list[Box] = []
    texts = []
    for count, word, number in rows:
        size = max(MIN_LETTER_PIXELS, MAX_LETTER_PIXELS * math.sqrt(count / max_count))
        box = _free_box(LETTER_WIDTH * size * len(word), size, full_boxes)
        if box is None:
            continue
        full_boxes.append(box)
        x = (box.first_x + box.last_x) / 2
        y = box.first_y + 0.8 * size
        place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}"'
        content = f"{escape(word)}<title>{count:,}</title>"
        texts.append(f'<text class="m w{number}" {place}>{content}</text>')

    # names of the series
    for number, name in enumerate(series):
        if name:
            place = f'x="{10 + 130 * number}" y="{CLOUD_HEIGHT + 14}"'
            texts.append(f'<text {place} class="w{number}">{escape(name)}</text>')
    return svg_picture(CLOUD_WIDTH, CLOUD_HEIGHT + 20, "keyword cloud", "".join(texts))


def _free_box(width: float, height: float, full_boxes: list[Box]) -> Box | None:
    """Return the first free box along a spiral from the middle, None without one in the picture."""
    for step in range(MAX_TRIES):
        angle = TURN_RADIANS * step
        radius = GROWTH_PIXELS * TURN_RADIANS * step / 2
        # The spiral is wider than high, as the picture is.
        x = CLOUD_WIDTH / 2 + radius * math.cos(angle) * CLOUD_WIDTH / CLOUD_HEIGHT
        y = CLOUD_HEIGHT / 2 + radius * math.sin(angle)
        left_edge = x - width / 2
        top_edge = y - height / 2
        box = Box(left_edge, top_edge, x + width / 2, y + height / 2)
        fits_width = box.first_x >= 0 and box.last_x <= CLOUD_WIDTH
        fits_height = box.first_y >= 0 and box.last_y <= CLOUD_HEIGHT
        if not fits_width or not fits_height:
            continue
        if not any(_overlap(box, other) for other in full_boxes):
            return box
    return None


def _overlap(box: Box, other: Box) -> bool:
    if other.last_x <= box.first_x or box.last_x <= other.first_x:
        return False
    return other.last_y > box.first_y and box.last_y > other.first_y


# ---------------------------------------------------------------- a waterfall


@dataclass(frozen=True)
class WaterfallLevel:
    """What a stage began with, and what it took away: (reason, count)."""

    name: str
    count: int
    lost: tuple[tuple[str, int], ...] = ()


def waterfall(levels: Sequence[WaterfallLevel]) -> str:
    """Return the levels as bars, what each reason took away beneath its level, where the bar ends.

    A level's losses begin at its right end and go left, so that the next level starts where they
    stop.
    """
    top = max((level.count for level in levels), default=0)
    if not top:
        return EMPTY_PLOT
    rows: list[str] = []
    for level in levels:
        text = _list_row(len(rows), level.name, [f"{level.count:,}"])
        bar = _waterfall_bar(len(rows), 0.0, level.count / top, "s1")
        rows.append(text + bar)
        # Losses begin where the level's own bar ends.
        remaining = level.count
        for reason, count in level.lost:
            remaining -= count
            text = _list_row(len(rows), f"– {reason}", [f"−{count:,}"])
            bar = _waterfall_bar(len(rows), remaining / top, count / top, "s2")
            rows.append(text + bar)
    label = "what each stage kept and dropped"
    list_height = ROW_HEIGHT * len(rows)
    return svg_picture(LIST_WIDTH, list_height, label, "".join(rows))


def _waterfall_bar(row: int, start: float, fraction: float, series: str) -> str:
    """Return a bar. start, fraction: of the width of the list. series: its class."""
    x = LIST_WIDTH * max(0.0, start)
    y = ROW_HEIGHT * row + WORDS_HEIGHT
    width = max(0.7, LIST_WIDTH * fraction)
    height = ROW_HEIGHT - WORDS_HEIGHT - 5
    size = f'width="{width:.1f}" height="{height}"'
    return f'<rect class="{series}" x="{x:.1f}" y="{y}" {size}/>'


# ---------------------------------------------------------------- points in the plane

# pixels: width and height of the field, its margin, the legend below, a colour in the legend
FIELD_SIDE = 460
FIELD_MARGIN = 14
LEGEND_HEIGHT = 34
SQUARE_WIDTH = 12
SHADE_COUNT = 12  # colours between first and last; the style sheet names them o0 to o11


def scatter(
    points: npt.NDArray[np.floating], order: Sequence[float], names: Sequence[str], legend: str
) -> str:
    """Return N points (N, 2) with their names. order: of each in [0, 1], its colour. legend: what
    the order is."""
    if not len(points):
        return EMPTY_PLOT
    # the points fill the field, centred on both axes
    low = points.min(axis=0)
    sizes = points.max(axis=0) - low
    inner_side = FIELD_SIDE - 2 * FIELD_MARGIN
    scale = inner_side / max(1e-9, float(sizes.max()))
    margins = (inner_side - sizes * scale) / 2
    centres = FIELD_MARGIN + (points - low) * scale + margins
    shapes = []
    for (x, y), position, name in zip(centres, order, names, strict=True):
        shade = max(0, int(position * SHADE_COUNT))
        shade = min(SHADE_COUNT - 1, shade)
        title = f"<title>{escape(name)}</title>"
        circle = f'<circle class="o{shade}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
        shapes.append(f"{circle}{title}</circle>")
    shapes.append(_shade_legend(legend))
    label = f"{len(points)} points by {legend}"
    picture_height = FIELD_SIDE + LEGEND_HEIGHT
    return svg_picture(FIELD_SIDE, picture_height, label, "".join(shapes))


def _shade_legend(legend: str) -> str:
    """Return the colours from first to last, below the field."""
    y = FIELD_SIDE + 6
    start = (FIELD_SIDE - SHADE_COUNT * SQUARE_WIDTH) / 2
    size = f'width="{SQUARE_WIDTH}" height="10"'
    shapes = []
    for shade in range(SHADE_COUNT):
        x = start + shade * SQUARE_WIDTH
        shapes.append(f'<rect class="o{shade}" x="{x:.1f}" y="{y}" {size}/>')
    end = FIELD_SIDE - start
    middle = FIELD_SIDE / 2
    shapes.append(f'<text x="{start - 6:.1f}" y="{y + 9}" class="e">first</text>')
    shapes.append(f'<text x="{end + 6:.1f}" y="{y + 9}">last</text>')
    shapes.append(f'<text x="{middle}" y="{y + 25}" class="m">{escape(legend)}</text>')
    return "".join(shapes)
