"""What is left after each stage, as bars that grow shorter: one row a stage, one row a reason below it."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from stepline.plots.canvas import NOTHING, canvas, short

NAME, NUMBER, ROOM = 244, 66, 270  # pixels for a row's name, its number, its bar
LINE = 19  # pixels a row
LONGEST = 36  # characters of a name


@dataclass(frozen=True)
class Level:
    """What a stage began with, and what it took away: (reason, count)."""

    name: str
    count: int
    lost: tuple[tuple[str, int], ...] = ()


def fall(levels: Sequence[Level]) -> str:
    """Return the levels as bars, what each reason took away beneath its level, where the bar ends.

    A level's losses begin at its right end and go left, so that the next level starts where they stop.
    """
    top = max((level.count for level in levels), default=0)
    if not top:
        return NOTHING
    rows: list[str] = []
    for level in levels:
        rows.append(_row(len(rows), level.name, f"{level.count:,}", 0.0, level.count / top, "s1"))
        left = level.count
        for reason, count in level.lost:
            left -= count
            rows.append(_row(len(rows), f"– {reason}", f"−{count:,}", left / top, count / top, "s2"))
    return canvas(NAME + ROOM + NUMBER, LINE * len(rows) + 4, "what each stage kept and dropped", "".join(rows))


def _row(place: int, name: str, number: str, start: float, share: float, series: str) -> str:
    y = LINE * place
    full = f"<title>{escape(name)}</title>"
    x, wide = NAME + NUMBER + ROOM * max(0.0, start), max(0.7, ROOM * share)
    bar = f'x="{x:.1f}" y="{y + 3}" width="{wide:.1f}" height="{LINE - 6}"'
    named = f"{escape(short(name, LONGEST))}{full}"
    return (
        f'<text x="{NAME - 8}" y="{y + 14}" class="e">{named}</text><rect class="{series}" {bar}/>'
        f'<text x="{NAME + NUMBER - 10}" y="{y + 14}" class="e">{number}</text>'
    )
