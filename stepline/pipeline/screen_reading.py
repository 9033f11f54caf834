"""Whether a video is a screen recording, and what is on its screen."""

import logging
from typing import TYPE_CHECKING

from stepline.grounding.screens.reading import (
    TEXT_LOOKS,
    ScreenReading,
    has_screen_text,
    read_screen,
)
from stepline.networks.weights import weights_fetched
from stepline.pipeline.request import Request, StepsSettings
from stepline.vision.cues import TEXT_WEIGHTS

if TYPE_CHECKING:
    from stepline.grounding.screens.changes import ScreenLikeness
    from stepline.media import MediaInfo

log = logging.getLogger(__name__)

# Times as long as wide, beyond which a picture is not a screen. A look at one of 16 x 4,000 pixels
# took 3.6 GB, since looks have one width.
MAX_ASPECT_RATIO = 4.0


def read_if_screen(
    request: Request, info: "MediaInfo", settings: StepsSettings, likeness: "ScreenLikeness"
) -> ScreenReading | None:
    """Return what is on the screen of a screen recording, None of any other video.

    likeness: of its pictures. Without the weights that read text nothing is a screen recording.
    """
    vision = settings.vision
    # "auto" needs the cheap signs first, then text in sampled pictures.
    if vision.screen == "off" or not weights_fetched(TEXT_WEIGHTS):
        return None
    if vision.screen == "auto":
        if not (vision.screen_text and likeness.is_candidate and _has_screen_shape(info)):
            return None
        # The middles of equal pieces of the video.
        seconds = [
            request.start + (look + 0.5) * info.duration / TEXT_LOOKS for look in range(TEXT_LOOKS)
        ]
        if not has_screen_text(request.path, seconds):
            return None
    reading = read_screen(request.path, info, settings.media, request.part)
    log.info("a screen recording; it changes %d times", len(reading.events))
    return reading


def _has_screen_shape(info: "MediaInfo") -> bool:
    """Return whether a picture is no longer and no wider than screens are."""
    shorter = min(info.width, info.height)
    return max(info.width, info.height) <= MAX_ASPECT_RATIO * shorter
