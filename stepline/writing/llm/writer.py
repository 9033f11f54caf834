"""The language-model writer: steps from chunks of about 150 words, each citing the sentences that
support it.

Source: NaSVA, section 3.1. Differs: every step must cite sentences of its chunk. Times in a reply
are cut out, and steps that mean the same are merged. Chunks that miss the deadline are written by
the extractive writer, with a note.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stepline.errors import WriterError
from stepline.llm import requests as reply_cache
from stepline.llm.checked_requests import DEADLINE_PASSED
from stepline.llm.pictures import question_tokens
from stepline.llm.requests import RequestLimits, run_in_threads
from stepline.llm.servers import open_server
from stepline.records import Rejected, Step, Transcript
from stepline.text import embed as minilm
from stepline.text.narration import load_tagger
from stepline.text.narration.words import SENTENCE_KINDS
from stepline.writing.extractive.reading import non_english_note
from stepline.writing.extractive.repeats import merge_by_meaning, merge_repeats, number_steps
from stepline.writing.extractive.writer import write_extractive
from stepline.writing.llm.citing import Embed, cite_sources, name_different_things
from stepline.writing.llm.prompts import (
    Chunk,
    Prompt,
    build_prompt,
    chosen_prompt,
    chunk_context,
    find_model_instructions,
    split_transcript,
)
from stepline.writing.llm.replies import ParsedReply
from stepline.writing.llm.requests import ChunkReply, RequestRunner
from stepline.writing.settings import LlmSettings
from stepline.writing.types import WrittenSteps

logger = logging.getLogger(__name__)

Fallback = Callable[[Transcript], WrittenSteps]

WITHHELD_REASON = "addresses a language model, not the viewer; withheld from it"


@dataclass(frozen=True)
class ChunkSteps:
    """The steps of one chunk. reason: why the fallback writes them, "" where the model did."""

    chunk: Chunk
    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...]
    notes: tuple[str, ...]
    reason: str


def write_llm(
    transcript: Transcript,
    settings: LlmSettings,
    *,
    prompt: Prompt | None = None,
    fallback: Fallback | None = None,
    embed: Embed | None = None,
    title: str = "",
) -> WrittenSteps:
    """Return the steps that a language model finds in the transcript, with source sentences.

    Args:
        transcript: sentences with their times.
        settings: server or model file, prompt and limits.
        prompt: for experiments; by default the one of the settings.
        fallback: writes the whole transcript where the model fails (default: the extractive
            writer).
        embed: texts to unit vectors (default: MiniLM).
        title: of the video, "" without one.
    Raises WriterError when the server is missing or refuses access, ModelError when a library or
    model is missing.
    """
    withheld = find_model_instructions(transcript)
    chunks = split_transcript(transcript, settings)
    withheld_records = []
    for number in withheld:
        text = transcript.sentences[number].text
        withheld_records.append(Rejected(what="sentence", text=text, reason=WITHHELD_REASON))
    if not chunks:
        return WrittenSteps(dropped=tuple(withheld_records))
    prompt = prompt or chosen_prompt(settings)
    fallback = fallback or write_extractive
    # A dry run asks nothing. The fallback writes.
    if settings.dry_run:
        note = dry_run_note(chunks, prompt, settings)
        fallback_steps = fallback(transcript)
        dropped = (*withheld_records, *fallback_steps.dropped)
        return WrittenSteps(fallback_steps.steps, dropped, (note, *fallback_steps.notes))
    request = TranscriptRequest(
        chunks=chunks,
        prompt=prompt,
        settings=settings,
        title=title,
        embed=embed or minilm,
        is_english=non_english_note(transcript) is None,
    )
    written = _write_by_model(request, transcript, fallback, withheld)
    return replace(written, dropped=(*withheld_records, *written.dropped))


@dataclass(frozen=True)
class TranscriptRequest:
    """The request for a whole transcript: chunks, prompt and settings.

    is_english: then talk is filtered out.
    """

    chunks: tuple[Chunk, ...]
    prompt: Prompt
    settings: LlmSettings
    title: str
    embed: Embed
    is_english: bool

    def cite(self, chunk: Chunk, reply: ChunkReply) -> ChunkSteps:
        """Return the model's steps for a chunk with their sources, or why none can be used."""
        if self.is_english:
            reply = _without_talk(reply)
        reading = reply.reading or ParsedReply()
        steps, unsupported = cite_sources(
            reading.texts, chunk, floor=self.settings.floor, embed=self.embed
        )

        # why it has no steps, and what is noted
        reason = reply.reason
        if unsupported and not steps:
            reason = "no sentence supports any step of the reply"
        sentences = f"sentences {chunk.indices[0] + 1}-{chunk.indices[-1] + 1}"
        notes = [f"{sentences}: {note}" for note in reply.notes]
        if reason:
            notes.append(f"{sentences}: provisional, from the extractive writer, because {reason}")
        dropped = (*reply.dropped, *reading.dropped, *unsupported)
        return ChunkSteps(chunk, tuple(steps), dropped, tuple(notes), reason)


