"""The language-model writer: steps from chunks of about 150 words, each citing the sentences that
support it.

Source: NaSVA, section 3.1. Differs: every step must cite sentences of its chunk. Times in a reply
are cut out, and steps that mean the same are merged. Chunks that miss the deadline are written by
the extractive writer, with a note.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepline.errors import WriterError
from stepline.llm import requests as reply_cache
from stepline.llm.checked_requests import DEADLINE_PASSED, CheckedQuestion, CheckedRequests
from stepline.llm.pictures import question_tokens
from stepline.llm.requests import RequestLimits, run_in_threads
from stepline.llm.servers import Answer, open_server
from stepline.records import Rejected, Step, Transcript
from stepline.text import embed as minilm
from stepline.text.narration import load_tagger
from stepline.text.narration.words import SENTENCE_KINDS
from stepline.writing.extractive.narration import non_english_note
from stepline.writing.extractive.repeats import merge_by_meaning, number_steps
from stepline.writing.extractive.writer import write_extractive
from stepline.writing.llm.citing import (
    Embed,
    cite_sources,
    content_words,
    name_different_things,
    unsaid_reason,
)
from stepline.writing.llm.prompts import (
    STEPS_SCHEMA,
    Chunk,
    ChunkContext,
    Prompt,
    build_prompt,
    chosen_prompt,
    chunk_context,
    find_model_instructions,
    split_transcript,
)
from stepline.writing.llm.replies import ParsedReply, parse_reply
from stepline.writing.settings import LlmSettings
from stepline.writing.types import WrittenSteps

logger = logging.getLogger(__name__)

Fallback = Callable[[Transcript], WrittenSteps]

WITHHELD_REASON = "addresses a language model, not the viewer; withheld from it"
_citing = threading.Lock()  # one reply at a time is compared with its chunk


@dataclass(frozen=True)
class ChunkSteps:
    """The steps that a language model wrote of one chunk.

    Attributes:
        chunk: consecutive sentences of the transcript.
        steps: in the order of the reply, each with its source sentences.
        dropped: rejected lines of the replies.
        notes: lines for the user, for example about a refused reply or removed times.
        reason: why the fallback writes the chunk instead, "" if the model wrote it.
        is_rejected: whether the server refused the request for good.
        retold: indices of the sentences that the fallback writes, because the model's step names a
            number that is not said.
    """

    chunk: Chunk
    steps: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""
    is_rejected: bool = False
    retold: tuple[int, ...] = ()


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
        prompt: a template for experiments. None: the one that the settings name.
        fallback: returns the steps of the whole transcript, of which those of failed chunks are
            taken. None: the extractive writer.
        embed: returns one unit vector per text, (N, D). None: MiniLM.
        title: title of the video, "" without one.
    Raises WriterError when the server is missing or refuses access, ModelError when a library or
    model is missing.
    """
    withheld = find_model_instructions(transcript)
    chunks = split_transcript(transcript, settings, withheld)
    withheld_records = [
        Rejected(what="sentence", text=transcript.sentences[index].text, reason=WITHHELD_REASON)
        for index in withheld
    ]
    if not chunks:
        return WrittenSteps(dropped=tuple(withheld_records))
    prompt = prompt or chosen_prompt(settings)
    fallback = fallback or write_extractive
    embed = embed or minilm
    # A dry run asks nothing. The fallback writes.
    if settings.dry_run:
        note = dry_run_note(chunks, prompt, settings)
        fallback_steps = fallback(transcript)
        dropped = (*withheld_records, *fallback_steps.dropped)
        return WrittenSteps(fallback_steps.steps, dropped, (note, *fallback_steps.notes))
    # what the model is asked, and what it answers
    cache = reply_cache.open_cache(settings.cache)
    server = open_server(settings)
    try:
        until = time.monotonic() + settings.deadline_for(len(chunks))
        is_english = non_english_note(transcript) is None
        writer = ChunkWriter(
            server, settings, cache, RequestLimits(), until, prompt, embed, is_english
        )
        written = _fill_gaps(transcript, _ask_chunks(writer, chunks, title), fallback)
    finally:
        server.close()
    steps = [step for step in written.steps if set(step.sources).isdisjoint(withheld)]
    merged = merge_by_meaning(steps, embed=embed, are_different=name_different_things)
    notes = written.notes + ((cache.write_error,) if cache.write_error else ())
    return WrittenSteps(number_steps(merged), (*withheld_records, *written.dropped), notes)


