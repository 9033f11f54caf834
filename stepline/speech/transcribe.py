"""Speech recognition of a stream of sound: windows, words, sentences, removal of hallucinations.

The sound of stepline/cli/demo/demo.mp4 gives 16 sentences, and none is left out. The first ones of
whisper-tiny.en:

    (0.6, 3.3)   "Hi everyone, welcome back to my kitchen."
    (4.0, 7.9)   "Today I'm making my favorite banana pancakes and they are so easy."
    (9.1, 11.1)  "First of all, slice the banana,"
"""

import logging
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.records import Rejected, Sentence, Transcript, Word
from stepline.speech.audio_windows import AudioWindow, AudioWindower, WindowTranscript
from stepline.speech.hallucinations import (
    REPETITION_REASON,
    SpeechEvidence,
    hallucination_reasons,
    is_low_confidence_reason,
    repeated_sentences,
)
from stepline.speech.recogniser import SWITCH_SPEECH_SECONDS, RecogniserSwitch, read_together
from stepline.speech.second_reading import fit_to_voice, read_again
from stepline.speech.sentences import ends_sentence, split_sentences, start_and_end
from stepline.speech.settings import AsrSettings
from stepline.speech.vad import FRAME_SAMPLES, VOICE_PROBABILITY

if TYPE_CHECKING:
    from stepline.speech.whisper import Models

log = logging.getLogger(__name__)

Transcripts: TypeAlias = list[WindowTranscript]

DEFAULT_ASR_SETTINGS = AsrSettings()
# of speech after a window's last word, from which the next window starts at that word's end
UNREAD_SECONDS = 1.5
REREAD_SECONDS = 0.2  # before a cut sentence, at which it is read again
MAX_DROPPED_CHARS = 300  # of a dropped text that are kept


@dataclass(frozen=True)
class TranscriptionResult:
    """The transcript, each dropped sentence with its reason, and warnings with a cure."""

    transcript: Transcript
    dropped: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


def transcribe(
    blocks: Iterable[AudioBlock],
    settings: AsrSettings = DEFAULT_ASR_SETTINGS,
    *,
    models: "Models | None" = None,
) -> TranscriptionResult:
    """Return the sentences of the sound, and those dropped as hallucinations.

    Memory holds one window, or one batch of windows on a GPU. A sentence may start in one window
    and end in the next. No sound gives an empty transcript.

    Args:
        blocks: of sound, of any length, in order.
        settings: of speech recognition.
        models: loaded Whisper models by name, shared with the caller and extended. None: not shared.

    Raises ModelError when the model is missing or damaged, SettingsError for a language that it
    does not know.
    """
    return transcribe_many([blocks], settings, models=models)[0]


def transcribe_many(
    sounds: Sequence[Iterable[AudioBlock]],
    settings: AsrSettings = DEFAULT_ASR_SETTINGS,
    *,
    models: "Models | None" = None,
) -> list[TranscriptionResult]:
    """Return the transcription of each sound, as `transcribe` does. A GPU batches their windows.

    Raises what `transcribe` raises.
    """
    if models is None and len(sounds) > 1:
        models = {}
    recognisers = []
    transcriptions = []
    for sound in sounds:
        recogniser = RecogniserSwitch(settings, models)
        recognisers.append(recogniser)
        transcriptions.append(_transcription(sound, recogniser, settings))

    # each is asked for its next windows, until none goes on
    results: dict[int, TranscriptionResult] = {}
    transcripts: dict[int, Transcripts | None] = dict.fromkeys(range(len(sounds)))
    while transcripts:
        window_requests: dict[int, list[AudioWindow]] = {}
        for number, answer in transcripts.items():
            transcription = transcriptions[number]
            try:
                # None at first
                window_requests[number] = transcription.send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                results[number] = end.value
        requests = []
        for number, windows in window_requests.items():
            requests.append((recognisers[number], windows))
        answers = read_together(requests)
        transcripts = dict(zip(window_requests, answers, strict=True))
    return [results[number] for number in range(len(sounds))]


def _transcription(
    blocks: Iterable[AudioBlock], recogniser: RecogniserSwitch, settings: AsrSettings
) -> Generator[list[AudioWindow], Transcripts, TranscriptionResult]:
    """Return the transcription of one sound. Yields requests to recognise windows."""
    windower = AudioWindower(settings)
    collector = SentenceCollector(settings)
    stream = windower.windows(blocks)
    while windows := list(islice(stream, recogniser.batch_size)):
        transcripts = yield windows
        last = windows[-1]

        # what the first reading passed over
        words: list[Word] = []
        for number, window in enumerate(windows):
            # else the next window begins where this one was left unread
            tail = window.last or window is not last
            first = transcripts[number]
            second = read_again(window, first, recogniser.read, tail=tail)
            fitted = fit_to_voice(window, second.words)
            transcripts[number] = replace(second, words=tuple(fitted))
            words += fitted

        # sentences, and where the next window begins
        sentences = split_sentences(words, pause=settings.pause, longest=settings.longest)
        in_last = [sentence for sentence in sentences if sentence.span.end > last.start]
        resume = _resume(in_last, last)
        if resume is not None:
            end = windower.resume(resume)
            sentences = [sentence for sentence in sentences if sentence.span.start < end]
        collector.add(sentences, windows, transcripts)
    return collector.result(recogniser)