def _write_by_model(
    request: TranscriptRequest, transcript: Transcript, fallback: Fallback, withheld: Sequence[int]
) -> WrittenSteps:
    """Return the numbered steps of all chunks, repeats merged."""
    settings = request.settings
    cache = reply_cache.open_cache(settings.cache)
    server = open_server(settings)
    try:
        until = time.monotonic() + settings.deadline_for(len(request.chunks))
        runner = RequestRunner(server, settings, cache, RequestLimits(), until, request.prompt)
        parts = _ask_chunks(runner, request)
        all_steps = _fill_gaps(transcript, parts, fallback)
    finally:
        server.close()
    steps = [step for step in all_steps.steps if set(step.sources).isdisjoint(withheld)]
    merged = merge_by_meaning(
        merge_repeats(steps), embed=request.embed, are_different=name_different_things
    )

    # what a record holds next to the steps
    notes = list(all_steps.notes)
    if cache.write_error:
        notes.append(cache.write_error)
    return WrittenSteps(number_steps(merged), all_steps.dropped, tuple(notes))


def _ask_chunks(runner: RequestRunner, request: TranscriptRequest) -> list[ChunkSteps]:
    """Return the steps of each chunk, none for a chunk that misses the deadline.

    Raises WriterError where the server refuses every request: then the settings are wrong.
    """
    chunks = request.chunks
    start = time.monotonic()
    if request.prompt.has_context:
        parts = _ask_in_turn(runner, request)
    else:
        parts = {}
        workers = runner.server.workers
        replies = run_in_threads(runner.serve, chunks, workers=workers, until=runner.until)
        for number, reply in replies.items():
            parts[number] = reply, request.cite(chunks[number], reply)
    logger.info("asked for %d chunks in %.1f s", len(chunks), time.monotonic() - start)

    # chunks without a reply in time
    missed_reply = ChunkReply(reason=DEADLINE_PASSED)
    for number, chunk in enumerate(chunks):
        if number not in parts:
            parts[number] = missed_reply, request.cite(chunk, missed_reply)
    if all(reply.rejected for reply, _ in parts.values()):
        first_reply, _ = parts[0]
        cure = "correct the settings under writing.llm"
        raise WriterError(f"{request.settings.base_url}: {first_reply.reason}; {cure}")
    return [parts[number][1] for number in range(len(chunks))]


def _ask_in_turn(
    runner: RequestRunner, request: TranscriptRequest
) -> dict[int, tuple[ChunkReply, ChunkSteps]]:
    """Return the reply and steps of each chunk by index. Each prompt holds earlier chunks' steps."""
    texts: list[str] = []

    def serve(chunk: Chunk) -> tuple[ChunkReply, ChunkSteps]:
        context = chunk_context(chunk, request.chunks, request.title, texts)
        reply = runner.serve(chunk, context)
        part = request.cite(chunk, reply)
        texts.extend(step.text for step in part.steps)
        return reply, part

    # one worker, which takes them in their order
    return run_in_threads(serve, request.chunks, workers=1, until=runner.until)


