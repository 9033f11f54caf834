"""Whisper through faster-whisper: windows of sound to timed words, in batches on a GPU."""

import logging
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from stepline.errors import ModelError, SettingsError, first_line
from stepline.media.audio import SAMPLE_RATE, Samples
from stepline.networks.device import current_device
from stepline.networks.weights import find_weights
from stepline.processes import reuse_large_blocks, trim_memory
from stepline.records import Span, Word
from stepline.speech.audio_windows import (
    VOICE_PROBABILITY,
    AudioWindow,
    WindowTranscript,
    find_speech,
)
from stepline.speech.recogniser import MIN_LANGUAGE_PROBABILITY
from stepline.speech.settings import AsrSettings
from stepline.text.narration.words import looks_english

log = logging.getLogger(__name__)

Runs: TypeAlias = Sequence[tuple[int, int]]  # of speech, (first, last + 1) samples of a window
Models: TypeAlias = dict[str, Any]  # faster-whisper's, by the name of their weights
MIN_WORD_SECONDS = 0.02  # one step of Whisper's clock
BATCH_WINDOWS = 16  # that a GPU reads together; for speed alone
# of sound that Whisper reads. In a batch each window has a slot of its own, and silence before it.
TIME_TOKEN_SLOT_SECONDS = 30
FRAMES_PER_SECOND = 100  # Whisper's, in which a segment says where its slot begins
SILENCE_SECONDS = 2.0  # longer silence is left out of what the recogniser hears
SPEECH_PAD_SECONDS = 0.4  # kept on either side of speech; faster-whisper's own default
MAX_WORD_SECONDS = 1.5  # Whisper stretches a word over the silence behind it
MIN_LANGUAGE_WORDS = 8  # of a reading by which its language is known
MAX_REASON_CHARS = 200  # of the hub's error


