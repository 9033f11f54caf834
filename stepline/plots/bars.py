"""Bars as SVG text: histograms, bars in pairs, and lists of bars. Nothing is drawn that is not counted."""

import itertools
import math
from collections.abc import Mapping, Sequence
from html import escape

from stepline.plots.canvas import NOTHING, canvas, short

WIDTH, HEIGHT = 460, 210  # pixels
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 22, 40
TICKS = 4  # marks on an axis
LINE = 17  # pixels a row of a list of bars
NAME, NUMBER = 250, 60  # pixels for a row's name and number


def histogram(counts: Mapping[str, int], unit: str, *, bar: float = 1.0, last: int | None = None) -> str:
    """Return a histogram; keys are whole numbers, each the lower end of a bar.

    unit: the axis' name. bar: what one step of the key is worth on the axis. last: the key that stands for all above.
    """
    return grouped({"": counts}, unit, bar=bar, last=last)


def grouped(series: Mapping[str, Mapping[str, int]], unit: str, *, bar: float = 1.0, last: int | None = None) -> str:
    """Return histograms on one axis, each in shares of its own sum where there are several."""
    values = {name: {int(key): count for key, count in counts.items()} for name, counts in series.items()}
    keys = sorted({key for counts in values.values() for key in counts})
    if not keys:
        return NOTHING
    step = min((b - a for a, b in itertools.pairwise(keys)), default=1)
    places = range(keys[0], keys[-1] + step, step)
    shares = len(values) > 1
    heights = {
        name: [counts.get(place, 0) / (max(1, sum(counts.values())) if shares else 1) for place in places]
        for name, counts in values.items()
    }
    top = max(max(row) for row in heights.values()) or 1.0
    wide = (WIDTH - LEFT - RIGHT) / len(places)
    marks = [_bars(row, number, len(heights), wide, top) for number, row in enumerate(heights.values())]
    legend = "".join(_legend(number, name) for number, name in enumerate(heights) if name)
    axis = _axis(places, wide, unit, bar, last) + _scale(top, shares)
    label = f"{unit}: {', '.join(filter(None, heights)) or 'histogram'}"
    return canvas(WIDTH, HEIGHT, label, f"{axis}{''.join(marks)}{legend}")


def _bars(row: Sequence[float], number: int, groups: int, wide: float, top: float) -> str:
    tall = HEIGHT - TOP - BOTTOM
    out = []
    for place, value in enumerate(row):
        if value:
            high = tall * value / top
            x = LEFT + wide * (place + number / groups)
            size = f'width="{max(0.6, wide / groups - 0.8):.1f}" height="{high:.1f}"'
            out.append(f'<rect class="{_series(number, groups)}" x="{x:.1f}" y="{TOP + tall - high:.1f}" {size}/>')
    return "".join(out)


def _series(number: int, groups: int) -> str:
    """Return the class that gives a bar its colour: grey is what was before, green what is."""
    return f"s{number}" if groups > 1 else "s1"


def _axis(places: range, wide: float, unit: str, bar: float, last: int | None) -> str:
    floor = HEIGHT - BOTTOM
    out = [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>']
    every = max(1, -(-len(places) // 8))
    for place in range(0, len(places), every):
        more = "+" if last is not None and places[place] >= last else ""
        text = f"{places[place] * bar:g}{more}"
        out.append(f'<text x="{LEFT + wide * (place + 0.5):.1f}" y="{floor + 14}" class="m">{text}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" class="m">{escape(unit)}</text>')
    return "".join(out)


def _scale(top: float, shares: bool) -> str:
    tall = HEIGHT - TOP - BOTTOM
    step = _round_step(100 * top if shares else max(1.0, top)) / (100 if shares else 1)
    out = []
    for tick in range(int(top / step + 1e-9) + 1):
        value, y = step * tick, TOP + tall * (1 - step * tick / top)
        text = f"{100 * value:.3g} %" if shares else f"{value:,.10g}"
        out.append(f'<text x="{LEFT - 5}" y="{y + 4:.1f}" class="e">{text}</text>')
    return "".join(out)


def _round_step(top: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that at most TICKS of it fit below top."""
    power = 10.0 ** math.floor(math.log10(top / TICKS))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * TICKS >= top)


def _legend(number: int, name: str) -> str:
    x = LEFT + 10 + 150 * number
    square = f'<rect class="s{number}" x="{x}" y="2" width="10" height="10"/>'
    return f'{square}<text x="{x + 14}" y="11">{escape(name)}</text>'


def ranked(rows: Sequence[tuple[str, Sequence[float]]], forms: Sequence[str]) -> str:
    """Return named rows with a bar for each series; forms: how the number of each is written, as "{:,.0f}"."""
    if not rows:
        return NOTHING
    top = max(max(values) for _, values in rows) or 1.0
    room = WIDTH + 120 - NAME - NUMBER * len(forms)
    out = []
    for place, (name, values) in enumerate(rows):
        y = LINE * place
        out.append(f'<text x="{NAME - 6}" y="{y + 12}" class="e">{escape(short(name))}</text>')
        for number, value in enumerate(values):
            thick = (LINE - 4) / len(values)
            size = f'width="{room * value / top:.1f}" height="{thick:.1f}"'
            mark = _series(number, len(values))
            out.append(f'<rect class="{mark}" x="{NAME}" y="{y + 2 + thick * number:.1f}" {size}/>')
            x = NAME + room + 8 + NUMBER * number
            out.append(f'<text x="{x}" y="{y + 12}">{forms[number].format(value)}</text>')
    return canvas(WIDTH + 120, LINE * len(rows) + 4, "bars", "".join(out))
