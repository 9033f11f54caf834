"""Steps written by a language model, a chunk of about ten sentences at a time; source: NaSVA, section 3.1.

Differs: every step must cite sentences of its chunk, times in a reply are cut out, and what the model does not serve
in time the extractive writer serves, which a note says.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepline.errors import WriterError
from stepline.records import Dropped, Matrix, Step, Transcript
from stepline.writing import reply_cache
from stepline.writing.asking import Prompt, main_prompt
from stepline.writing.chunks import Chunk, cut, orders_to_the_model
from stepline.writing.citing import Embed, cite
from stepline.writing.llm_settings import LlmSettings
from stepline.writing.merge import merge_repeats, number
from stepline.writing.parallel import run_all
from stepline.writing.replies import Reading
from stepline.writing.servers import Server, open_server
from stepline.writing.serving import LATE, Served, Waiter
from stepline.writing.small_talk import small_talk
from stepline.writing.written import Written

logger = logging.getLogger(__name__)

Fallback = Callable[[Transcript], Written]


@dataclass(frozen=True)
class Part:
    """What the model made of one chunk; `reason` says why the fallback serves it, "" where the model did."""

    chunk: Chunk
    steps: tuple[Step, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]
    reason: str


def write_llm(
    transcript: Transcript,
    settings: LlmSettings,
    *,
    prompt: Prompt | None = None,
    fallback: Fallback | None = None,
    embed: Embed | None = None,
) -> Written:
    """Return the steps that the model finds in the transcript, each with the sentences it rests on.

    prompt: for experiments; the main job's otherwise. fallback: writes the whole transcript where the model fails
    (the extractive writer by default). embed: texts to unit rows (MiniLM by default).
    Raises WriterError when the named server is not there or refuses access, ModelError when a library or model is
    missing.
    """
    withheld = orders_to_the_model(transcript)
    chunks = cut(transcript, settings.sentences_per_chunk, withheld)
    hidden = [_hidden(transcript.sentences[i].text) for i in withheld]
    if not chunks:
        return Written(dropped=tuple(hidden))
    cache = reply_cache.open_cache(settings.cache)
    server = open_server(settings)
    try:
        served = _served(chunks, settings, server, prompt or main_prompt(), cache)
    finally:
        server.close()
    _usable(served, settings)
    parts = [_part(chunk, one, embed or _minilm, settings.floor) for chunk, one in zip(chunks, served, strict=True)]
    whole = _fallback(transcript, parts, fallback or _extractive)
    steps = [step for part in parts for step in (_told_in(part.chunk, whole) if part.reason else part.steps)]
    steps = [step for step in steps if not set(step.sources) & set(withheld)]
    dropped = [*hidden, *whole.dropped, *(one for part in parts for one in part.dropped)]
    notes = [*whole.notes, *(note for part in parts for note in part.notes), *filter(None, [cache.broken])]
    return Written(number(merge_repeats(steps)), tuple(dropped), tuple(notes))


def _served(
    chunks: Sequence[Chunk], settings: LlmSettings, server: Server, prompt: Prompt, cache: reply_cache.ReplyCache
) -> list[Served]:
    start = time.monotonic()
    waiter = Waiter(server, settings, prompt, cache, until=start + settings.deadline)
    results = run_all(waiter.serve, chunks, workers=server.workers, until=waiter.until)
    logger.info("asked for %d chunks in %.1f s", len(chunks), time.monotonic() - start)
    return [results.get(place, Served(reason=LATE)) for place in range(len(chunks))]


def _usable(served: Sequence[Served], settings: LlmSettings) -> None:
    """Raise WriterError when the server rejected every question: then the settings are wrong, not the speech."""
    if all(one.rejected for one in served):
        raise WriterError(f"{settings.base_url}: {served[0].reason}; correct the settings under writing.llm")


def _part(chunk: Chunk, served: Served, embed: Embed, floor: float) -> Part:
    """Return the model's steps for a chunk, cited, or why there are none that can be used."""
    place = f"sentences {chunk.places[0] + 1}-{chunk.places[-1] + 1}"
    notes = tuple(f"{place}: {note}" for note in served.notes)
    reason, reading = served.reason, served.reading or Reading()
    texts, talk = _without_talk(reading.texts)
    steps, unsupported = cite(texts, chunk, floor=floor, embed=embed)
    if unsupported and not steps:
        reason = "no sentence supports any step of the reply"
    if reason:
        notes += (f"{place}: provisional, from the extractive writer, because {reason}",)
    return Part(chunk, tuple(steps), (*reading.dropped, *talk, *unsupported), notes, reason)


def _fallback(transcript: Transcript, parts: Sequence[Part], fallback: Fallback) -> Written:
    """Return what the fallback writes of the whole transcript, nothing where the model served every chunk.

    What it leaves out is told only where it served everything: it does not say in which chunk that lay.
    """
    if not any(part.reason for part in parts):
        return Written()
    whole = fallback(transcript)
    return whole if all(part.reason for part in parts) else Written(whole.steps, (), whole.notes)


def _told_in(chunk: Chunk, whole: Written) -> list[Step]:
    return [step for step in whole.steps if set(step.sources) & set(chunk.places)]


def _without_talk(texts: Sequence[str]) -> tuple[list[str], list[Dropped]]:
    reasons = small_talk(texts)
    work = [text for text, reason in zip(texts, reasons, strict=True) if reason is None]
    talk = [(text, reason) for text, reason in zip(texts, reasons, strict=True) if reason is not None]
    return work, [Dropped(what="step", text=text, reason=reason) for text, reason in talk]


def _hidden(text: str) -> Dropped:
    return Dropped(what="sentence", text=text, reason="addresses a language model, not the viewer; withheld from it")


def _extractive(transcript: Transcript) -> Written:
    from stepline.writing.extractive import write_extractive

    return write_extractive(transcript)


def _minilm(texts: Sequence[str]) -> Matrix:
    from stepline.text import embed

    return embed(texts)