class Whisper:
    """A loaded Whisper model. `read` transcribes a window."""

    def __init__(self, name: str, settings: AsrSettings, models: Models | None = None) -> None:
        """models: loaded models of the same settings, shared with the caller. None: not shared."""
        self.name = name
        self._weights = name
        self._settings = settings
        device = current_device().recognition(settings.compute)
        self._on_cpu = device["device"] == "cpu"
        self.at_once = 1 if self._on_cpu else BATCH_WINDOWS
        models = {} if models is None else models
        if name not in models:
            models[name] = _load_model(find_model(name), device, settings.threads)
            trim_memory()  # the weights as they were read, twice what is kept of them
        self._model = models[name]
        self.language = _check_language(name, settings.language, self._model)
        if settings.translate and not self._model.model.is_multilingual:
            cure = "asr.model=whisper-base knows 99 languages"
            raise SettingsError(f"asr.translate: {name} knows only English; {cure}")

    def read(self, window: AudioWindow, *, beam: int | None = None) -> WindowTranscript:
        """Return the transcript of the window. A window without speech skips the model."""
        settings = self._settings
        runs = _speech(window)
        if not runs:
            return WindowTranscript(())
        with self._gpu_errors():
            sound = _join_runs(window, runs)
            stream, info = self._model.transcribe(sound, **self._options(beam))
            segments = list(islice(stream, 1))
        words: list[Any] = []
        for segment in segments:
            words += segment.words or ()

        # the language, where it is sure
        language: str | None = str(info.language)
        if not settings.translate:
            if self.language is None and _is_english(words):
                language = "en"
            elif info.language_probability < MIN_LANGUAGE_PROBABILITY:
                language = None  # a guess does not name the language, nor bind the windows to come
        self.language = self.language or language
        return self._transcript(window, runs, segments, language)

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return the transcript of each window, `at_once` windows per batch. The language must
        be known.

        Batching changes only the last bits of a window's numbers, which may move a word by one time
        token.
        """
        voiced_windows: list[tuple[int, Runs]] = []
        for index, window in enumerate(windows):
            runs = _speech(window)
            if runs:
                voiced_windows.append((index, runs))
        transcripts = [WindowTranscript(()) for _ in windows]
        for first in range(0, len(voiced_windows), self.at_once):
            batch = voiced_windows[first : first + self.at_once]
            batch_windows = [(windows[index], runs) for index, runs in batch]
            batch_transcripts = self._read_batch(batch_windows)
            for (index, _), transcript in zip(batch, batch_transcripts, strict=True):
                transcripts[index] = transcript
        return transcripts

    def _read_batch(self, voiced: Sequence[tuple[AudioWindow, Runs]]) -> list[WindowTranscript]:
        from faster_whisper import BatchedInferencePipeline

        # faster-whisper shortens a long first word by how far behind the last one it is, be that
        # another window's. With a slot of silence before each it is as far for all, whichever are
        # next to each other.
        clip_starts = [(2 * number + 1) * TIME_TOKEN_SLOT_SECONDS for number in range(len(voiced))]
        sound = np.zeros(2 * len(voiced) * TIME_TOKEN_SLOT_SECONDS * SAMPLE_RATE, np.float32)
        clips = []
        for clip_start, (window, runs) in zip(clip_starts, voiced, strict=True):
            joined = _join_runs(window, runs)
            first = clip_start * SAMPLE_RATE
            sound[first : first + len(joined)] = joined
            end = clip_start + (len(joined) + 0.5) / SAMPLE_RATE
            clips.append({"start": clip_start, "end": end})

        # all clips together
        pipeline = BatchedInferencePipeline(self._model)
        options = self._options(None)
        options["clip_timestamps"] = clips
        options["batch_size"] = self.at_once
        with self._gpu_errors():
            segments, info = pipeline.transcribe(sound, **options)
            window_segment = [segment for segment in segments if segment.text.strip()]

        # the segments of each window
        language = str(info.language)
        transcripts = []
        for clip_start, (window, runs) in zip(clip_starts, voiced, strict=True):
            window_segments = [
                segment
                for segment in window_segment
                if segment.seek == clip_start * FRAMES_PER_SECOND
            ]
            transcripts.append(
                self._transcript(window, runs, window_segments, language, clip_start)
            )
        return transcripts

    def _options(self, beam: int | None) -> dict[str, Any]:
        task = "translate" if self._settings.translate else "transcribe"
        return {
            "language": self.language,
            "task": task,
            "beam_size": beam or self._settings.beam,
            "temperature": 0.0,  # sampling would give other words on the next run
            "condition_on_previous_text": False,  # a loop in one window must not reach the next
            # One reading per window. The word times come from cross-attention.
            "without_timestamps": True,
            "word_timestamps": True,
            "no_speech_threshold": None,  # hallucinations.py doubts, and says why
            "vad_filter": False,  # done above, once
        }

    def _transcript(
        self,
        window: AudioWindow,
        runs: Runs,
        segments: Sequence[Any],
        language: str | None,
        clip_start: int = 0,
    ) -> WindowTranscript:
        """Return the transcript of a window. begin: second of the batch's sound where its speech
        starts.
        """
        if not segments:
            return WindowTranscript((), language)
        timestamps = _SpeechTimestamps(window.start, runs, MAX_WORD_SECONDS)
        words = []
        for segment in segments:
            for word in segment.words or ():
                words.append(_word(word, timestamps, clip_start))
        if self._settings.translate and language != "en":
            self.name = f"{self._weights}, translated from {language}"
            language = "en"
        log_probability = float(segments[0].avg_logprob)
        return WindowTranscript(tuple(words), language, log_probability)

    @contextmanager
    def _gpu_errors(self) -> Iterator[None]:
        """Raise ModelError where a GPU is out of memory or lacks the libraries of CTranslate2."""
        try:
            yield
        except RuntimeError as error:
            if self._on_cpu:
                raise
            problem = f"recognition failed on the GPU ({_one_line(error)})"
            raise ModelError(f"{self.name}: {problem}; use --device cpu") from error

    def detect(self, window: AudioWindow) -> tuple[str, float]:
        """Return the most likely language of the window's speech and its probability.

        The window must hold speech.
        """
        sound = _join_runs(window, _speech(window))
        language, probability, _ = self._model.detect_language(sound)
        return str(language), float(probability)


class _SpeechTimestamps:
    """Maps seconds of the concatenated speech to seconds of the video."""

    def __init__(self, start: float, runs: Runs, longest: float) -> None:
        self._start = start
        self._longest = longest
        self._runs = [(first / SAMPLE_RATE, last / SAMPLE_RATE) for first, last in runs]
        lengths = [last - first for first, last in self._runs]
        self._starts = list(accumulate(lengths[:-1], initial=0))  # in the joined speech

    def span(self, start: float, end: float) -> Span:
        """Return the span in the video. A word over a cut belongs to the side that holds its
        middle.
        """
        end = min(end, start + self._longest)
        middle = (start + end) / 2
        run = max(0, bisect_right(self._starts, middle) - 1)
        first, last = self._runs[run]
        shift = first - self._starts[run]
        start = min(max(start + shift, first), last - MIN_WORD_SECONDS)
        end = min(max(end + shift, start + MIN_WORD_SECONDS), last)
        return Span(round(self._start + start, 3), round(self._start + end, 3))


def _speech(window: AudioWindow) -> list[tuple[int, int]]:
    runs = find_speech(
        window.voice, threshold=VOICE_PROBABILITY, gap=SILENCE_SECONDS, pad=SPEECH_PAD_SECONDS
    )
    sample_count = len(window.samples)
    return [(first, min(last, sample_count)) for first, last in runs]


def _join_runs(window: AudioWindow, runs: Runs) -> Samples:
    return np.concatenate([window.samples[first:last] for first, last in runs])


def _is_english(words: Iterable[Any]) -> bool:
    """Return whether the words are English, whatever language Whisper detected.

    An accent misleads the detection (Balinese English was named Malay), the words do not.
    """
    text = "".join(word.word for word in words)
    plain_words = re.findall(r"[^\W\d_]+(?:'\w+)?", text.lower())
    return len(plain_words) >= MIN_LANGUAGE_WORDS and looks_english(plain_words)


def _load_model(path: Path, device: dict[str, Any], threads: int) -> Any:
    """Return faster-whisper's model of a folder. device: a name of CTranslate2."""
    from faster_whisper import WhisperModel

    reuse_large_blocks()  # the encoder's scores take 54 MB in each of its layers
    try:
        return WhisperModel(str(path), **device, cpu_threads=threads)
    except (RuntimeError, ValueError, OSError) as error:
        problem = f"not a CTranslate2 Whisper model ({_one_line(error)}); give such a folder"
        if (path / "model.bin").is_file() and device["device"] != "cpu":
            problem = f"cannot be loaded on a GPU ({_one_line(error)}); use --device cpu"
        raise ModelError(f"{path}: {problem}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def find_model(name: str) -> Path:
    """Return the folder of a Whisper model: a known name, the user's own folder, or from the model
    hub.

    Raises ModelError where it cannot be fetched.
    """
    from faster_whisper import available_models, download_model

    if name not in available_models() or Path(name).is_dir():
        return find_weights(name)
    try:
        return Path(download_model(name, local_files_only=True))
    except FileNotFoundError:  # the hub's error for what it has not fetched yet is one
        log.warning(
            "Whisper %s is fetched from the model hub, huggingface.co, as --model %s asks for",
            name,
            name,
        )
    try:
        return Path(download_model(name))
    except Exception as error:
        reason = first_line(error)[:MAX_REASON_CHARS]
        cure = "try again when the hub can be reached, or give a CTranslate2 folder"
        problem = f"cannot be fetched from the model hub ({reason})"
        raise ModelError(f"{name}: {problem}; {cure}") from error


def _check_language(name: str, language: str | None, model: Any) -> str | None:
    """Return the language to recognise, None = detect it.

    Raises SettingsError for a language that the model does not know.
    """
    if language is None:
        return None if model.model.is_multilingual else "en"
    languages = list(model.supported_languages)
    if language not in languages:
        known_languages = "languages by their two-letter code (en, zh, es)"
        if languages == ["en"]:
            known_languages = "only English (en)"
        cure = "asr.model=whisper-base knows 99 of them"
        raise SettingsError(f"asr.language {language!r}: {name} knows {known_languages}; {cure}")
    return language


def _word(word: Any, timestamps: _SpeechTimestamps, clip_start: int) -> Word:
    start = float(word.start) - clip_start
    end = float(word.end) - clip_start
    probability = float(word.probability)
    confidence = min(1.0, max(0.0, probability)) if math.isfinite(probability) else 0.0
    return Word(text=str(word.word), span=timestamps.span(start, end), confidence=confidence)