class SentenceCollector:
    """Collects the sentences of one sound: the accepted ones, and the dropped ones with reasons."""

    def __init__(self, settings: AsrSettings) -> None:
        self._settings = settings
        self.accepted: list[Sentence] = []
        self._dropped: list[tuple[Sentence, str]] = []
        self._language: str | None = None

    def add(
        self,
        sentences: Sequence[Sentence],
        windows: Sequence[AudioWindow],
        transcripts: Sequence[WindowTranscript],
    ) -> None:
        """Add the sentences of windows that were read together."""
        evidence = [_evidence(sentence, windows, transcripts) for sentence in sentences]
        reasons = hallucination_reasons(sentences, evidence, self._settings)
        for sentence, reason in zip(sentences, reasons, strict=True):
            if reason is None:
                self.accepted.append(sentence)
            else:
                self._dropped.append((sentence, reason))
        if sentences:
            for transcript in transcripts:
                self._language = transcript.language or self._language

    def result(self, recogniser: RecogniserSwitch) -> TranscriptionResult:
        """Return the transcript after the last sound."""
        # A loop may go on from window to window.
        ordered = sorted(self.accepted, key=start_and_end)
        looped = repeated_sentences(ordered)
        sentences = []
        for number, sentence in enumerate(ordered):
            if number in looped:
                self._dropped.append((sentence, REPETITION_REASON))
            else:
                sentences.append(sentence)
        log.info("heard %d sentences, left out %d", len(sentences), len(self._dropped))

        language = self._language
        if not sentences and recogniser.english_only and self._settings.language is None:
            # nothing was understood by a model that takes whatever it hears for English
            language = None
        # what was left out, and what would help
        advice = self._advice(sentences, recogniser)
        warnings = []
        if advice:
            warnings.append(f"most of the speech is not understood; {advice}")
        dropped = []
        for sentence, reason in self._dropped:
            if advice and reason != REPETITION_REASON and is_low_confidence_reason(reason):
                reason = f"{reason}; {advice}"
            text = sentence.text[:MAX_DROPPED_CHARS]
            dropped.append(Rejected(what="sentence", text=text, reason=reason))
        transcript = Transcript(
            language=language, sentences=tuple(sentences), recogniser=recogniser.name
        )
        return TranscriptionResult(transcript, tuple(dropped), tuple(warnings))

    def _advice(self, sentences: Sequence[Sentence], recogniser: RecogniserSwitch) -> str:
        """Return advice where most of the speech has unsure words, else "".

        One or two unsure words, or fewer than the sure ones, do not indicate another language.
        """
        accepted_seconds = sum(sentence.span.duration for sentence in sentences)
        unsure = sum(
            sentence.span.duration
            for sentence, reason in self._dropped
            if is_low_confidence_reason(reason)
        )
        if unsure <= max(SWITCH_SPEECH_SECONDS, accepted_seconds):
            return ""
        return recogniser.advice


def _evidence(
    sentence: Sentence, windows: Sequence[AudioWindow], transcripts: Sequence[WindowTranscript]
) -> SpeechEvidence:
    """Return the mean P(voice) of a sentence, and the log-probability of the window where it
    starts.
    """
    start, end = start_and_end(sentence)
    overlapping = [
        number for number, window in enumerate(windows) if window.start < end and start < window.end
    ]
    numbers = overlapping or [len(windows) - 1]
    voice = np.concatenate([windows[number].voiced(start, end) for number in numbers])
    voiced = float(voice.mean()) if len(voice) else 0.0
    first = transcripts[numbers[0]]
    return SpeechEvidence(voiced, first.log_probability)


def _resume(sentences: Sequence[Sentence], window: AudioWindow) -> float | None:
    """Return the second to continue at: after the last word, or before a sentence cut by the
    window.
    """
    if window.last or not sentences:
        return None
    last = sentences[-1]
    after = window.voiced(last.span.end, window.end)
    voiced_frames = float((after >= VOICE_PROBABILITY).sum())
    if voiced_frames * FRAME_SAMPLES / SAMPLE_RATE > UNREAD_SECONDS:
        return last.span.end
    if (not ends_sentence(last.text) or last.text.endswith("...")) and len(sentences) > 1:
        return max(sentences[-2].span.end, last.span.start - REREAD_SECONDS)
    return None
