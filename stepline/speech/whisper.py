"""Whisper through faster-whisper: windows of audio to timed words, in batches on a GPU."""

import logging
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import ModelError, SettingsError, first_line
from stepline.media.audio import SAMPLE_RATE, Samples
from stepline.networks.device import current_device
from stepline.networks.weights import find_weights
from stepline.processes import loading_lock, reuse_large_blocks, trim_memory
from stepline.records import Span, Word
from stepline.speech.audio_windows import (
    VOICE_PROBABILITY,
    AudioWindow,
    Run,
    WindowTranscript,
    find_speech,
)
from stepline.speech.recogniser import MIN_LANGUAGE_PROBABILITY
from stepline.speech.settings import AsrSettings
from stepline.text.narration.words import looks_english

log = logging.getLogger(__name__)

Models = dict[str, Any]  # faster-whisper's models, by the name of their weights
MIN_WORD_SECONDS = 0.02  # one step of Whisper's clock
BATCH_WINDOWS = 16  # that a GPU hears together; for speed only
# of audio that Whisper hears. In a batch each window has a slot of its own, and silence before it.
SLOT_SECONDS = 30
SEEK_FRAMES_PER_SECOND = 100  # unit of the position where a segment's slot begins
MAX_SILENCE_SECONDS = 2.0  # longer silence is left out of what the recogniser hears
SPEECH_PAD_SECONDS = 0.4  # kept on either side of speech; faster-whisper's own default
MAX_WORD_SECONDS = 1.5  # Whisper stretches a word over the silence behind it
MIN_LANGUAGE_WORDS = 8  # of a transcript by which its language is known
MAX_REASON_CHARS = 200  # of the hub's error


