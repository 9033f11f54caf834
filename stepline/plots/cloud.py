"""A cloud of words: the larger a word, the more often it was counted."""

import math
from collections.abc import Mapping
from html import escape

from stepline.plots.canvas import NOTHING, canvas

WIDTH, HEIGHT = 580, 320  # pixels
SMALLEST, LARGEST = 11.0, 46.0  # pixels of letters
LETTER = 0.6  # width of a letter over its height; wide for most fonts, so that words stay apart
TURN, GROW = 0.35, 1.1  # of the spiral a step: radians, pixels

Box = tuple[float, float, float, float]  # left, top, right, bottom


def cloud(series: Mapping[str, Mapping[str, int]], words: int = 90) -> str:
    """Return the commonest words of one or more series as a cloud, a colour a series; areas follow the counts.

    A word that finds no room is left out, the rarest first.
    """
    rows = [(count, word, number) for number, counts in enumerate(series.values()) for word, count in counts.items()]
    rows = sorted((row for row in rows if row[0] > 0), key=lambda row: (-row[0], row[1], row[2]))[:words]
    if not rows:
        return NOTHING
    taken: list[Box] = []
    out = []
    for count, word, number in rows:
        size = max(SMALLEST, LARGEST * math.sqrt(count / rows[0][0]))
        box = _room(LETTER * size * len(word), size, taken)
        if box is not None:
            taken.append(box)
            place = f'x="{(box[0] + box[2]) / 2:.1f}" y="{box[1] + 0.8 * size:.1f}" font-size="{size:.1f}"'
            out.append(f'<text class="m w{number}" {place}>{escape(word)}<title>{count:,}</title></text>')
    legend = "".join(
        f'<text x="{10 + 130 * number}" y="{HEIGHT + 14}" class="w{number}">{escape(name)}</text>'
        for number, name in enumerate(series)
        if name
    )
    return canvas(WIDTH, HEIGHT + 20, "keyword cloud", "".join(out) + legend)


def _room(wide: float, tall: float, taken: list[Box]) -> Box | None:
    """Return the first free box along a spiral from the middle; None where there is none in the picture."""
    for step in range(1200):
        angle, radius = TURN * step, GROW * TURN * step / 2
        x = WIDTH / 2 + radius * math.cos(angle) * WIDTH / HEIGHT
        y = HEIGHT / 2 + radius * math.sin(angle)
        box = (x - wide / 2, y - tall / 2, x + wide / 2, y + tall / 2)
        inside = box[0] >= 0 and box[1] >= 0 and box[2] <= WIDTH and box[3] <= HEIGHT
        if inside and not any(_meet(box, other) for other in taken):
            return box
    return None


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