@dataclass(frozen=True)
class ChunkWriter(CheckedRequests):
    """Asks a language model for the steps of one chunk at a time, and cites their sources.

    Attributes:
        settings: server or model file, prompt and limits.
        prompt: the template that is filled with each chunk.
        embed: returns one unit vector per text, (N, D).
        is_english: whether the transcript is English. Then steps that are talk to the audience are
            dropped.
    """

    settings: LlmSettings
    prompt: Prompt
    embed: Embed = minilm
    is_english: bool = True

    def write(self, chunk: Chunk, context: ChunkContext | None = None) -> ChunkSteps:
        """Return the model's steps for a chunk, or the reason why there are none.

        context: the chunk's context, None for a template without one.
        Raises WriterError when the server cannot be used at all.
        """

        def content(with_reminder: bool) -> str:
            return build_prompt(self.prompt, chunk, context, with_reminder=with_reminder)

        def parse_answer(answer: Answer) -> ParsedReply:
            return parse_reply(
                answer.text,
                spoken=chunk.text,
                sentences=len(chunk.sentences),
                complete=answer.complete,
                cites=self.prompt.has_numbers,
            )

        reply = self.ask(
            CheckedQuestion(
                key_parts={"prompt": self.prompt.name, "question": content(False)},
                content=content,
                parse=parse_answer,
                refusal=lambda parsed: parsed.refusal,
                schema=STEPS_SCHEMA if self.prompt.asks_for_json else None,
            )
        )
        refused = [parsed for parsed in reply.readings if parsed.refusal is not None]
        # Lines of refused replies are reported, also where a later reply is taken.
        dropped = list(dict.fromkeys(line for parsed in refused for line in parsed.dropped))
        if reply.fault is not None:
            reason, is_rejected = reply.fault.reason, reply.fault.rejected
            return ChunkSteps(chunk, dropped=tuple(dropped), reason=reason, is_rejected=is_rejected)
        parsed = reply.readings[-1]
        if parsed.refusal is not None:
            return ChunkSteps(chunk, dropped=tuple(dropped), reason=parsed.refusal)
        notes = [f"a reply was refused ({other.refusal}) and asked for again" for other in refused]
        if parsed.times:
            notes.append(f"times that the model wrote were cut out: {', '.join(parsed.times)}")
        dropped += parsed.dropped
        with _citing:
            reasons = talk_reasons(parsed.texts) if self.is_english else [None] * len(parsed.texts)
            texts = []
            cited: list[tuple[int, ...]] = []
            for k, (text, talk_reason) in enumerate(zip(parsed.texts, reasons, strict=True)):
                if talk_reason is None:
                    texts.append(text)
                    cited += parsed.cited[k : k + 1]
                else:
                    dropped.append(Rejected(what="step", text=text, reason=talk_reason))
            steps, unsupported = cite_sources(
                texts, chunk, floor=self.settings.floor, embed=self.embed, cited=cited
            )
        reason = ""
        if unsupported and not steps:
            reason = "no sentence supports any step of the reply"
        said_steps = []
        retold: list[int] = []
        for step in steps:
            unsaid = unsaid_reason(step, chunk)
            if unsaid is None:
                said_steps.append(step)
            else:
                dropped.append(Rejected(what="step", text=step.text, reason=unsaid))
                retold += step.sources
        return ChunkSteps(
            chunk,
            tuple(said_steps),
            (*dropped, *unsupported),
            tuple(notes),
            reason,
            retold=tuple(retold),
        )


def _ask_chunks(writer: ChunkWriter, chunks: Sequence[Chunk], title: str) -> list[ChunkSteps]:
    """Return the steps of each chunk, in order. A chunk that misses the deadline has none and says so.

    title: title of the video, "" without one.
    Raises WriterError if the server refuses every request, because then the settings are wrong.
    """
    start = time.monotonic()
    # A prompt with a context holds the steps of earlier chunks, so one worker takes all in order.
    has_context = writer.prompt.has_context
    texts: list[str] = []

    def write(chunk: Chunk) -> ChunkSteps:
        context = chunk_context(chunk, chunks, title, texts) if has_context else None
        part = writer.write(chunk, context)
        texts.extend(step.text for step in part.steps)
        return part

    workers = 1 if has_context else writer.server.workers
    written = run_in_threads(write, chunks, workers=workers, until=writer.until)
    logger.info("asked for %d chunks in %.1f s", len(chunks), time.monotonic() - start)
    parts = [
        written.get(number, ChunkSteps(chunk, reason=DEADLINE_PASSED))
        for number, chunk in enumerate(chunks)
    ]
    if all(part.is_rejected for part in parts):
        cure = "correct the settings under writing.llm"
        raise WriterError(f"{writer.settings.base_url}: {parts[0].reason}; {cure}")
    return parts


