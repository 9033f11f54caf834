"""From a stream of sound to a transcript: windows, words, sentences, doubts."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stepline.asr.filters import Evidence, objection
from stepline.asr.heard import Heard, Passage
from stepline.asr.sentences import sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.voice import FRAME, SAMPLE_RATE
from stepline.asr.whisper import ENGLISH_ONLY, Whisper
from stepline.asr.windows import Window, windows
from stepline.records import Dropped, Sentence, Transcript

if TYPE_CHECKING:
    from stepline.media import Sound

log = logging.getLogger(__name__)

DEFAULTS = AsrSettings()


def transcribe(blocks: "Iterable[Sound]", settings: AsrSettings = DEFAULTS) -> Heard:
    """Return what is said in the sound, sentence by sentence, and what was not believed.

    Sound comes in any blocks, in order; memory holds one window. No sound gives an empty transcript.
    Raises ModelError when the model is missing or damaged.
    """
    recogniser: Whisper | None = None
    kept: list[Sentence] = []
    dropped: list[Dropped] = []
    language: str | None = None
    for window in windows(blocks, settings):
        recogniser = recogniser or Whisper(settings.model or ENGLISH_ONLY, settings)
        passage = recogniser.read(window)
        language = passage.language or language
        for sentence in sentences(passage.words, pause=settings.pause, longest=settings.longest):
            reason = objection(sentence, _evidence(sentence, passage, window), settings)
            if reason is None:
                kept.append(sentence)
            else:
                dropped.append(Dropped(what="sentence", text=sentence.text, reason=reason))
    name = recogniser.name if recogniser else None
    return Heard(Transcript(language=language, sentences=tuple(kept), recogniser=name), tuple(dropped))


def _evidence(sentence: Sentence, passage: Passage, window: Window) -> Evidence:
    first = int((sentence.span.start - window.start) * SAMPLE_RATE / FRAME)
    last = int((sentence.span.end - window.start) * SAMPLE_RATE / FRAME) + 1
    voice = window.voice[max(0, first) : last]
    return Evidence(float(voice.mean()) if len(voice) else 0.0, passage.log_probability, passage.no_speech)
