"""When a screen changes, where, and what a moving cursor does to it: nothing."""

import numpy as np

from stepline.grounding.screens.changes import ChangeFinder, ScreenMeter, enclosing_box
from stepline.media import Frame

RATE = 5.0
SIZE = (400, 640)  # height, width


def screen(*boxes, cursor=None):
    """A white screen with grey boxes (left, top, right, bottom), and a black cursor of 12 px."""
    image = np.full((*SIZE, 3), 250, np.uint8)
    for left, top, right, bottom in boxes:
        image[top:bottom, left:right] = 120
    if cursor is not None:
        x, y = cursor
        image[y : y + 12, x : x + 12] = 0
    return image


def changes(images):
    """Return the changes of frames that come RATE a second, the first at 0.1 s."""
    finder = ChangeFinder(frame_rate=RATE)
    seen = []
    for number, image in enumerate(images):
        seen += finder.add(Frame((number + 0.5) / RATE, image))
    return [*seen, *finder.finish()]


def test_a_still_screen_does_not_change():
    assert changes([screen((100, 100, 200, 150))] * 20) == []


def test_a_box_that_opens_is_one_change_at_its_second():
    images = [screen()] * 10 + [screen((96, 104, 200, 152))] * 10
    (change,) = changes(images)
    assert abs(change.start - 2.0) < 0.2
    assert enclosing_box(change.patches) == (96, 104, 200, 152)
    assert change.cursor is None
    assert change.before[120, 120, 0] == 250
    assert change.after[120, 120, 0] == 120


def test_a_cursor_that_moves_changes_nothing_and_is_followed_to_the_click():
    path = [(20 + 60 * step, 300) for step in range(6)]
    moving = [screen(cursor=place) for place in path]
    opened = [screen((96, 104, 296, 200), cursor=path[-1])] * 5
    (change,) = changes([*moving[:1] * 5, *moving, *moving[-1:] * 3, *opened])
    assert enclosing_box(change.patches) == (96, 104, 296, 200)
    x, y = change.cursor
    assert abs(x - 326) <= 8
    assert abs(y - 306) <= 8


def test_a_cursor_that_rested_for_long_says_nothing():
    path = [(20 + 60 * step, 300) for step in range(6)]
    moving = [screen(cursor=place) for place in path]
    opened = [screen((96, 104, 296, 200), cursor=path[-1])] * 5
    (change,) = changes([*moving, *moving[-1:] * 30, *opened])
    assert change.cursor is None


def test_two_clicks_in_a_row_are_two_changes_though_the_cursor_goes_on():
    first, second = (96, 104, 296, 200), (400, 104, 600, 200)
    images = [screen()] * 5
    images += [screen(first, cursor=(20 + 40 * step, 300)) for step in range(5)]
    images += [screen(first, second, cursor=(220, 300))] * 5
    starts = [change.start for change in changes(images)]
    assert len(starts) == 2
    assert abs(starts[0] - 1.0) < 0.2
    assert abs(starts[1] - 2.0) < 0.2


def test_a_film_is_not_a_screen_and_a_still_drawing_may_be_one():
    rng = np.random.default_rng(0)
    film, drawing = ScreenMeter(), ScreenMeter()
    for number in range(12):
        noise = rng.integers(0, 255, (64, 96, 3), dtype=np.uint8)
        film.add_frame(Frame(number / 3, noise))
        drawing.add_frame(Frame(number / 3, np.full((64, 96, 3), 200, np.uint8)))
    assert not film.finish().is_candidate
    assert drawing.finish().is_candidate


def test_a_single_picture_is_not_a_screen():
    meter = ScreenMeter()
    meter.add_frame(Frame(0.0, screen()))
    assert not meter.finish().is_candidate
