"""Video files: what is in them, their sound and pictures as streams, single pictures, and clips cut out of them.

Everything streams: memory does not grow with the duration. Files are untrusted: settings.MediaSettings limits them, and
nothing but the named file itself is ever opened.
"""

from stepline.media.clips import cut, splice
from stepline.media.frames import Frame
from stepline.media.probe import MediaInfo, probe
from stepline.media.reader import Reader, frames, frames_at, sound, stills
from stepline.media.settings import MediaSettings
from stepline.media.sounds import SAMPLE_RATE, Sound

__all__ = [
    "SAMPLE_RATE",
    "Frame",
    "MediaInfo",
    "MediaSettings",
    "Reader",
    "Sound",
    "cut",
    "frames",
    "frames_at",
    "probe",
    "sound",
    "splice",
    "stills",
]
