"""Plots as SVG text, drawn from counts: no library, no script, nothing fetched; plots.css gives
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

import numpy as np
import numpy.typing as npt

EMPTY_PLOT = "<p>Nothing to draw.</p>"


def plot_style() -> str:
    """Return the style sheet of the plots, for light and dark pages."""
    return files("stepline").joinpath("plots.css").read_text(encoding="utf-8")


def svg_picture(width: float, height: float, label: str, body: str) -> str:
    """Return an SVG picture of width x height pixels; label: what a screen reader says of it."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{body}</svg>'


def shortened(name: str, longest: int = 40) -> str:
    """Return the name, cut at `longest` characters."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


# ---------------------------------------------------------------- histograms and ranked bars

WIDTH, HEIGHT = 460, 210  # pixels
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 22, 40
TICK_COUNT = 4  # marks on an axis
# A list of bars: pixels of its width, so that letters stay legible on a phone of 390; of a row, its
# words and a number.
LIST, ROW, WORDS, NUMBER = 400, 30, 15, 62
TEXT_PIXELS = 11.5  # pixels of letters, in plots.css
LETTER_WIDTH = (
    0.6  # width of a letter over its height; wide for most fonts, so that words stay apart
)


def histogram(
    counts: Mapping[str, int], unit: str, *, bar: float = 1.0, last: int | None = None
) -> str:
    """Return a histogram; keys are whole numbers, each the lower end of a bar.

    unit: the axis' name. bar: what one step of the key is worth on the axis. last: the key that
    stands for all above.
    """
    return grouped_histogram({"": counts}, unit, bar=bar, last=last)


def grouped_histogram(
    series: Mapping[str, Mapping[str, int]], unit: str, *, bar: float = 1.0, last: int | None = None
) -> str:
    """Return histograms on one axis, each in fractions of its own sum where there are several."""
    values = {
        name: {int(key): count for key, count in counts.items()} for name, counts in series.items()
    }
    keys = sorted({key for counts in values.values() for key in counts})
    if not keys:
        return EMPTY_PLOT
    step = min((b - a for a, b in itertools.pairwise(keys)), default=1)
    bins = range(keys[0], keys[-1] + step, step)
    as_fractions = len(values) > 1
    heights = {
        name: [
            counts.get(index, 0) / (max(1, sum(counts.values())) if as_fractions else 1)
            for index in bins
        ]
        for name, counts in values.items()
    }
    top = max(max(row) for row in heights.values()) or 1.0
    wide = (WIDTH - LEFT - RIGHT) / len(bins)
    out = [_axis(bins, wide, unit, bar, last), _scale(top, as_fractions)]
    for number, row in enumerate(heights.values()):
        for index, value in enumerate(row):
            if value:
                high = (HEIGHT - TOP - BOTTOM) * value / top
                x, y = LEFT + wide * (index + number / len(heights)), HEIGHT - BOTTOM - high
                size = f'width="{max(0.6, wide / len(heights) - 0.8):.1f}" height="{high:.1f}"'
                out.append(
                    f'<rect class="{_series(number, len(heights))}" x="{x:.1f}" y="{y:.1f}" {size}/>'
                )
    for number, name in enumerate(heights):
        if name:
            x = LEFT + 10 + 150 * number
            square = f'<rect class="s{number}" x="{x}" y="2" width="10" height="10"/>'
            out.append(f'{square}<text x="{x + 14}" y="11">{escape(name)}</text>')
    label = f"{unit}: {', '.join(filter(None, heights)) or 'histogram'}"
    return svg_picture(WIDTH, HEIGHT, label, "".join(out))


def _series(number: int, groups: int) -> str:
    """Return the class that gives a bar its colour: grey is what was before, green what is."""
    return f"s{number}" if groups > 1 else "s1"


def _axis(bins: range, wide: float, unit: str, bar: float, last: int | None) -> str:
    floor = HEIGHT - BOTTOM
    out = [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>']
    every = max(1, -(-len(bins) // 8))
    for index in range(0, len(bins), every):
        more = "+" if last is not None and bins[index] >= last else ""
        text = f"{bins[index] * bar:g}{more}"
        out.append(
            f'<text x="{LEFT + wide * (index + 0.5):.1f}" y="{floor + 14}" class="m">{text}</text>'
        )
    out.append(
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" class="m">{escape(unit)}</text>'
    )
    return "".join(out)


def _scale(top: float, as_fractions: bool) -> str:
    tall = HEIGHT - TOP - BOTTOM
    step = _round_step(100 * top if as_fractions else max(1.0, top)) / (100 if as_fractions else 1)
    out = []
    for tick in range(int(top / step + 1e-9) + 1):
        value, y = step * tick, TOP + tall * (1 - step * tick / top)
        text = f"{100 * value:.3g} %" if as_fractions else f"{value:,.10g}"
        out.append(f'<text x="{LEFT - 5}" y="{y + 4:.1f}" class="e">{text}</text>')
    return "".join(out)


def _round_step(top: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that at most TICKS of it fit below top."""
    power = 10.0 ** math.floor(math.log10(top / TICK_COUNT))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * TICK_COUNT >= top)


