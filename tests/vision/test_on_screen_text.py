"""Text in the picture: lines, when they stand, and what they say."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from stepline.media import Frame, KeyFrame
from stepline.networks.weights import find_weights, weights_fetched
from stepline.records import Span
from stepline.vision import VisionSettings, on_screen_text
from stepline.vision.on_screen_text import TextDetector, TextMeter, TextReader, line_boxes


def test_connected_letters_are_one_box_with_a_margin():
    letters = np.zeros((20, 40), bool)
    letters[4:8, 10:30] = True
    letters[4:6, 20] = False  # two strokes that meet below
    letters[15, 3:7] = True  # too small
    assert line_boxes(letters, 2.0, 2.0) == [((10 - 2) * 2, (4 - 2) * 2, (30 + 2) * 2, (8 + 2) * 2)]


def test_a_box_ends_at_the_border():
    letters = np.zeros((10, 30), bool)
    letters[:4, :20] = True
    assert line_boxes(letters, 1.0, 1.0) == [(0, 0, 22, 6)]


def test_lines_apart_in_a_wide_map_stay_apart():
    letters = np.zeros((10, 40), bool)
    letters[:4, 25:31] = True
    letters[1:5, 15:21] = True  # begins one row lower, as many columns before as the map is high
    assert line_boxes(letters, 1.0, 1.0) == [(23, 0, 33, 6), (13, 0, 23, 7)]


class Bar:
    """Finds one line, 40 x 20 px, where the picture is not black."""

    def __call__(self, picture):
        letters = np.zeros((60, 120), bool)
        letters[25:35, 40:80] = picture.any()
        return letters


class Reading:
    """Reads the grey level of a line; counts."""

    def __init__(self, sure=0.95):
        self.count, self.sure = 0, sure

    def __call__(self, line):
        self.count += 1
        return f"level {line.mean():.0f}", self.sure


def look(meter, *levels):
    """Show pictures of two seconds each."""
    for number, level in enumerate(levels):
        meter.add(np.full((60, 120, 3), level, np.uint8), Span(2.0 * number, 2.0 * number + 2))
    return [(line.text, line.span.start, line.span.end) for line in meter.finish()]


def test_a_line_that_stands_is_read_once():
    reading = Reading()
    assert look(TextMeter(Bar(), reading), 0, 90, 92, 0, 0, 200) == [
        ("level 90", 2.0, 6.0),
        ("level 200", 10.0, 12.0),
    ]
    assert reading.count == 2


def test_the_middle_frame_of_every_second_row_is_read_and_counts_until_the_next():
    seen = []

    def detect(picture):
        seen.append(int(picture.mean()))
        return Bar()(picture)

    meter = TextMeter(detect, Reading())
    for number in range(12):  # three frames a second
        image = np.full((60, 120, 3), 10 * number, np.uint8)
        meter.add_frame(Frame((number + 0.5) / 3, image))
    assert seen == [10, 70]
    assert [(line.text, line.span) for line in meter.finish()] == [
        ("level 10", Span(0.0, 2.0)),
        ("level 70", Span(2.0, 4.0)),
    ]


def test_the_text_of_a_key_frame_counts_for_its_second():
    meter = TextMeter(Bar(), Reading())
    for second, level in ((0.0, 90), (8.3, 200)):
        image = np.full((60, 120, 3), level, np.uint8)
        meter.add_key(KeyFrame(second, second + 8, image))
    assert [line.span for line in meter.finish()] == [Span(0.0, 1.0), Span(8.0, 9.0)]


def test_text_without_weights_is_left_out_with_a_warning(monkeypatch):
    monkeypatch.setattr(on_screen_text, "weights_fetched", lambda name: False)
    meter, (warning,) = on_screen_text.start_text_meter(VisionSettings())
    assert meter is None
    assert "`stepline weights get pp-ocr`" in warning
    assert on_screen_text.start_text_meter(VisionSettings(screen_text=False)) == (None, ())


def test_other_pixels_at_the_same_place_are_another_line():
    assert look(TextMeter(Bar(), Reading()), 90, 200) == [
        ("level 90", 0.0, 2.0),
        ("level 200", 2.0, 4.0),
    ]


def caption(behind, *, text="Stir the soup"):
    """Return 60 x 120 px of a background with white letters on it, where Bar finds them."""
    picture = Image.fromarray(np.broadcast_to(behind, (60, 120, 3)).astype(np.uint8).copy())
    ImageDraw.Draw(picture).text((36, 23), text, fill="white", stroke_width=1, stroke_fill="black")
    return np.asarray(picture)


def test_letters_that_stand_before_a_moving_background_are_read_once():
    grain = np.random.default_rng(0).integers(0, 60, (60, 120, 1))
    reading, levels = Reading(), (0, 60, 120, 180)
    meter = TextMeter(Bar(), reading)
    for number, level in enumerate(levels):
        meter.add(
            caption(level + np.roll(grain, 17 * number, axis=1)),
            Span(2.0 * number, 2.0 * number + 2),
        )
    (line,) = meter.finish()
    assert (line.span.start, line.span.end, reading.count) == (0.0, 8.0, 1)


def test_other_letters_before_the_same_background_are_another_line():
    meter = TextMeter(Bar(), Reading())
    for number, text in enumerate(("Stir the soup", "Chop a carrot", "Chop a carrot")):
        meter.add(caption(90, text=text), Span(2.0 * number, 2.0 * number + 2))
    assert [(line.span.start, line.span.end) for line in meter.finish()] == [(0.0, 2.0), (2.0, 6.0)]


def test_a_line_that_is_still_being_written_is_read_again():
    class Grows(Bar):
        width = 20

        def __call__(self, picture):
            letters = super().__call__(picture)
            letters[:, 40 + self.width :] = False
            self.width += 20
            return letters

    reading = Reading()
    meter = TextMeter(Grows(), reading)
    for number in range(2):
        meter.add(caption(30 * number), Span(2.0 * number, 2.0 * number + 2))
    assert reading.count == 2


def test_a_line_that_was_not_read_surely_is_read_again_where_its_pixels_change():
    reading = Reading(sure=0.5)
    meter = TextMeter(Bar(), reading)
    for number, level in enumerate((0, 90)):
        meter.add(caption(level), Span(2.0 * number, 2.0 * number + 2))
    assert reading.count == 2


def test_what_is_read_unsurely_is_not_a_line():
    assert look(TextMeter(Bar(), Reading(sure=0.5)), 90, 200) == []


def test_a_caption_is_found_and_read():
    if not weights_fetched("pp-ocr"):
        pytest.skip("needs `stepline weights get pp-ocr`")
    folder = find_weights("pp-ocr")
    picture = Image.new("RGB", (456, 256), (30, 60, 90))
    ImageDraw.Draw(picture).text(
        (60, 200), "Stir the soup slowly", fill="white", font=ImageFont.load_default(28)
    )
    meter = TextMeter(TextDetector(folder), TextReader(folder))
    meter.add(np.asarray(picture), Span(0.0, 2.0))
    (line,) = meter.finish()
    assert line.text == "Stir the soup slowly"
    assert 0.08 < line.height < 0.2
