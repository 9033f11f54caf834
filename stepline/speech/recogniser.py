"""Chooses the recogniser: the fast English model, or a multilingual one where its words are unsure."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from stepline.media.audio import SAMPLE_RATE
from stepline.networks.weights import weights_fetched
from stepline.plugins import load_plugin
from stepline.speech.audio_windows import (
    FRAME_SAMPLES,
    VOICE_PROBABILITY,
    AudioWindow,
    WindowTranscript,
)
from stepline.speech.hallucinations import find_repetitions
from stepline.speech.settings import AsrSettings

if TYPE_CHECKING:
    from stepline.speech.whisper import Models

log = logging.getLogger(__name__)

ENGLISH_MODEL = "whisper-tiny.en"
MULTILINGUAL_MODEL = "whisper-base"
RETRY_BEAM = 1  # hypotheses kept for a window whose first reading repeats itself
# Mean log-probability below which Whisper base is asked for the language, and the seconds of speech
# that a window needs for that question.
SWITCH_LOG_PROBABILITY = -0.6
SWITCH_SPEECH_SECONDS = 2.0
# P(language) that base needs to overrule tiny.en, and any model to name a language.
MIN_LANGUAGE_PROBABILITY = 0.6
LANGUAGE_ADVICE = (
    "perhaps it is not English: `stepline weights get whisper-base` adds Whisper base, "
    "which knows 99 languages"
)


class Recogniser(Protocol):
    """Protocol of every recogniser: name, language (None = not known yet) and `read`.

    at_once: number of windows per call of `read_many`.
    """

    name: str
    language: str | None
    at_once: int

    def read(self, window: AudioWindow, *, beam: int | None = None) -> WindowTranscript:
        """Return the transcript of the window."""

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return the transcript of each window. The language must be known."""


class RecogniserSwitch:
    """Recognises windows with the model of the settings, and switches to a multilingual one if
    needed.

    The switch happens at the first speech, where the English model is unsure of its words.
    """

    def __init__(self, settings: AsrSettings, models: "Models | None" = None) -> None:
        """models: loaded Whisper models by name, shared with the caller. None: loaded for this one
        only.
        """
        self._settings = settings
        self._models = models
        self._recogniser: Recogniser | None = None
        # free to choose another model by what is heard first
        self._undecided = (
            settings.model is None
            and settings.language is None
            and settings.recogniser == "whisper"
            and not settings.translate
            and weights_fetched(MULTILINGUAL_MODEL)
        )

    @property
    def name(self) -> str | None:
        """Return the name of the model in use, or None before the first speech."""
        return None if self._recogniser is None else self._recogniser.name

    @property
    def advice(self) -> str:
        """Return advice on the model for unsure words, "" for a multilingual model."""
        if not self.english_only or weights_fetched(MULTILINGUAL_MODEL):
            return ""
        return LANGUAGE_ADVICE

    @property
    def english_only(self) -> bool:
        """Return whether the model in use knows only English."""
        return self.name == ENGLISH_MODEL

    @property
    def at_once(self) -> int:
        """Return the number of windows per batch: 1 until the language is known."""
        if self._recogniser is None or self._recogniser.language is None or self._undecided:
            return 1
        return self._recogniser.at_once

    def read(self, window: AudioWindow) -> WindowTranscript:
        """Return the transcript of one window, as `read_many` does."""
        return self.read_many([window])[0]

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return the transcript of each window. One with a loop is recognised again with another
        beam.
        """
        self._recogniser = self._recogniser or _load_recogniser(self._settings, self._models)
        if len(windows) > 1:
            transcripts = self._recogniser.read_many(windows)
        else:
            transcripts = [self._recogniser.read(windows[0])]
            if self._undecided and transcripts[0].log_probability is not None:
                transcripts = [self._decide(windows[0], transcripts[0])]
        return self._without_repetitions(windows, transcripts)

    def _without_repetitions(
        self, windows: Sequence[AudioWindow], transcripts: list[WindowTranscript]
    ) -> list[WindowTranscript]:
        assert self._recogniser is not None
        # The same beam would give the same words again.
        if self._settings.beam == RETRY_BEAM:
            return transcripts
        for index, transcript in enumerate(transcripts):
            if not _has_loop(transcript):
                continue
            second = self._recogniser.read(windows[index], beam=RETRY_BEAM)
            if not _has_loop(second):
                transcripts[index] = second
        return transcripts

    def _decide(self, window: AudioWindow, transcript: WindowTranscript) -> WindowTranscript:
        """Detect the language of a window with unsure words by the multilingual model.

        Recognise the window again with that model if the language is not English.
        """
        from stepline.speech.whisper import Whisper

        settings = self._settings
        voiced = float((window.voice >= VOICE_PROBABILITY).sum()) * FRAME_SAMPLES / SAMPLE_RATE
        if voiced < SWITCH_SPEECH_SECONDS:
            return transcript  # too little for a language to be known
        self._undecided = False
        log_probability = transcript.log_probability or 0.0
        if log_probability >= SWITCH_LOG_PROBABILITY and not _has_loop(transcript):
            return transcript
        other = Whisper(MULTILINGUAL_MODEL, settings, self._models)
        language, probability = other.detect(window)
        log.info("first speech: language %s with probability %.2f", language, probability)
        if language == "en" or probability < MIN_LANGUAGE_PROBABILITY:
            return transcript
        other.language = language
        self._recogniser = other
        return other.read(window)


def _load_recogniser(settings: AsrSettings, models: "Models | None") -> Recogniser:
    if settings.recogniser == "whisperx":
        from stepline.speech.whisperx import WhisperX

        return WhisperX(settings)
    if settings.recogniser != "whisper":
        recogniser: Recogniser = load_plugin("recognisers", settings.recogniser)(settings)
        return recogniser
    from stepline.speech.whisper import Whisper

    is_english = settings.language in (None, "en") and not settings.translate
    fast_model = ENGLISH_MODEL if is_english else MULTILINGUAL_MODEL
    return Whisper(fast_model if settings.model is None else settings.model, settings, models)


def _has_loop(transcript: WindowTranscript) -> bool:
    return bool(find_repetitions([word.text for word in transcript.words]))
