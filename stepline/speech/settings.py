"""Settings of speech recognition: model, decoding, and thresholds against hallucinations."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stepline.plugins import choice
from stepline.records import Probability
from stepline.settings import LogProbability, Positive, Settings, Threads


class AsrSettings(Settings):
    """Settings of speech recognition.

    model None is the fast choice: Whisper tiny.en. Where it is unsure of the first speech and
    Whisper base is installed, base detects the language. If that is not English, base transcribes
    the rest of the video.
    """

    recogniser: Annotated[str, choice("recognisers")] = Field(
        "whisper", description="whisperx; or a plugin's"
    )
    model: str | None = Field(
        None, description="a known name (whisper-tiny.en, whisper-base) or a CTranslate2 folder"
    )
    language: str | None = Field(
        None, description="ISO 639-1 code; None = English for tiny.en, else detected"
    )
    encoding: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = Field(
        None,
        description="of captions that are not UTF-8: cp1251, gb18030, ... None = guessed, with a "
        "warning. Left out of records where it is None, so that those of earlier versions are the "
        "same.",
    )
    translate: bool = Field(
        False,
        description="write what is said in other languages in English, by Whisper base or a model "
        "named here",
    )
    beam: Annotated[int, Field(ge=1, le=20)] = Field(
        5, description="hypotheses kept. 5 costs a tenth more than 1, and errs less."
    )
    retry_beam: Annotated[int, Field(ge=1, le=20)] = Field(
        1, description="for a window whose first reading repeats itself"
    )
    threads: Threads = Field(1, description="CPU threads, vision works alongside")
    compute: Literal["int8", "int8_float32", "float32"] = Field(
        "int8", description="arithmetic of CTranslate2 on a CPU"
    )
    window: Annotated[float, Field(ge=5.0, le=30.0)] = Field(
        29.5, description="s of sound heard together. Whisper reads 30 s."
    )
    cut_within: Annotated[float, Field(ge=1.0, le=25.0)] = Field(
        4.0, description="s at a window's end where a silence is looked for"
    )
    voice: Probability = Field(
        0.5, description="a 32 ms frame holds speech from here (Silero's own default)"
    )
    voice_gap: Positive = Field(
        2.0, description="s of silence left out of what the recogniser hears"
    )
    voice_pad: Positive = Field(
        0.4, description="s kept on either side of speech (faster-whisper's own default)"
    )
    longest_word: Positive = Field(
        1.5, description="s; Whisper stretches a word over the silence behind it"
    )
    pause: Positive = Field(1.0, description="s between two words that end a sentence")
    longest: Positive = Field(
        12.0, description="s after which a sentence without punctuation is cut at its longest pause"
    )
    switch_below: LogProbability = Field(
        -0.6, description="mean log-probability under which Whisper base is asked for the language"
    )
    switch_voice: Positive = Field(2.0, description="s of speech a window needs for that question")
    switch_above: Probability = Field(
        0.6,
        description="P(language) that base needs to overrule tiny.en, and any model to name one",
    )
    log_probability: LogProbability = Field(
        -0.8, description="a window whose mean log-probability is lower is not believed"
    )
    word_probability: Probability = Field(
        0.45, description="nor a sentence whose mean word probability is lower"
    )
    voiced: Probability = Field(
        0.2, description="nor a sentence whose mean voice probability is lower"
    )
    belief: Annotated[float, Field(ge=-1e3, le=1.0)] = Field(
        -0.35, description="nor one whose log-probability plus voice is lower"
    )
    clear_voice: Probability = Field(
        0.5, description='a stock phrase ("Thank you.") is believed from this voice probability'
    )
    clear_log_probability: LogProbability = Field(-0.4, description="and this log-probability on")

    @model_validator(mode="after")
    def _translated_by_whisper(self) -> "AsrSettings":
        if self.translate and self.recogniser == "whisperx":
            problem = "WhisperX aligns only words of the language that is spoken"
            raise ValueError(f"translate: {problem}; recogniser=whisper")
        return self