def ranked_bars(rows: Sequence[tuple[str, Sequence[float]]], forms: Sequence[str]) -> str:
    """Return named rows with a bar for each series; forms: how the number of each is written, as
    "{:,.0f}"."""
    if not rows:
        return EMPTY_PLOT
    top = max(max(values) for _, values in rows) or 1.0
    out = []
    for index, (name, values) in enumerate(rows):
        out.append(
            _list_row(
                index, name, [form.format(value) for form, value in zip(forms, values, strict=True)]
            )
        )
        thick = (ROW - WORDS - 3) / len(values)
        for number, value in enumerate(values):
            size = f'width="{LIST * value / top:.1f}" height="{thick:.1f}"'
            y = ROW * index + WORDS + thick * number
            out.append(f'<rect class="{_series(number, len(values))}" x="0" y="{y:.1f}" {size}/>')
    return svg_picture(LIST, ROW * len(rows), "bars", "".join(out))


def _list_row(row: int, name: str, numbers: Sequence[str]) -> str:
    """Return the words of a row above its bars: the name at the left, cut where the numbers at the
    right begin."""
    y = ROW * row + WORDS - 4
    shown = shortened(name, int((LIST - NUMBER * len(numbers)) / (LETTER_WIDTH * TEXT_PIXELS)))
    columns = [
        f'<text x="{LIST - NUMBER * (len(numbers) - 1 - column)}" y="{y}" class="e">{number}</text>'
        for column, number in enumerate(numbers)
    ]
    return (
        f'<text x="0" y="{y}">{escape(shown)}<title>{escape(name)}</title></text>{"".join(columns)}'
    )


# ---------------------------------------------------------------- a cloud of words

CLOUD_WIDTH, CLOUD_HEIGHT = 580, 320  # pixels
SMALLEST, LARGEST = 11.0, 46.0  # pixels of letters
TURN, GROW = 0.35, 1.1  # of the spiral a step: radians, pixels

Box = tuple[float, float, float, float]  # left, top, right, bottom


def word_cloud(series: Mapping[str, Mapping[str, int]], words: int = 90) -> str:
    """Return the commonest words of one or more series as a cloud, a colour a series; areas follow
    the counts.

    A word that finds no room is left out, the rarest first.
    """
    rows = [
        (count, word, number)
        for number, counts in enumerate(series.values())
        for word, count in counts.items()
    ]
    rows = sorted((row for row in rows if row[0] > 0), key=lambda row: (-row[0], row[1], row[2]))[
        :words
    ]
    if not rows:
        return EMPTY_PLOT
    taken: list[Box] = []
    out = []
    for count, word, number in rows:
        size = max(SMALLEST, LARGEST * math.sqrt(count / rows[0][0]))
        box = _free_box(LETTER_WIDTH * size * len(word), size, taken)
        if box is not None:
            taken.append(box)
            index = f'x="{(box[0] + box[2]) / 2:.1f}" y="{box[1] + 0.8 * size:.1f}" font-size="{size:.1f}"'
            out.append(
                f'<text class="m w{number}" {index}>{escape(word)}<title>{count:,}</title></text>'
            )
    legend = "".join(
        f'<text x="{10 + 130 * number}" y="{CLOUD_HEIGHT + 14}" class="w{number}">{escape(name)}</text>'
        for number, name in enumerate(series)
        if name
    )
    return svg_picture(CLOUD_WIDTH, CLOUD_HEIGHT + 20, "keyword cloud", "".join(out) + legend)


