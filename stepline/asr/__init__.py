"""Speech to text: `transcribe` listens, `read_captions` takes a transcript that exists already."""

from stepline.asr.captions import read_captions
from stepline.asr.heard import Heard
from stepline.asr.listen import transcribe
from stepline.asr.settings import AsrSettings

__all__ = ["AsrSettings", "Heard", "read_captions", "transcribe"]
