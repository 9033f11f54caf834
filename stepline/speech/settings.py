"""Settings of speech recognition: which model listens, how hard it looks, and what is not
believed."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stepline.plugins import choice
from stepline.records import Probability
from stepline.settings import LogProbability, Positive, Settings, Threads


class AsrSettings(Settings):
    """How sound becomes a transcript.

    model None is the fast choice: Whisper tiny.en. Where it is unsure of the first speech and
    Whisper base is installed, base names the language. Then base hears the rest of a video that is
    not English.
    """

    recogniser: Annotated[str, choice("recognisers")] = "whisper"  # whisperx; or a plugin's
    model: str | None = None  # a known name (whisper-tiny.en, whisper-base) or a CTranslate2 folder
    language: str | None = None  # ISO 639-1 code; None = English for tiny.en, else detected
    # of captions that are not UTF-8: cp1251, gb18030, ... None = guessed, with a warning. Left out
    # of records where it is None, so that those of earlier versions are the same.
    encoding: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    # write what is said in other languages in English, by Whisper base or a model named here
    translate: bool = False
    # hypotheses kept. 5 costs a tenth more than 1, and errs less.
    beam: Annotated[int, Field(ge=1, le=20)] = 5
    # for a window whose first reading repeats itself
    retry_beam: Annotated[int, Field(ge=1, le=20)] = 1
    threads: Threads = 1  # CPU threads, vision works alongside
    # arithmetic of CTranslate2 on a CPU
    compute: Literal["int8", "int8_float32", "float32"] = "int8"
    # s of sound heard together. Whisper reads 30 s.
    window: Annotated[float, Field(ge=5.0, le=30.0)] = 29.5
    # s at a window's end where a silence is looked for
    cut_within: Annotated[float, Field(ge=1.0, le=25.0)] = 4.0
    voice: Probability = 0.5  # a 32 ms frame holds speech from here (Silero's own default)
    voice_gap: Positive = 2.0  # s of silence left out of what the recogniser hears
    voice_pad: Positive = 0.4  # s kept on either side of speech (faster-whisper's own default)
    longest_word: Positive = 1.5  # s; Whisper stretches a word over the silence behind it
    pause: Positive = 1.0  # s between two words that end a sentence
    # s after which a sentence without punctuation is cut at its longest pause
    longest: Positive = 12.0
    # mean log-probability under which Whisper base is asked for the language
    switch_below: LogProbability = -0.6
    switch_voice: Positive = 2.0  # s of speech a window needs for that question
    # P(language) that base needs to overrule tiny.en, and any model to name one
    switch_above: Probability = 0.6
    # a window whose mean log-probability is lower is not believed
    log_probability: LogProbability = -0.8
    word_probability: Probability = 0.45  # nor a sentence whose mean word probability is lower
    voiced: Probability = 0.2  # nor a sentence whose mean voice probability is lower
    # nor one whose log-probability plus voice is lower
    belief: Annotated[float, Field(ge=-1e3, le=1.0)] = -0.35
    # a stock phrase ("Thank you.") is believed from this voice probability
    clear_voice: Probability = 0.5
    clear_log_probability: LogProbability = -0.4  # and this log-probability on

    @model_validator(mode="after")
    def _translated_by_whisper(self) -> "AsrSettings":
        if self.translate and self.recogniser == "whisperx":
            problem = "WhisperX aligns only words of the language that is spoken"
            raise ValueError(f"translate: {problem}; recogniser=whisper")
        return self
