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
# s of speech after a window's last word from which the next window starts at that word's end
UNREAD_SPEECH = 1.5
REREAD_BEFORE = 0.2  # s before a cut sentence at which it is read again
LONGEST_TEXT = 300  # characters of a dropped text that are kept


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
    that it reads at once. These are taken as one: a sentence may begin in one and end in the next.
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
    models = {} if models is None and len(sounds) > 1 else models
    recognisers = [RecogniserSwitch(settings, models) for _ in sounds]
    transcriptions = [
        _transcription(*each, settings) for each in zip(sounds, recognisers, strict=True)
    ]
    results: dict[int, TranscriptionResult] = {}
    reads: dict[int, list[WindowTranscript] | None] = dict.fromkeys(range(len(sounds)))
    while reads:
        asked: dict[int, list[AudioWindow]] = {}
        for number, read in reads.items():
            try:
                asked[number] = transcriptions[number].send(read)  # type: ignore[arg-type]  # None at first
            except StopIteration as end:
                results[number] = end.value
        together = read_together(
            [(recognisers[number], windows) for number, windows in asked.items()]
        )
        reads = dict(zip(asked, together, strict=True))
    return [results[number] for number in range(len(sounds))]


class SentenceCollector:
    """The sentences of one sound, window by window: those that are believed, and the doubted ones
    with the reason.

    language: as the last window that says one; None where no window does.
    """

    def __init__(self, settings: AsrSettings) -> None:
        self._settings = settings
        self.language: str | None = None
        self.believed: list[Sentence] = []
        self.doubted: list[tuple[Sentence, str]] = []

    def add(
        self,
        sentences: Sequence[Sentence],
        windows: Sequence[AudioWindow],
        transcripts: Sequence[WindowTranscript],
    ) -> None:
        """Take sentences that were read in some windows."""
        if sentences:
            for transcript in transcripts:
                if transcript.language is not None:
                    self.language = transcript.language
        evidence = [_evidence(sentence, windows, transcripts) for sentence in sentences]
        reasons = hallucination_reasons(sentences, evidence, self._settings)
        for sentence, reason in zip(sentences, reasons, strict=True):
            if reason is None:
                self.believed.append(sentence)
            else:
                self.doubted.append((sentence, reason))

    def result(self, recogniser: RecogniserSwitch) -> TranscriptionResult:
        """Return what is said, and what was left out, with advice where that is most of it."""
        settings, language = self._settings, self.language
        ordered = sorted(self.believed, key=lambda item: (item.span.start, item.span.end))
        looped = sorted(repeated_sentences(ordered))  # a loop may go on from window to window
        doubted = self.doubted + [(ordered[index], REPEATED) for index in looped]
        sentences = [item for index, item in enumerate(ordered) if index not in looped]
        log.info("heard %d sentences, left out %d", len(sentences), len(doubted))
        # A word or two that is not understood, or less than what is, says nothing of the language.
        unsure = [sentence for sentence, reason in doubted if is_unsure(reason)]
        advice = ""
        warnings: tuple[str, ...] = ()
        if max(settings.switch_voice, _seconds(sentences)) < _seconds(unsure):
            advice = recogniser.advice
        if advice:
            warnings = (f"most of the speech is not understood; {advice}",)
        if not sentences and recogniser.english_only and settings.language is None:
            # nothing was understood by a model that takes whatever it hears for English
            language = None
        dropped = []
        for sentence, reason in doubted:
            if advice and reason != REPEATED and is_unsure(reason):
                reason = f"{reason}; {advice}"
            dropped.append(_rejected(sentence, reason))
        transcript = Transcript(
            language=language, sentences=tuple(sentences), recogniser=recogniser.name
        )
        return TranscriptionResult(transcript, tuple(dropped), warnings)


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
        last_window = windows[-1]
        for k, window in enumerate(windows):
            # else the next window begins where this one was left unread
            tail = window.last or window is not last_window
            again = read_again(window, transcripts[k], recogniser.read, settings, tail=tail)
            words = tuple(fit_to_voice(window, again.words, settings))
            transcripts[k] = replace(again, words=words)
        all_words = [word for transcript in transcripts for word in transcript.words]
        sentences = split_sentences(all_words, pause=settings.pause, longest=settings.longest)
        of_last = [item for item in sentences if item.span.end > last_window.start]
        resume = _resume(of_last, last_window, settings)
        if resume is not None:
            second = windower.resume(resume)
            sentences = [sentence for sentence in sentences if sentence.span.start < second]
        collector.add(sentences, windows, transcripts)
    return collector.result(recogniser)


def _seconds(sentences: Sequence[Sentence]) -> float:
    return sum(sentence.span.duration for sentence in sentences)


def _rejected(sentence: Sentence, reason: str) -> Rejected:
    return Rejected(what="sentence", text=sentence.text[:LONGEST_TEXT], reason=reason)


def _evidence(
    sentence: Sentence, windows: Sequence[AudioWindow], reads: Sequence[WindowTranscript]
) -> SpeechEvidence:
    """Return the mean voice of a sentence, and how sure the window was read in which it begins."""
    start, end = sentence.span.start, sentence.span.end
    inside = [
        k for k, window in enumerate(windows) if window.start < end and start < window.end
    ] or [len(windows) - 1]
    voice = np.concatenate([windows[k].voiced(start, end) for k in inside])
    return SpeechEvidence(
        float(voice.mean()) if len(voice) else 0.0, reads[inside[0]].log_probability
    )


def _resume(
    sentences: Sequence[Sentence], window: AudioWindow, settings: AsrSettings
) -> float | None:
    """Return the second at which to read on: after the last word read, or before a sentence that
    the window cuts."""
    if window.last or not sentences:
        return None
    last = sentences[-1]
    rest = window.voiced(last.span.end, window.end)
    if float((rest >= settings.voice).sum()) * FRAME / SAMPLE_RATE > UNREAD_SPEECH:
        return last.span.end
    if len(sentences) > 1 and (not ends_sentence(last.text) or last.text.endswith("...")):
        return max(sentences[-2].span.end, last.span.start - REREAD_BEFORE)
    return None
