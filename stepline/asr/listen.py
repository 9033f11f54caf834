"""From a stream of sound to a transcript: windows, words, sentences, doubts."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stepline.asr.filters import Evidence, objection
from stepline.asr.heard import Heard, Passage
from stepline.asr.sentences import ends_sentence, sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.tape import Tape, Window
from stepline.asr.voice import FRAME, SAMPLE_RATE
from stepline.asr.whisper import Whisper
from stepline.records import Dropped, Sentence, Transcript

if TYPE_CHECKING:
    from stepline.media import Sound

log = logging.getLogger(__name__)

DEFAULTS = AsrSettings()
ENGLISH_ONLY = "whisper-tiny.en"
MULTILINGUAL = "whisper-base"
UNREAD = 1.5   # s of speech after a window's last word from which the next window starts at that word's end


def transcribe(blocks: "Iterable[Sound]", settings: AsrSettings = DEFAULTS) -> Heard:
    """Return what is said in the sound, sentence by sentence, and what was not believed.

    Sound comes in any blocks, in order; memory holds one window. No sound gives an empty transcript.
    Raises ModelError when the model is missing or damaged.
    """
    recogniser: Whisper | None = None
    kept: list[Sentence] = []
    dropped: list[Dropped] = []
    language: str | None = None
    tape = Tape(settings)
    for window in tape.windows(blocks):
        recogniser = recogniser or Whisper(settings.model or ENGLISH_ONLY, settings)
        passage = recogniser.read(window)
        language = passage.language or language
        found = sentences(passage.words, pause=settings.pause, longest=settings.longest)
        resume = _resume(found, window)
        if resume is not None:
            tape.resume(resume)
            found = [sentence for sentence in found if sentence.span.start < resume]
        for sentence in found:
            reason = objection(sentence, _evidence(sentence, passage, window), settings)
            if reason is None:
                kept.append(sentence)
            else:
                dropped.append(Dropped(what="sentence", text=sentence.text, reason=reason))
    name = recogniser.name if recogniser else None
    return Heard(Transcript(language=language, sentences=tuple(kept), recogniser=name), tuple(dropped))


def _resume(found: list[Sentence], window: Window) -> float | None:
    """Return the second at which to read on: before a sentence that the window cuts, after the last word read."""
    if window.last or not found:
        return None
    last = found[-1]
    rest = window.voiced(last.span.end, window.end)
    if float((rest > 0.5).sum()) * FRAME / SAMPLE_RATE > UNREAD:
        return last.span.end
    if len(found) > 1 and not ends_sentence(last.text):
        return max(found[-2].span.end, last.span.start - 0.2)
    return None


def _evidence(sentence: Sentence, passage: Passage, window: Window) -> Evidence:
    voice = window.voiced(sentence.span.start, sentence.span.end)
    return Evidence(float(voice.mean()) if len(voice) else 0.0, passage.log_probability, passage.no_speech)
