"""Steps written by a language model, a chunk of about ten sentences at a time; source: NaSVA, section 3.1.

Differs: every step must cite sentences of its chunk, times in a reply are cut out, and what the model does not serve
in time the extractive writer serves, which a note says.
"""

import logging
import time
from collections.abc import Callable, Sequence

from stepline.errors import WriterError
from stepline.records import Dropped, Matrix, Step, Transcript
from stepline.writing import reply_cache
from stepline.writing.asking import Prompt, main_prompt
from stepline.writing.chunks import Chunk, cut, orders_to_the_model
from stepline.writing.citing import Embed, cite
from stepline.writing.llm_settings import LlmSettings
from stepline.writing.merge import merge_repeats, number
from stepline.writing.parallel import run_all
from stepline.writing.servers import Server, open_server
from stepline.writing.serving import LATE, Served, Waiter
from stepline.writing.small_talk import small_talk
from stepline.writing.written import Written

logger = logging.getLogger(__name__)

Fallback = Callable[[Transcript], Written]


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
    whole = _fallback(transcript, served, fallback or _extractive)
    steps, dropped, notes = _assembled(chunks, served, whole, embed or _minilm, settings.floor)
    notes += [cache.broken] if cache.broken else []
    steps = [step for step in steps if not set(step.sources) & set(withheld)]
    return Written(number(merge_repeats(steps)), (*hidden, *dropped), tuple(notes))


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
        raise WriterError(f"{settings.base_url}: {served[0].reason}; correct the settings under llm")


def _fallback(transcript: Transcript, served: Sequence[Served], fallback: Fallback) -> Written:
    if all(one.reading is not None for one in served):
        return Written()
    whole = fallback(transcript)
    return whole if all(one.reading is None for one in served) else Written(whole.steps, (), whole.notes)


def _assembled(
    chunks: Sequence[Chunk], served: Sequence[Served], whole: Written, embed: Embed, floor: float
) -> tuple[list[Step], list[Dropped], list[str]]:
    """Put the chunks' steps together: the model's, cited, or those of the fallback that begin in the chunk."""
    steps: list[Step] = []
    dropped = list(whole.dropped)
    notes = list(whole.notes)
    for chunk, one in zip(chunks, served, strict=True):
        place = f"sentences {chunk.places[0] + 1}-{chunk.places[-1] + 1}"
        notes += [f"{place}: {note}" for note in one.notes]
        if one.reading is None:
            notes.append(f"{place}: provisional, from the extractive writer, because {one.reason}")
            steps += [step for step in whole.steps if set(step.sources) & set(chunk.places)]
            continue
        texts, talk = _without_talk(one.reading.texts)
        cited, unsupported = cite(texts, chunk, floor=floor, embed=embed)
        steps += cited
        dropped += [*one.reading.dropped, *talk, *unsupported]
    return steps, dropped, notes


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
