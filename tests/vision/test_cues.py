"""What small detectors see, by rows."""

import numpy as np
from numpy.testing import assert_array_equal

from stepline.media import Frame
from stepline.records import Span
from stepline.vision import CueMeter, PictureCues, ScreenText, VisionSettings
from stepline.vision import cues as cue_files
from stepline.vision.cues import start_cues


class Eyes:
    """Sees the grey level of a picture."""

    def presenter(self, picture):
        return float(picture.mean()) / 100


def frames(*levels):
    """Three frames a second."""
    return [
        Frame((n + 0.5) / 3, np.full((4, 4, 3), level, np.uint8)) for n, level in enumerate(levels)
    ]


def test_the_frame_nearest_the_middle_of_a_row_stands_for_it():
    meter = CueMeter(1.0, faces=Eyes())
    for frame in (*frames(1, 2, 3), Frame(4.5, np.full((4, 4, 3), 9, np.uint8))):
        meter.add(frame)
    seen = meter.finish()
    assert_array_equal(
        seen.presenter_probability, np.array([0.02, 0.02, np.nan, np.nan, 0.09], np.float32)
    )
    assert seen.text_area.shape == (0,)


def test_faces_are_looked_for_in_every_second_row_and_count_until_the_next():
    meter = CueMeter(1.0, faces=Eyes())
    for frame in frames(1, 2, 3, 4, 5, 6, 7, 8, 9):
        meter.add(frame)
    assert_array_equal(
        meter.finish().presenter_probability, np.array([0.02, 0.02, 0.08], np.float32)
    )


def test_text_is_looked_for_in_every_second_row_and_counts_until_the_next():
    asked = []

    def detect(picture):
        asked.append(int(picture.mean()))
        return np.full((8, 8), picture.mean() > 3)

    meter = CueMeter(1.0, text=(detect, lambda line: ("Stir", 0.9)))
    for frame in frames(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12):
        meter.add(frame)
    assert asked == [2, 8]
    assert_array_equal(meter.finish().text_area, np.array([0, 0, 1, 1], np.float32))


def test_cues_of_a_stretch_count_from_its_start():
    rows = np.arange(6, dtype=np.float32)
    lines = (ScreenText("a b", Span(0, 2), 0.1), ScreenText("c d", Span(1, 4), 0.1))
    part = PictureCues(1.0, rows, rows[:0], lines).between(2.0, 4.0)
    assert_array_equal(part.presenter_probability, [2, 3])
    assert part.text_area.shape == (0,)
    assert [(line.text, line.span) for line in part.lines] == [("c d", Span(0, 2))]


def test_detectors_without_weights_are_left_out_with_a_warning(monkeypatch):
    monkeypatch.setattr(cue_files, "weights_fetched", lambda name: False)
    meter, warnings = start_cues(VisionSettings())
    assert [warning.partition(" ")[0] for warning in warnings] == ["faces", "text"]
    assert "`stepline weights get pp-ocr`" in warnings[1]
    meter.add(frames(1, 2)[1])
    assert meter.finish().presenter_probability.shape == (0,)


def test_a_cue_that_is_switched_off_asks_for_no_weights(monkeypatch):
    monkeypatch.setattr(cue_files, "weights_fetched", lambda name: False)
    assert start_cues(VisionSettings(faces=False, screen_text=False))[1] == ()