class Whisper:
    """A loaded Whisper model. `read` transcribes a window."""

    def __init__(self, name: str, settings: AsrSettings, models: Models | None = None) -> None:
        """Load a model.

        Args:
            name: name of the weights, or path of a folder.
            settings: settings of speech recognition.
            models: name -> loaded model of the same settings, shared with the caller. None: not
                shared.
        """
        self.name = name
        self._weights = name
        self._settings = settings
        device = current_device().ctranslate2_options(settings.compute)
        self._on_cpu = device["device"] == "cpu"
        _check_language(settings.language)
        self.at_once = 1 if self._on_cpu else BATCH_WINDOWS
        models = {} if models is None else models
        if name not in models:
            models[name] = _load_model(find_model(name), device, settings.threads)
            trim_memory()  # The file's bytes take twice the memory of the weights.
        self._model = models[name]
        self.language = _language_to_recognise(name, settings.language, self._model)
        if settings.translate and not self._model.model.is_multilingual:
            raise SettingsError(
                f"asr.translate: {name} knows only English; asr.model=whisper-base knows 99 "
                "languages"
            )

    def read(self, window: AudioWindow, *, beam: int | None = None) -> WindowTranscript:
        """Return the transcript of a window. The model does not run on a window without speech.

        beam: number of hypotheses in beam search, None for the number in the settings.
        """
        runs = _speech_runs(window)
        if not runs:
            return WindowTranscript(())
        with self._gpu_errors():
            speech = _join_runs(window, runs)
            stream, info = self._model.transcribe(speech, **self._transcription_options(beam))
            segments = list(islice(stream, 1))
        language: str | None = str(info.language)
        if not self._settings.translate:
            words = [word for segment in segments for word in segment.words or ()]
            if self.language is None and _is_english(words):
                language = "en"
            elif info.language_probability < MIN_LANGUAGE_PROBABILITY:
                language = None  # A guess names no language, and does not bind later windows.
        self.language = self.language or language
        return self._transcript(window, runs, segments, language)

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return the transcript of each window, `at_once` windows per batch.

        The language must be known. Compared with single windows, a batch changes only the last bits
        of the network's output, which may move a word by one time token.
        """
        runs_by_window = [(number, _speech_runs(window)) for number, window in enumerate(windows)]
        voiced = [(number, runs) for number, runs in runs_by_window if runs]
        transcripts = [WindowTranscript(()) for _ in windows]
        for first in range(0, len(voiced), self.at_once):
            batch = voiced[first : first + self.at_once]
            read = self._read_batch([(windows[number], runs) for number, runs in batch])
            for (number, _), transcript in zip(batch, read, strict=True):
                transcripts[number] = transcript
        return transcripts

    def _read_batch(
        self, batch: Sequence[tuple[AudioWindow, Sequence[Run]]]
    ) -> list[WindowTranscript]:
        """Return the transcript of each window in a batch.

        batch: (window, its runs of speech in samples).
        """
        from faster_whisper import BatchedInferencePipeline

        # faster-whisper shortens a long first word by its distance from the last one, even of
        # another window. A slot of silence before each window makes that distance the same for all.
        slot_starts = [(2 * number + 1) * SLOT_SECONDS for number in range(len(batch))]
        speech = np.zeros(2 * len(batch) * SLOT_SECONDS * SAMPLE_RATE, np.float32)
        clips = []
        for slot_start, (window, runs) in zip(slot_starts, batch, strict=True):
            joined = _join_runs(window, runs)
            first = slot_start * SAMPLE_RATE
            speech[first : first + len(joined)] = joined
            end = slot_start + (len(joined) + 0.5) / SAMPLE_RATE
            clips.append({"start": slot_start, "end": end})

        options = self._transcription_options(None) | {
            "clip_timestamps": clips,
            "batch_size": self.at_once,
        }
        with self._gpu_errors():
            stream, info = BatchedInferencePipeline(self._model).transcribe(speech, **options)
            segments = [segment for segment in stream if segment.text.strip()]
        language = str(info.language)
        transcripts = []
        for slot_start, (window, runs) in zip(slot_starts, batch, strict=True):
            position = slot_start * SEEK_FRAMES_PER_SECOND
            in_slot = [segment for segment in segments if segment.seek == position]
            transcripts.append(self._transcript(window, runs, in_slot, language, slot_start))
        return transcripts

    def _transcription_options(self, beam: int | None) -> dict[str, Any]:
        return {
            "language": self.language,
            "task": "translate" if self._settings.translate else "transcribe",
            "beam_size": beam or self._settings.beam,
            "temperature": 0.0,  # sampling would give other words on the next run
            "condition_on_previous_text": False,  # a loop in one window must not reach the next
            # One pass per window. The word times come from cross-attention.
            "without_timestamps": True,
            "word_timestamps": True,
            "no_speech_threshold": None,  # hallucinations.py decides, with a reason
            "vad_filter": False,  # done above, once
        }

    def _transcript(
        self,
        window: AudioWindow,
        runs: Sequence[Run],
        segments: Sequence[Any],
        language: str | None,
        slot_start: int = 0,
    ) -> WindowTranscript:
        """Return the transcript of a window, from faster-whisper's segments.

        Args:
            window: the window of audio.
            runs: runs of speech in the window, in samples.
            segments: segments of faster-whisper.
            language: language of the speech, None if unknown.
            slot_start: second, in the audio of the batch, at which the speech of this window
                starts.
        """
        if not segments:
            return WindowTranscript((), language)
        timestamps = _SpeechTimestamps(window.start, runs)
        words = []
        for segment in segments:
            for word in segment.words or ():
                span = timestamps.span(float(word.start) - slot_start, float(word.end) - slot_start)
                probability = float(word.probability)
                if not math.isfinite(probability):
                    probability = 0.0
                confidence = min(1.0, max(0.0, probability))
                words.append(Word(text=str(word.word), span=span, confidence=confidence))
        if self._settings.translate and language != "en":
            self.name = f"{self._weights}, translated from {language}"
            language = "en"
        return WindowTranscript(tuple(words), language, float(segments[0].avg_logprob))

    @contextmanager
    def _gpu_errors(self) -> Iterator[None]:
        """Raise ModelError if the GPU is out of memory or libraries of CTranslate2 are missing."""
        try:
            yield
        except RuntimeError as error:
            if self._on_cpu:
                raise
            raise ModelError(
                f"{self.name}: recognition failed on the GPU ({_one_line(error)}); use --device cpu"
            ) from error

    def detect_language(self, window: AudioWindow) -> tuple[str, float]:
        """Return (ISO 639-1 code, probability) of the most likely language of a window's speech.

        The window must contain speech.
        """
        speech = _join_runs(window, _speech_runs(window))
        language, probability, _ = self._model.detect_language(speech)
        return str(language), float(probability)


class _SpeechTimestamps:
    """Converts seconds of the concatenated runs of speech to seconds of the video."""

    def __init__(self, window_start: float, runs: Sequence[Run]) -> None:
        self._window_start = window_start
        self._runs = [(first / SAMPLE_RATE, last / SAMPLE_RATE) for first, last in runs]
        lengths = [last - first for first, last in self._runs]
        self._run_starts = list(accumulate(lengths[:-1], initial=0))  # in the joined speech

    def span(self, start: float, end: float) -> Span:
        """Return the span in the video of a span of the concatenated speech.

        A word across the border of two runs belongs to the run that contains its middle.

        Args:
            start: second of the concatenated speech.
            end: second of the concatenated speech.
        """
        end = min(end, start + MAX_WORD_SECONDS)
        run = max(0, bisect_right(self._run_starts, (start + end) / 2) - 1)
        first, last = self._runs[run]
        shift = first - self._run_starts[run]
        start = min(max(start + shift, first), last - MIN_WORD_SECONDS)
        end = min(max(end + shift, start + MIN_WORD_SECONDS), last)
        return Span(round(self._window_start + start, 3), round(self._window_start + end, 3))


def _speech_runs(window: AudioWindow) -> list[Run]:
    """Return the runs of speech in a window as (first sample, last sample + 1)."""
    runs = find_speech(
        window.voice_probabilities,
        threshold=VOICE_PROBABILITY,
        gap=MAX_SILENCE_SECONDS,
        pad=SPEECH_PAD_SECONDS,
    )
    return [(first, min(last, len(window.samples))) for first, last in runs]


def _join_runs(window: AudioWindow, runs: Sequence[Run]) -> Samples:
    return np.concatenate([window.samples[first:last] for first, last in runs])


def _is_english(words: Iterable[Any]) -> bool:
    """Return whether the words are English, whatever language Whisper detected.

    An accent can mislead the detection (Balinese English was detected as Malay), but not the words.
    """
    plain_words = re.findall(r"[^\W\d_]+(?:'\w+)?", "".join(word.word for word in words).lower())
    return len(plain_words) >= MIN_LANGUAGE_WORDS and looks_english(plain_words)


def _load_model(path: Path, device: dict[str, Any], threads: int) -> Any:
    """Return faster-whisper's model from a folder.

    Args:
        path: the folder.
        device: CTranslate2's arguments that select the device.
        threads: number of CPU threads.
    """
    from faster_whisper import WhisperModel

    reuse_large_blocks()  # the encoder's scores take 54 MB in each of its layers
    try:
        with loading_lock:
            return WhisperModel(str(path), **device, cpu_threads=threads)
    except (RuntimeError, ValueError, OSError) as error:
        problem = f"not a CTranslate2 Whisper model ({_one_line(error)}); give such a folder"
        if (path / "model.bin").is_file() and device["device"] != "cpu":
            problem = f"cannot be loaded on a GPU ({_one_line(error)}); use --device cpu"
        raise ModelError(f"{path}: {problem}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def find_model(name: str) -> Path:
    """Return the folder of a Whisper model.

    name: a known name, the path of the user's own folder, or the id of a model on the Hugging Face
    hub, which is downloaded.

    Raises ModelError if it cannot be downloaded.
    """
    from faster_whisper import available_models, download_model

    if name not in available_models() or Path(name).is_dir():
        return find_weights(name)
    try:
        return Path(download_model(name, local_files_only=True))
    except FileNotFoundError:  # It is not downloaded yet.
        log.warning(
            "Whisper %s is fetched from the model hub, huggingface.co, as --model %s asks for",
            name,
            name,
        )
    try:
        return Path(download_model(name))
    except Exception as error:
        reason = first_line(error)[:MAX_REASON_CHARS]
        raise ModelError(
            f"{name}: cannot be fetched from the model hub ({reason}); try again when the hub can "
            "be reached, or give a CTranslate2 folder"
        ) from error


def whisper_languages() -> tuple[str, ...]:
    """Return the language codes that multilingual Whisper models know."""
    from faster_whisper.tokenizer import _LANGUAGE_CODES

    return tuple(_LANGUAGE_CODES)


def _check_language(language: str | None) -> None:
    """Raise SettingsError for a language that no Whisper model knows, before one is fetched."""
    if language is not None and language not in whisper_languages():
        raise SettingsError(
            f"asr.language {language!r}: Whisper knows 99 languages, by their two-letter codes "
            "(en, zh, es); give --captions, or --texts with your own lines"
        )


def _language_to_recognise(name: str, language: str | None, model: Any) -> str | None:
    """Return the ISO 639-1 code of the language to recognise. None to detect it.

    Args:
        name: name of the model.
        language: language in the settings, None if not set.
        model: faster-whisper's model.

    Raises SettingsError for a language that the model does not know.
    """
    if language is None:
        return None if model.model.is_multilingual else "en"
    languages = list(model.supported_languages)
    if language not in languages:
        is_english = languages == ["en"]
        known = (
            "only English (en)" if is_english else "languages by their two-letter code (en, zh, es)"
        )
        raise SettingsError(
            f"asr.language {language!r}: {name} knows {known}; asr.model=whisper-base knows 99 of "
            "them"
        )
    return language
