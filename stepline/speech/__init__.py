"""Speech to text: `transcribe` recognises speech, `read_captions` reads an existing transcript."""

from stepline.speech.captions import read_captions
from stepline.speech.settings import AsrSettings
from stepline.speech.transcribe import TranscriptionResult, transcribe

__all__ = ["AsrSettings", "TranscriptionResult", "read_captions", "transcribe"]
