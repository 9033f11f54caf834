"""Chooses the recogniser: the fast English model, or a multilingual one for unlikely words."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from stepline.networks.weights import weights_fetched
from stepline.plugins import load_plugin
from stepline.speech.audio_windows import AudioWindow, WindowTranscript, speech_seconds
from stepline.speech.hallucinations import find_repetitions
from stepline.speech.settings import AsrSettings

if TYPE_CHECKING:
    from stepline.speech.whisper import Models

log = logging.getLogger(__name__)

ENGLISH_MODEL = "whisper-tiny.en"
MULTILINGUAL_MODEL = "whisper-base"
RETRY_BEAM = 1  # hypotheses for a window whose first transcript repeats itself
# Mean log-probability below which Whisper base detects the language, and the seconds of speech
# that it needs.
SWITCH_LOG_PROBABILITY = -0.6
SWITCH_SPEECH_SECONDS = 2.0
# P(language) that base needs to overrule tiny.en, and any model to name a language.
MIN_LANGUAGE_PROBABILITY = 0.6
LANGUAGE_ADVICE = (
    "perhaps it is not English: `stepline weights get whisper-base` adds Whisper base, "
    "which knows 99 languages"
)


class Recogniser(Protocol):
    """Interface of all speech recognisers.

    Attributes:
        name: name of the model, which the record stores.
        language: ISO 639-1 code, None until the language is known.
        at_once: number of windows in one call of `read_many`.
    """

    name: str
    language: str | None
    at_once: int

    def read(self, window: AudioWindow, *, beam: int | None = None) -> WindowTranscript:
        """Return the transcript of a window.

        beam: number of hypotheses in beam search, None for the number in the settings.
        """

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return the transcript of each window. `language` must be known."""


class RecogniserSwitch:
    """Recognises windows with an English model, or with a multilingual model if needed.

    It changes to the multilingual model if the words of the first speech are unlikely and their
    language is not English.
    """

    def __init__(self, settings: AsrSettings, models: "Models | None" = None) -> None:
        """Start without a loaded model.

        Args:
            settings: settings of speech recognition.
            models: name -> loaded Whisper model, shared with the caller. None: not shared.
        """
        self._settings = settings
        self._models = models
        self._recogniser: Recogniser | None = None
        self._may_switch = (
            settings.model is None
            and settings.language is None
            and settings.recogniser == "whisper"
            and not settings.translate
            and weights_fetched(MULTILINGUAL_MODEL)
        )

    @property
    def name(self) -> str | None:
        """Name of the model in use, None before the first window."""
        return None if self._recogniser is None else self._recogniser.name

    @property
    def advice(self) -> str:
        """Advice to the user if words are unlikely.

        It is "" if the model is multilingual, or the multilingual model is installed.
        """
        can_switch = not self.english_only or weights_fetched(MULTILINGUAL_MODEL)
        return "" if can_switch else LANGUAGE_ADVICE

    @property
    def english_only(self) -> bool:
        """Whether the model in use knows only English."""
        return self.name == ENGLISH_MODEL

    @property
    def at_once(self) -> int:
        """Number of windows per batch: 1 until the language is known."""
        if self._recogniser is None or self._recogniser.language is None or self._may_switch:
            return 1
        return self._recogniser.at_once

    def read(self, window: AudioWindow) -> WindowTranscript:
        """Return the transcript of one window, as `read_many` does."""
        return self.read_many([window])[0]

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return the transcript of each window.

        A window whose words repeat in a loop is recognised again with another beam width.
        """
        self._recogniser = self._recogniser or _load_recogniser(self._settings, self._models)
        if len(windows) > 1:
            transcripts = self._recogniser.read_many(windows)
        else:
            transcripts = [self._recogniser.read(windows[0])]
            if self._may_switch and transcripts[0].log_probability is not None:
                transcripts = [self._switch_if_foreign(windows[0], transcripts[0])]
        # The same beam would give the same words again.
        if self._settings.beam != RETRY_BEAM:
            for index, transcript in enumerate(transcripts):
                if _has_loop(transcript):
                    second = self._recogniser.read(windows[index], beam=RETRY_BEAM)
                    transcripts[index] = transcript if _has_loop(second) else second
        return transcripts

    def _switch_if_foreign(
        self, window: AudioWindow, transcript: WindowTranscript
    ) -> WindowTranscript:
        """Return the transcript of a window, by the model that suits its language.

        If the words of the English model are unlikely, the multilingual model detects the language.

        Args:
            window: the window.
            transcript: its transcript by the English model.
        """
        from stepline.speech.whisper import Whisper

        if speech_seconds(window.voice_probabilities) < SWITCH_SPEECH_SECONDS:
            return transcript
        self._may_switch = False
        log_probability = transcript.log_probability or 0.0
        if log_probability >= SWITCH_LOG_PROBABILITY and not _has_loop(transcript):
            return transcript
        other = Whisper(MULTILINGUAL_MODEL, self._settings, self._models)
        language, probability = other.detect_language(window)
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
