"""Speech recognition of a stream of sound: windows, words, sentences, and which of them are
believed."""

import logging
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from stepline.asr.audio_windows import AudioWindow, AudioWindower, WindowTranscript
from stepline.asr.hallucinations import (
    REPEATED,
    SpeechEvidence,
    hallucination_reasons,
    is_unsure,
    repeated_sentences,
)
from stepline.asr.recogniser import RecogniserSwitch, read_together
from stepline.asr.second_reading import fit_to_voice, read_again
from stepline.asr.sentences import ends_sentence, split_sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.vad import FRAME
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.records import Rejected, Sentence, Transcript

if TYPE_CHECKING:
    from stepline.asr.whisper import Models

log = logging.getLogger(__name__)

DEFAULTS = AsrSettings()
# of speech after a window's last word, from which the next window starts at that word's end
UNREAD_SECONDS = 1.5
REREAD_SECONDS = 0.2  # before a cut sentence, at which it is read again
MAX_DROPPED_CHARS = 300  # of a dropped text that are kept


@dataclass(frozen=True)
class TranscriptionResult:
    """The transcript, each sentence that was left out with its reason, and what would help where
    most was."""

    transcript: Transcript
    dropped: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


def transcribe(
    blocks: Iterable[AudioBlock],
    settings: AsrSettings = DEFAULTS,
    *,
    models: "Models | None" = None,
) -> TranscriptionResult:
    """Return what is said in the sound, sentence by sentence, and what was not believed.

    Sound comes in blocks of any length, in order; memory holds one window, on a GPU the windows
    that it reads together. These are taken as one: a sentence may begin in one and end in the next.
    No sound gives an empty transcript.
    models: Whisper's by name, where several sounds share them; what is loaded is added. None: they
    go with this one.
    Raises ModelError when the model is missing or damaged, SettingsError for a language that it
    does not know.
    """
    return transcribe_many([blocks], settings, models=models)[0]


def transcribe_many(
    sounds: Sequence[Iterable[AudioBlock]],
    settings: AsrSettings = DEFAULTS,
    *,
    models: "Models | None" = None,
) -> list[TranscriptionResult]:
    """Return what is said in each of several sounds, as `transcribe` does of one; a GPU reads
    windows of all together.

    Raises what `transcribe` would of any of them.
    """
    if models is None and len(sounds) > 1:
        models = {}
    recognisers = [RecogniserSwitch(settings, models) for _ in sounds]
    transcriptions = [
        _transcription(sound, recogniser, settings)
        for sound, recogniser in zip(sounds, recognisers, strict=True)
    ]
    results: dict[int, TranscriptionResult] = {}
    transcripts: dict[int, list[WindowTranscript] | None] = dict.fromkeys(range(len(sounds)))
    while transcripts:
        questions: dict[int, list[AudioWindow]] = {}  # of the sounds that go on
        for number, answer in transcripts.items():
            try:
                questions[number] = transcriptions[number].send(answer)  # type: ignore[arg-type]  # None at first
            except StopIteration as end:
                results[number] = end.value
        answers = read_together(
            [(recognisers[number], windows) for number, windows in questions.items()]
        )
        transcripts = dict(zip(questions, answers, strict=True))
    return [results[number] for number in range(len(sounds))]


def _transcription(
    blocks: Iterable[AudioBlock], recogniser: RecogniserSwitch, settings: AsrSettings
) -> Generator[list[AudioWindow], list[WindowTranscript], TranscriptionResult]:
    """Return what is said in a sound, asking for the reading of windows that are best read
    together."""
    windower = AudioWindower(settings)
    collector = SentenceCollector(settings)
    stream = windower.windows(blocks)
    while windows := list(islice(stream, recogniser.at_once)):
        transcripts = yield windows
        last = windows[-1]

        # what the first reading passed over
        for k, window in enumerate(windows):
            # else the next window begins where this one was left unread
            tail = window.last or window is not last
            second = read_again(window, transcripts[k], recogniser.read, settings, tail=tail)
            fitted = fit_to_voice(window, second.words, settings)
            transcripts[k] = replace(second, words=tuple(fitted))

        # sentences, and where the next window begins
        words = [word for transcript in transcripts for word in transcript.words]
        sentences = split_sentences(words, pause=settings.pause, longest=settings.longest)
        in_last = [sentence for sentence in sentences if sentence.span.end > last.start]
        resume = _resume(in_last, last, settings)
        if resume is not None:
            end = windower.resume(resume)
            sentences = [sentence for sentence in sentences if sentence.span.start < end]
        collector.add(sentences, windows, transcripts)
    return collector.result(recogniser)