def _free_box(wide: float, tall: float, taken: list[Box]) -> Box | None:
    """Return the first free box along a spiral from the middle; None where there is none in the
    picture."""
    for step in range(1200):
        angle, radius = TURN * step, GROW * TURN * step / 2
        x = CLOUD_WIDTH / 2 + radius * math.cos(angle) * CLOUD_WIDTH / CLOUD_HEIGHT
        y = CLOUD_HEIGHT / 2 + radius * math.sin(angle)
        box = (x - wide / 2, y - tall / 2, x + wide / 2, y + tall / 2)
        inside = box[0] >= 0 and box[1] >= 0 and box[2] <= CLOUD_WIDTH and box[3] <= CLOUD_HEIGHT
        if inside and all(
            b[2] <= box[0] or box[2] <= b[0] or b[3] <= box[1] or box[3] <= b[1] for b in taken
        ):
            return box
    return None


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
        rows.append(
            _waterfall_row(len(rows), level.name, f"{level.count:,}", 0.0, level.count / top, "s1")
        )
        left = level.count
        for reason, count in level.lost:
            left -= count
            rows.append(
                _waterfall_row(
                    len(rows), f"– {reason}", f"−{count:,}", left / top, count / top, "s2"
                )
            )
    return svg_picture(LIST, ROW * len(rows), "what each stage kept and dropped", "".join(rows))


def _waterfall_row(
    row: int, name: str, number: str, start: float, fraction: float, series: str
) -> str:
    x, wide = LIST * max(0.0, start), max(0.7, LIST * fraction)
    bar = f'x="{x:.1f}" y="{ROW * row + WORDS}" width="{wide:.1f}" height="{ROW - WORDS - 5}"'
    return f'{_list_row(row, name, [number])}<rect class="{series}" {bar}/>'


# ---------------------------------------------------------------- points in the plane

# pixels: width and height of the field, its margin, the legend below
SIDE, EDGE, FOOT = 460, 14, 34
SHADE_COUNT = 12  # colours between first and last; the style sheet names them o0 to o11


def scatter(
    points: npt.NDArray[np.floating], order: Sequence[float], names: Sequence[str], legend: str
) -> str:
    """Return N points (N, 2) with their names; order: of each in [0, 1], its colour; legend: what
    the order is."""
    if not len(points):
        return EMPTY_PLOT
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (SIDE - 2 * EDGE) / max(1e-9, float((high - low).max()))
    # centred on both axes
    placed = EDGE + (points - low) * scale + (SIDE - 2 * EDGE - (high - low) * scale) / 2
    shades = (min(SHADE_COUNT - 1, max(0, int(position * SHADE_COUNT))) for position in order)
    dots = "".join(
        f'<circle class="o{shade}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(name)}</title></circle>'
        for (x, y), shade, name in zip(placed, shades, names, strict=True)
    )
    y, wide = SIDE + 6, 12
    start = (SIDE - SHADE_COUNT * wide) / 2
    squares = "".join(
        f'<rect class="o{shade}" x="{start + shade * wide:.1f}" y="{y}" width="{wide}" height="10"/>'
        for shade in range(SHADE_COUNT)
    )
    first = f'<text x="{start - 6:.1f}" y="{y + 9}" class="e">first</text>'
    last = f'<text x="{SIDE - start + 6:.1f}" y="{y + 9}">last</text>'
    foot = (
        f'{squares}{first}{last}<text x="{SIDE / 2}" y="{y + 25}" class="m">{escape(legend)}</text>'
    )
    return svg_picture(SIDE, SIDE + FOOT, f"{len(points)} points by {legend}", dots + foot)
