"""When a screen changes, where, and what a moving cursor does to it: nothing."""

import io

import av
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from stepline.grounding.screens.changes import (
    ChangeFinder,
    ScreenMeter,
    changed_cells,
    enclosing_box,
)
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
    assert change.cursor == pytest.approx((326, 306), abs=8)
    (change,) = changes([*moving, *moving[-1:] * 30, *opened])  # it rested for long
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


def form(*, ticked=False, typed="", letter="i"):
    """A form with a row of text in grey or black beside each box that may be ticked."""
    picture = Image.new("RGB", (640, 400), (250, 250, 248))
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(16)
    draw.rectangle((0, 0, 640, 48), (40, 90, 180))
    draw.text((16, 12), "Settings of the account", "white", font=font)
    for row in range(7):
        y = 70 + 45 * row
        draw.rectangle((30, y, 46, y + 16), outline=(150, 150, 150))
        text = f"Option {row}: send me a message when somebody wr{letter}tes"
        draw.text((60, y - 2), text, (20, 20, 20) if row % 2 else (150, 150, 150), font=font)
    if ticked:
        draw.line([(33, 123), (37, 128), (44, 118)], (20, 20, 20), width=2)
    draw.text((520, 205), typed, (150, 150, 150), font=font)
    return np.asarray(picture)


def encoded(images, crf, key_frame_every=5):
    """Return the frames as H.264 shows them, with a key frame after every few."""
    file = io.BytesIO()
    options = {"crf": str(crf), "preset": "veryfast", "g": str(key_frame_every)}
    with av.open(file, "w", format="mp4") as out:
        track = out.add_stream("libx264", rate=5, options=options)
        track.height, track.width, _ = images[0].shape
        track.pix_fmt = "yuv420p"
        for image in images:
            out.mux(track.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(track.encode(None))
    file.seek(0)
    with av.open(file) as video:
        return [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]


@pytest.mark.parametrize("crf", [28, 36])
def test_a_key_frame_of_a_still_screen_is_no_change(crf):
    frames = encoded([form()] * 20, crf)
    jumps = np.abs(np.diff(np.array(frames, np.int16), axis=0)).max((1, 2, 3))
    assert jumps.max() > 28  # the key frames do differ
    assert changes(frames) == []


@pytest.mark.parametrize(
    ("after", "area"),
    [({"ticked": True}, (24, 112, 48, 136)), ({"typed": "hi"}, (512, 200, 544, 232))],
)
def test_a_tick_and_a_word_in_grey_are_a_change_in_a_coarse_encoding(after, area):
    frames = encoded([form()] * 12 + [form(**after)] * 8, 36)
    (change,) = changes(frames)
    assert abs(change.start - 2.4) < 0.2
    left, top, right, bottom = enclosing_box(change.patches)
    assert area[0] <= left
    assert area[1] <= top
    assert right <= area[2]
    assert bottom <= area[3]


def test_one_other_letter_is_a_change():
    assert changed_cells(form(), form(letter="o")).any()


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
