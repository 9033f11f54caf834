"""Settings of speech recognition: model, decoding, and thresholds against hallucinations."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stepline.language_tags import Language
from stepline.plugins import choice
from stepline.settings import LogProbability, Positive, Settings, Threads


class AsrSettings(Settings):
    """Settings of speech recognition.

    Without a model, Whisper tiny.en is used. Where the words of the first speech are unlikely and
    Whisper base is installed, base detects the language. If that is not English, base transcribes
    the video.
    """

    recogniser: Annotated[str, choice("recognisers")] = "whisper"
    """whisper, whisperx, or the name of a plugin"""
    model: str | None = None
    """a known name (whisper-tiny.en, whisper-base) or a CTranslate2 folder"""
    language: Language | None = None
    """ISO 639-1 code; None = English for tiny.en, else detected"""
    encoding: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = Field(
        None,
        description="of captions that are not UTF-8: cp1251, gb18030, ... None = guessed, with a "
        "warning. Left out of records where it is None, so that those of earlier versions are the "
        "same.",
    )
    translate: bool = False
    """translate speech in other languages into English, by Whisper base or the named model"""
    beam: Annotated[int, Field(ge=1, le=20)] = 5
    """hypotheses of beam search. 5 costs a tenth more than 1, with fewer errors"""
    threads: Threads = 1
    """CPU threads of the recogniser"""
    compute: Literal["int8", "int8_float32", "float32"] = "int8"
    """number format of CTranslate2 on a CPU"""
    window: Annotated[float, Field(ge=5.0, le=30.0)] = 29.5
    """seconds of audio that are recognised together, Whisper takes up to 30"""
    pause: Positive = 1.0
    """seconds between two words that end a sentence"""
    longest: Positive = 12.0
    """seconds after which a sentence without punctuation is cut at its longest pause"""
    log_probability: LogProbability = -0.8
    """mean log-probability of tokens below which a window is dropped"""

    @model_validator(mode="after")
    def _check_translation(self) -> "AsrSettings":
        if self.translate and self.recogniser == "whisperx":
            raise ValueError(
                "translate: WhisperX aligns only words of the language that is spoken; "
                "recogniser=whisper"
            )
        return self
