"""Screen recordings: whether a video is one, what is on the screen when, and what is clicked.

ScreenMeter         counts, frame by frame, what stands still and what is flat
read_screen         the lines of text of the screen, and each change of it
place_clicks        which change of the screen a step makes, and which label is clicked
"""

from stepline.grounding.screens.changes import ScreenMeter
from stepline.grounding.screens.clicks import Click, place_clicks
from stepline.grounding.screens.reading import ScreenReading, read_screen

__all__ = ["Click", "ScreenMeter", "ScreenReading", "place_clicks", "read_screen"]
