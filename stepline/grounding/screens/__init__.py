"""Screen recordings: their detection, text recognition on the screen, and what is clicked.

ScreenMeter         measures the still and the flat part of frames
read_screen         recognises the lines of text on the screen at each change
place_clicks        finds the change of the screen that a step makes, and the label that is clicked
"""

from stepline.grounding.screens.changes import ScreenMeter
from stepline.grounding.screens.clicks import Click, place_clicks
from stepline.grounding.screens.reading import ScreenReading, read_screen

__all__ = ["Click", "ScreenMeter", "ScreenReading", "place_clicks", "read_screen"]
