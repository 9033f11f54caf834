"""Which videos are left out, as soon as it is known what they say: each with one reason."""

import re

from stepline.curate.stage import LeftOutError, Work
from stepline.curate.stage_settings import FilterSettings
from stepline.curate.stages.parts import Drafted, Probed, Spoken, result, to_bytes
from stepline.records import Frozen


class Kept(Frozen):
    """What the filter counted of a video that stays."""

    language: str | None
    words: int
    steps: int


LANGUAGE, SHORT, LONG = "it is in another language", "it is too short", "it is too long"
SILENT, SPARSE, FEW = "too little is said", "too little is said a minute", "it has too few steps"


def keep(work: Work) -> bytes:
    """Return what was counted. Raises LeftOutError with the reason where the recipe leaves the video out."""
    settings = work.recipe.filter
    probed, spoken = result(Probed, work, "probe"), result(Spoken, work, "transcribe")
    steps = len(result(Drafted, work, "write").steps)
    words = sum(len(re.findall(r"\w+", one.text)) for one in spoken.transcript.sentences)
    language = spoken.transcript.language
    duration = probed.duration or max((one.span.end for one in spoken.transcript.sentences), default=0.0)
    reason = refusal(language, duration, words, steps, settings)
    if reason is not None:
        raise LeftOutError(reason)
    return to_bytes(Kept(language=language, words=words, steps=steps))


def refusal(language: str | None, duration: float, words: int, steps: int, settings: FilterSettings) -> str | None:
    """Return why a video stays out, None where it does not; the first reason of several.

    language: None where nobody tells it, which is no reason. duration: seconds, 0 where it is not known.
    """
    if duration and duration < settings.shortest:
        return SHORT
    if settings.longest is not None and duration > settings.longest:
        return LONG
    if words < settings.words:
        return SILENT
    if language is not None and settings.languages and language.lower().split("-")[0] not in settings.languages:
        return LANGUAGE
    if duration and words * 60 < settings.words_a_minute * duration:
        return SPARSE
    return FEW if steps < settings.steps else None
