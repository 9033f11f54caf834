"""Captions that a screen recording shows one after another."""

import itertools

from stepline.grounding.screens import ScreenReading
from stepline.grounding.screens.captions import typed_captions, without_captions
from stepline.grounding.screens.reading import ScreenEvent, ScreenLine
from stepline.records import Span

MENU = ScreenLine("File", (10, 10, 60, 30))
UPPER = ScreenLine("Open the menu first", (200, 400, 440, 420))
LOWER = ScreenLine("at the top left", (200, 425, 440, 445))
SECOND = ScreenLine("Then choose export there", (200, 410, 440, 430))
THIRD = ScreenLine("Now save your file", (200, 410, 440, 430))


def change(start, before, after):
    appeared = tuple(line for line in after if line not in before)
    vanished = tuple(line for line in before if line not in after)
    patches = tuple(line.box for line in (*appeared, *vanished))
    return ScreenEvent(
        start, start + 0.2, patches, None, before, after, appeared, vanished, scene=False
    )


def test_lines_that_appear_together_are_one_caption_and_leave_no_change():
    screens = [(MENU,), (MENU, LOWER, UPPER), (MENU, SECOND), (MENU, THIRD), (THIRD,)]
    events = [change(2.0 * n, *pair) for n, pair in enumerate(itertools.pairwise(screens), 1)]
    reading = ScreenReading(640, 480, tuple(events))
    assert [(item.text, item.span) for item in typed_captions(reading, 20.0)] == [
        ("Open the menu first at the top left", Span(2.0, 4.0)),
        ("Then choose export there", Span(4.0, 6.0)),
        ("Now save your file", Span(6.0, 20.0)),
    ]
    (menu_closes,) = without_captions(reading, 20.0).events
    assert (menu_closes.start, menu_closes.vanished, menu_closes.before) == (8.0, (MENU,), (MENU,))
