"""Video files: facts, frames and audio as streams, single frames, and clips.

Everything streams: memory does not grow with the duration. Files are untrusted:
settings.MediaSettings limits them, and nothing but the named file itself is ever opened.
"""

from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.media.clips import copy_with_chapters, cut_clip, join_clips
from stepline.media.frames import Frame, encode_jpeg
from stepline.media.probe import MediaInfo, probe
from stepline.media.reader import (
    KeyFrame,
    KeyFrameReader,
    MediaReader,
    SparseKeyFramesError,
    read_frames_at,
    read_sound,
)
from stepline.media.settings import MediaSettings

__all__ = [
    "SAMPLE_RATE",
    "AudioBlock",
    "Frame",
    "KeyFrame",
    "KeyFrameReader",
    "MediaInfo",
    "MediaReader",
    "MediaSettings",
    "SparseKeyFramesError",
    "copy_with_chapters",
    "cut_clip",
    "encode_jpeg",
    "join_clips",
    "probe",
    "read_frames_at",
    "read_sound",
]
