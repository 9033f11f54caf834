"""From a stream of sound to a transcript: windows, words, sentences, doubts."""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stepline.asr.audio_windows import AudioWindow, AudioWindower
from stepline.asr.hallucinations import SpeechEvidence, hallucination_reasons
from stepline.asr.recogniser import RecogniserSwitch
from stepline.asr.sentences import ends_sentence, split_sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.types import TranscriptionResult, WindowTranscript
from stepline.asr.vad import FRAME, SAMPLE_RATE
from stepline.records import Rejected, Sentence, Transcript

if TYPE_CHECKING:
    from stepline.media import AudioBlock

log = logging.getLogger(__name__)

DEFAULTS = AsrSettings()
UNREAD = 1.5  # s of speech after a window's last word from which the next window starts at that word's end
BEFORE = 0.2  # s before a cut sentence at which it is read again
LONGEST_TEXT = 300  # characters of a dropped text that are kept


def transcribe(blocks: "Iterable[AudioBlock]", settings: AsrSettings = DEFAULTS) -> TranscriptionResult:
    """Return what is said in the sound, sentence by sentence, and what was not believed.

    Sound comes in blocks of any length, in order; memory holds one window. No sound gives an empty transcript.
    Raises ModelError when the model is missing or damaged, SettingsError for a language that it does not know.
    """
    ear, tape = RecogniserSwitch(settings), AudioWindower(settings)
    kept: list[Sentence] = []
    dropped: list[Rejected] = []
    language: str | None = None
    for window in tape.windows(blocks):
        passage = ear.read(window)
        found = split_sentences(passage.words, pause=settings.pause, longest=settings.longest)
        resume = _resume(found, window, settings)
        if resume is not None:
            found = [sentence for sentence in found if sentence.span.start < tape.resume(resume)]
        language = passage.language if found else language
        for sentence, reason in zip(
            found, hallucination_reasons(found, _evidence(found, passage, window), settings), strict=True
        ):
            if reason is None:
                kept.append(sentence)
            else:
                advice = ear.advice if "unsure" in reason else ""
                dropped.append(Rejected(what="sentence", text=sentence.text[:LONGEST_TEXT], reason=reason + advice))
    log.info("heard %d sentences, left out %d", len(kept), len(dropped))
    return TranscriptionResult(
        Transcript(language=language, sentences=_in_order(kept), recogniser=ear.name), tuple(dropped)
    )


def _resume(found: Sequence[Sentence], window: AudioWindow, settings: AsrSettings) -> float | None:
    """Return the second at which to read on: after the last word read, or before a sentence that the window cuts."""
    if window.last or not found:
        return None
    last = found[-1]
    rest = window.voiced(last.span.end, window.end)
    if float((rest >= settings.voice).sum()) * FRAME / SAMPLE_RATE > UNREAD:
        return last.span.end
    if len(found) > 1 and (not ends_sentence(last.text) or last.text.endswith("...")):
        return max(found[-2].span.end, last.span.start - BEFORE)
    return None


def _evidence(found: Sequence[Sentence], passage: WindowTranscript, window: AudioWindow) -> list[SpeechEvidence]:
    voices = [window.voiced(sentence.span.start, sentence.span.end) for sentence in found]
    return [SpeechEvidence(float(v.mean()) if len(v) else 0.0, passage.log_probability) for v in voices]


def _in_order(kept: Sequence[Sentence]) -> tuple[Sentence, ...]:
    return tuple(sorted(kept, key=lambda sentence: (sentence.span.start, sentence.span.end)))
