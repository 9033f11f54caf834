"""Speech recognition of a stream of sound: windows, words, sentences, and which of them are believed."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepline.asr.audio_windows import AudioWindow, AudioWindower
from stepline.asr.hallucinations import SpeechEvidence, hallucination_reasons
from stepline.asr.recogniser import RecogniserSwitch
from stepline.asr.sentences import ends_sentence, split_sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.vad import FRAME
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.records import Rejected, Sentence, Transcript

log = logging.getLogger(__name__)

DEFAULTS = AsrSettings()
UNREAD_SPEECH = 1.5  # s of speech after a window's last word from which the next window starts at that word's end
REREAD_BEFORE = 0.2  # s before a cut sentence at which it is read again
LONGEST_TEXT = 300  # characters of a dropped text that are kept


@dataclass(frozen=True)
class TranscriptionResult:
    """The transcript, and each sentence that was left out with its reason."""

    transcript: Transcript
    dropped: tuple[Rejected, ...] = ()


def transcribe(blocks: Iterable[AudioBlock], settings: AsrSettings = DEFAULTS) -> TranscriptionResult:
    """Return what is said in the sound, sentence by sentence, and what was not believed.

    Sound comes in blocks of any length, in order; memory holds one window. No sound gives an empty transcript.
    Raises ModelError when the model is missing or damaged, SettingsError for a language that it does not know.
    """
    recogniser, windower = RecogniserSwitch(settings), AudioWindower(settings)
    kept: list[Sentence] = []
    dropped: list[Rejected] = []
    language: str | None = None
    for window in windower.windows(blocks):
        read = recogniser.read(window)
        sentences = split_sentences(read.words, pause=settings.pause, longest=settings.longest)
        resume = _resume(sentences, window, settings)
        if resume is not None:
            sentences = [sentence for sentence in sentences if sentence.span.start < windower.resume(resume)]
        language = read.language if sentences else language
        voices = [window.voiced(sentence.span.start, sentence.span.end) for sentence in sentences]
        evidence = [SpeechEvidence(float(v.mean()) if len(v) else 0.0, read.log_probability) for v in voices]
        reasons = hallucination_reasons(sentences, evidence, settings)
        for sentence, reason in zip(sentences, reasons, strict=True):
            if reason is None:
                kept.append(sentence)
            else:
                advice = recogniser.advice if "unsure" in reason else ""
                dropped.append(Rejected(what="sentence", text=sentence.text[:LONGEST_TEXT], reason=reason + advice))
    in_order = sorted(kept, key=lambda sentence: (sentence.span.start, sentence.span.end))
    log.info("heard %d sentences, left out %d", len(kept), len(dropped))
    whole = Transcript(language=language, sentences=tuple(in_order), recogniser=recogniser.name)
    return TranscriptionResult(whole, tuple(dropped))


def _resume(sentences: Sequence[Sentence], window: AudioWindow, settings: AsrSettings) -> float | None:
    """Return the second at which to read on: after the last word read, or before a sentence that the window cuts."""
    if window.last or not sentences:
        return None
    last = sentences[-1]
    rest = window.voiced(last.span.end, window.end)
    if float((rest >= settings.voice).sum()) * FRAME / SAMPLE_RATE > UNREAD_SPEECH:
        return last.span.end
    if len(sentences) > 1 and (not ends_sentence(last.text) or last.text.endswith("...")):
        return max(sentences[-2].span.end, last.span.start - REREAD_BEFORE)
    return None