def dry_run_note(chunks: Sequence[Chunk], prompt: Prompt, settings: LlmSettings) -> str:
    """Return a note to the user with the most requests, tokens and seconds that the chunks would cost,
    without retries."""
    # tokens of replies, and of questions
    tokens = len(chunks) * settings.max_tokens
    tokens += sum(question_tokens(len(build_prompt(prompt, chunk)), ()) for chunk in chunks)
    seconds = settings.deadline_for(len(chunks))
    request_cost = f"{len(chunks)} requests, {tokens} tokens and {seconds:g} s"
    request = f"the language model that writes would be asked at most {request_cost}"
    return f"dry run: {request}; the grammar wrote the steps"


def _fill_gaps(
    transcript: Transcript, parts: Sequence[ChunkSteps], fallback: Fallback
) -> WrittenSteps:
    """Return the steps of all chunks, with those of failed chunks from the fallback.

    What the fallback rejected is reported only if it wrote all chunks, because it is not known to
    which chunk it belongs.

    Args:
        transcript: the whole transcript.
        parts: what the model wrote of each chunk, in order.
        fallback: returns the steps of the whole transcript.
    """
    # The fallback reads the whole transcript, however few chunks are missing.
    has_gaps = any(part.reason or part.retold for part in parts)
    fallback_steps = fallback(transcript) if has_gaps else WrittenSteps()
    steps: list[Step] = []
    notes = list(fallback_steps.notes)
    dropped = list(fallback_steps.dropped) if all(part.reason for part in parts) else []
    for part in parts:
        if part.reason:
            # Its steps that rest on a sentence of this chunk.
            indices = set(part.chunk.indices)
            steps += [step for step in fallback_steps.steps if not indices.isdisjoint(step.sources)]
        else:
            steps += _with_retold(part, fallback_steps.steps)
        dropped += part.dropped
        sentences = f"sentences {part.chunk.indices[0] + 1}-{part.chunk.indices[-1] + 1}"
        notes += [f"{sentences}: {note}" for note in part.notes]
        if part.reason:
            cause = f"from the extractive writer, because {part.reason}"
            notes.append(f"{sentences}: provisional, {cause}")
    return WrittenSteps(tuple(steps), tuple(dropped), tuple(notes))


def _with_retold(part: ChunkSteps, fallback_steps: Sequence[Step]) -> list[Step]:
    """Return the steps of a chunk, with the fallback's steps of its `retold` sentences among them.

    A step of the fallback is left out if a step that shares a source says all its content words.
    """
    steps = list(part.steps)
    for added in fallback_steps:
        if not set(part.retold).issuperset(added.sources):
            continue
        sharing = [step for step in steps if not set(step.sources).isdisjoint(added.sources)]
        words, *sharing_words = content_words([added.text, *(step.text for step in sharing)])
        if any(words <= other for other in sharing_words):
            continue
        later = [k for k, step in enumerate(steps) if step.sources[-1] > added.sources[-1]]
        steps.insert(later[0] if later else len(steps), added)
    return steps


# P(talk) of a step from which it is dropped. Of 18 steps of talk 14 are above. Of 27 that only hold
# words of a channel ("peel a thumb sized piece of ginger") or are strange, 2 are above.
MIN_TALK_PROBABILITY = 0.9
# A step is read between these two: alone, or among talk, "cut the onion" passes for talk.
SENTENCE_BEFORE_STEP = "Now put the water on the heat."
SENTENCE_AFTER_STEP = "Then add the rest and stir it."
TALK_REASON = "chat: talk to the audience, not a step of the work"


def talk_reasons(texts: Sequence[str]) -> list[str | None]:
    """Return for each English step the reason to drop it as talk to the audience, None for a step of the
    work.

    Raises ModelError when the sentence encoder is not installed.
    """
    talk = SENTENCE_KINDS.index("talk")
    reasons: list[str | None] = []
    for text in texts:
        sentence = text.rstrip(".") + "."
        sentences = [SENTENCE_BEFORE_STEP, sentence, SENTENCE_AFTER_STEP]
        _, tags, _ = load_tagger().tag_sentences(sentences)
        reasons.append(TALK_REASON if tags.kinds[talk] >= MIN_TALK_PROBABILITY else None)
    return reasons