class SentenceCollector:
    """Collects the sentences of one sound: those believed, and those doubted with their reasons."""

    def __init__(self, settings: AsrSettings) -> None:
        self._settings = settings
        self.believed: list[Sentence] = []
        self._doubted: list[tuple[Sentence, str]] = []
        self._language: str | None = None

    def add(
        self,
        sentences: Sequence[Sentence],
        windows: Sequence[AudioWindow],
        transcripts: Sequence[WindowTranscript],
    ) -> None:
        """Take the sentences of windows that were read together."""
        evidence = [_evidence(sentence, windows, transcripts) for sentence in sentences]
        reasons = hallucination_reasons(sentences, evidence, self._settings)
        for sentence, reason in zip(sentences, reasons, strict=True):
            if reason is None:
                self.believed.append(sentence)
            else:
                self._doubted.append((sentence, reason))
        for transcript in transcripts if sentences else ():
            self._language = transcript.language or self._language

    def result(self, recogniser: RecogniserSwitch) -> TranscriptionResult:
        """Return the transcript when no sound follows."""
        # A loop may go on from window to window.
        ordered = sorted(self.believed, key=lambda it: (it.span.start, it.span.end))
        looped = repeated_sentences(ordered)
        self._doubted += [(ordered[index], REPEATED) for index in sorted(looped)]
        sentences = [sentence for n, sentence in enumerate(ordered) if n not in looped]
        log.info("heard %d sentences, left out %d", len(sentences), len(self._doubted))

        language = self._language
        if not sentences and recogniser.english_only and self._settings.language is None:
            # nothing was understood by a model that takes whatever it hears for English
            language = None
        advice = self._advice(sentences, recogniser)
        dropped = []
        for sentence, reason in self._doubted:
            if advice and reason != REPEATED and is_unsure(reason):
                reason = f"{reason}; {advice}"
            text = sentence.text[:MAX_DROPPED_CHARS]
            dropped.append(Rejected(what="sentence", text=text, reason=reason))
        warnings = (f"most of the speech is not understood; {advice}",) if advice else ()
        transcript = Transcript(
            language=language, sentences=tuple(sentences), recogniser=recogniser.name
        )
        return TranscriptionResult(transcript, tuple(dropped), warnings)

    def _advice(self, sentences: Sequence[Sentence], recogniser: RecogniserSwitch) -> str:
        """Return what would help where most of the speech is not understood, else "".

        A word or two that is not understood, or less than what is, says nothing of the language.
        """
        understood = sum(sentence.span.duration for sentence in sentences)
        unsure = sum(
            sentence.span.duration for sentence, reason in self._doubted if is_unsure(reason)
        )
        most = unsure > max(self._settings.switch_voice, understood)
        return recogniser.advice if most else ""


def _evidence(
    sentence: Sentence, windows: Sequence[AudioWindow], transcripts: Sequence[WindowTranscript]
) -> SpeechEvidence:
    """Return the mean voice of a sentence, and how sure the window was read in which it begins."""
    start, end = sentence.span.start, sentence.span.end
    inside = [k for k, window in enumerate(windows) if window.start < end and start < window.end]
    if not inside:
        inside = [len(windows) - 1]
    voice = np.concatenate([windows[k].voiced(start, end) for k in inside])
    voiced = float(voice.mean()) if len(voice) else 0.0
    return SpeechEvidence(voiced, transcripts[inside[0]].log_probability)


def _resume(
    sentences: Sequence[Sentence], window: AudioWindow, settings: AsrSettings
) -> float | None:
    """Return the second at which to read on: after the last word read, or before a sentence that
    the window cuts."""
    if window.last or not sentences:
        return None
    last = sentences[-1]
    after = window.voiced(last.span.end, window.end)
    if float((after >= settings.voice).sum()) * FRAME / SAMPLE_RATE > UNREAD_SECONDS:
        return last.span.end
    if len(sentences) > 1 and (not ends_sentence(last.text) or last.text.endswith("...")):
        return max(sentences[-2].span.end, last.span.start - REREAD_SECONDS)
    return None