def dry_run_note(chunks: Sequence[Chunk], prompt: Prompt, settings: LlmSettings) -> str:
    """Return a note with the maximum requests, tokens and seconds, without retries."""
    # tokens of replies, and of questions
    tokens = len(chunks) * settings.max_tokens
    for chunk in chunks:
        tokens += question_tokens(len(build_prompt(prompt, chunk)), ())
    seconds = settings.deadline_for(len(chunks))
    request_cost = f"{len(chunks)} requests, {tokens} tokens and {seconds:g} s"
    request = f"the language model that writes would be asked at most {request_cost}"
    return f"dry run: {request}; the grammar wrote the steps"


def _without_talk(reply: ChunkReply) -> ChunkReply:
    """Return the reply with talk to the audience moved from its steps to the dropped lines."""
    reading = reply.reading
    if reading is None or not reading.texts:
        return reply
    reasons = talk_reasons(reading.texts)
    work_texts = []
    dropped = list(reading.dropped)
    for text, reason in zip(reading.texts, reasons, strict=True):
        if reason is None:
            work_texts.append(text)
        else:
            dropped.append(Rejected(what="step", text=text, reason=reason))
    reading = replace(reading, texts=tuple(work_texts), dropped=tuple(dropped))
    return replace(reply, reading=reading)


def _fill_gaps(
    transcript: Transcript, parts: Sequence[ChunkSteps], fallback: Fallback
) -> WrittenSteps:
    """Return the steps of all chunks, the failed chunks from the fallback.

    Lines that the fallback dropped are reported only where it wrote all chunks, for they carry no
    chunk.
    """
    # The fallback reads the whole transcript, however few chunks are missing.
    fallback_steps = WrittenSteps()
    if any(part.reason for part in parts):
        fallback_steps = fallback(transcript)
    steps: list[Step] = []
    dropped: list[Rejected] = []
    notes = list(fallback_steps.notes)
    if all(part.reason for part in parts):
        dropped += fallback_steps.dropped
    for part in parts:
        if part.reason:
            # Its steps that rest on a sentence of this chunk.
            indices = set(part.chunk.indices)
            steps += [step for step in fallback_steps.steps if not indices.isdisjoint(step.sources)]
        else:
            steps += part.steps
        dropped += part.dropped
        notes += part.notes
    return WrittenSteps(tuple(steps), tuple(dropped), tuple(notes))


# P(talk) of a step from which it is dropped. Of 18 steps of talk 14 are above. Of 27 that only hold
# words of a channel ("peel a thumb sized piece of ginger") or are strange, 2 are above.
MIN_TALK_PROBABILITY: Final = 0.9
# A step is read between these two: alone, or among talk, "cut the onion" passes for talk.
SENTENCE_BEFORE_STEP: Final = "Now put the water on the heat."
SENTENCE_AFTER_STEP: Final = "Then add the rest and stir it."
TALK_REASON: Final = "chat: talk to the audience, not a step of the work"


def talk_reasons(texts: Sequence[str]) -> list[str | None]:
    """Return why each English step is talk to the audience, None for a step of the work.

    Raises ModelError when the sentence encoder is not installed.
    """
    talk = SENTENCE_KINDS.index("talk")
    tagger = load_tagger()
    reasons: list[str | None] = []
    for text in texts:
        sentence = text.rstrip(".") + "."
        _, reading, _ = tagger.read_sentences([SENTENCE_BEFORE_STEP, sentence, SENTENCE_AFTER_STEP])
        reasons.append(TALK_REASON if reading.kinds[talk] >= MIN_TALK_PROBABILITY else None)
    return reasons
