"""Which pictures are looked at as a screen: those of a screen's shape alone."""

from pathlib import Path

import pytest

from stepline.grounding.screens.changes import ScreenStatistics
from stepline.media import MediaInfo
from stepline.pipeline import screen as screen_reading
from stepline.pipeline.request import Request, StepsSettings

STILL_AND_FLAT = ScreenStatistics(still=1.0, flat=1.0)


@pytest.mark.parametrize(
    ("width", "height", "looks"),
    [(1920, 1080, 1), (1080, 2400, 1), (3840, 1080, 1), (16, 4000, 0), (4000, 16, 0)],
)
def test_a_picture_that_no_screen_has_is_not_looked_at(monkeypatch, width, height, looks):
    asked = []

    def has_no_text(path, seconds):
        asked.append(path)
        return False

    monkeypatch.setattr(screen_reading, "has_screen_text", has_no_text)
    monkeypatch.setattr(screen_reading, "weights_fetched", lambda name: True)
    film = Path("film.mp4")
    info = MediaInfo(film, 8.0, width, height, 0, 25.0, True, False, ())
    request = Request(film, "film")
    reading = screen_reading.read_screen_recording(request, info, StepsSettings(), STILL_AND_FLAT)
    assert reading is None
    assert len(asked) == looks
