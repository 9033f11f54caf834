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


def _transcription(
    blocks: Iterable[AudioBlock], recogniser: RecogniserSwitch, settings: AsrSettings
) -> Generator[list[AudioWindow], list[WindowTranscript], TranscriptionResult]:
    """Return what is said in a sound, asking for the reading of windows that are best read
    together."""
    windower = AudioWindower(settings)
    kept: list[Sentence] = []
    doubted: list[tuple[Sentence, str]] = []
    language: str | None = None
    windows = windower.windows(blocks)
    while some := list(islice(windows, recogniser.at_once)):
        reads = yield some
        for k, window in enumerate(some):
            # else the next window begins where this one was left unread
            tail = window.last or window is not some[-1]
            read = read_again(window, reads[k], recogniser.read, settings, tail=tail)
            reads[k] = replace(read, words=tuple(fit_to_voice(window, read.words, settings)))
        words = [word for read in reads for word in read.words]
        sentences = split_sentences(words, pause=settings.pause, longest=settings.longest)
        resume = _resume(
            [each for each in sentences if each.span.end > some[-1].start], some[-1], settings
        )
        if resume is not None:
            second = windower.resume(resume)
            sentences = [sentence for sentence in sentences if sentence.span.start < second]
        if sentences:
            language = next(
                (read.language for read in reversed(reads) if read.language is not None), language
            )
        evidence = [_evidence(sentence, some, reads) for sentence in sentences]
        reasons = hallucination_reasons(sentences, evidence, settings)
        for sentence, reason in zip(sentences, reasons, strict=True):
            if reason is None:
                kept.append(sentence)
            else:
                doubted.append((sentence, reason))
    in_order = sorted(kept, key=lambda sentence: (sentence.span.start, sentence.span.end))
    looped = repeated_sentences(in_order)  # a loop may go on from window to window
    doubted += [(in_order[index], REPEATED) for index in sorted(looped)]
    in_order = [sentence for index, sentence in enumerate(in_order) if index not in looped]
    log.info("heard %d sentences, left out %d", len(in_order), len(doubted))
    # A word or two that is not understood, or less than what is, tells nothing of the language.
    unsure = [sentence for sentence, reason in doubted if is_unsure(reason)]
    most = max(settings.switch_voice, _seconds(in_order)) < _seconds(unsure)
    advice = recogniser.advice if most else ""
    if not in_order and recogniser.english_only and settings.language is None:
        # nothing was understood by a model that takes whatever it hears for English
        language = None
    whole = Transcript(language=language, sentences=tuple(in_order), recogniser=recogniser.name)
    dropped = tuple(
        _rejected(
            sentence,
            f"{reason}; {advice}"
            if advice and reason != REPEATED and is_unsure(reason)
            else reason,
        )
        for sentence, reason in doubted
    )
    return TranscriptionResult(
        whole, dropped, (f"most of the speech is not understood; {advice}",) if advice else ()
    )


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
