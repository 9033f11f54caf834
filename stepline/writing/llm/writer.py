"""The language-model writer, in one of three forms. Each step cites the sentences that support it.

edit    a small model names doubtful pronouns in the steps of the extractive writer (editing.py)
write   a strong model reads long parts of numbered sentences, and chooses
nasva   chunks of about ten sentences give a numbered list (NaSVA, section 3.1)

Differs from NaSVA: every step must cite sentences of its chunk. Times in a reply are cut out, and
steps that mean the same are merged. What misses the deadline is written by the extractive writer,
with a note.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from stepline.llm import requests as reply_cache
from stepline.llm.checked_requests import DEADLINE_PASSED, CheckedQuestion, CheckedRequests
from stepline.llm.pictures import question_tokens
from stepline.llm.requests import ReplyCache, RequestLimits, run_in_threads
from stepline.llm.servers import Answer, open_server
from stepline.progress import Progress
from stepline.records import Rejected, Step, Transcript
from stepline.text import embed as minilm
from stepline.text.narration import load_tagger
from stepline.text.narration.words import SENTENCE_KINDS
from stepline.writing.extractive.narration import ParsedNarration, non_english_note, parse_narration
from stepline.writing.extractive.repeats import merge_by_meaning, number_steps
from stepline.writing.extractive.writer import write_extractive
from stepline.writing.llm.citing import (
    NEAR_SENTENCES,
    Embed,
    cite_sources,
    content_words,
    name_different_things,
    reject_unsaid,
)
from stepline.writing.llm.editing import QUESTION_TOKENS, edit_steps, rejected_error
from stepline.writing.llm.probe import is_strong
from stepline.writing.llm.prompts import (
    Chunk,
    ChunkContext,
    ChunkSteps,
    Prompt,
    build_prompt,
    chunk_context,
    find_model_instructions,
    form_prompt,
    split_transcript,
)
from stepline.writing.llm.replies import ParsedReply, parse_reply
from stepline.writing.settings import LlmSettings, WritingSettings
from stepline.writing.types import WrittenSteps

logger = logging.getLogger(__name__)

Fallback = Callable[[Transcript], WrittenSteps]

SENTENCES_PER_QUESTION = (
    5  # of form=edit, at least: a step is asked about if its pronoun is doubtful
)
# Of form=edit, at least: few steps have a doubtful pronoun.
SENTENCES_PER_QUESTION = 5
WITHHELD_REASON = "addresses a language model, not the viewer; withheld from it"
_citing = threading.Lock()  # one reply at a time is compared with its chunk


def write_llm(
    transcript: Transcript,
    settings: LlmSettings,
    *,
    prompt: Prompt | None = None,
    fallback: Fallback | None = None,
    embed: Embed | None = None,
    title: str = "",
    writing: WritingSettings | None = None,
    narration: ParsedNarration | None = None,
    progress: Progress | None = None,
) -> WrittenSteps:
    """Return the steps that a language model finds in the transcript, with source sentences.

    Args:
        transcript: sentences with their times.
        settings: server or model file, form and limits.
        prompt: a template for experiments, in place of the one of the form "nasva".
        fallback: returns the steps of the whole transcript, of which those of failed chunks are
            taken. None: the extractive writer.
        embed: returns one unit vector per text, (N, D). None: MiniLM.
        title: title of the video, "" without one.
        writing: how the extractive writer writes. None: its defaults.
        narration: the parsed transcript, if it exists already.
        progress: as in `write_steps`.
    Raises WriterError when the server is missing or refuses access, ModelError when a library or
    model is missing.
    """
    withheld = find_model_instructions(transcript)
    withheld_records = tuple(
        Rejected(what="sentence", text=transcript.sentences[index].text, reason=WITHHELD_REASON)
        for index in withheld
    )
    if len(withheld) == len(transcript.sentences):
        return WrittenSteps(dropped=withheld_records)

    @cache
    def write_fallback() -> WrittenSteps:
        if fallback is not None:
            return fallback(transcript)
        return write_extractive(transcript, writing, narration=narration)

    # A dry run asks nothing. The fallback writes.
    if settings.dry_run:
        note = dry_run_note(transcript, settings, withheld)
        dropped = (*withheld_records, *write_fallback().dropped)
        return WrittenSteps(write_fallback().steps, dropped, (note, *write_fallback().notes))
    settings = settings.with_model()
    embed = embed or minilm
    is_english = non_english_note(transcript) is None
    words = sum(len(sentence.text.split()) for sentence in transcript.sentences)
    until = time.monotonic() + settings.deadline_seconds(words)
    replies = reply_cache.open_cache(settings.cache)
    notes: tuple[str, ...] = ()
    if prompt is None:
        settings, notes = _choose_request_form(settings, replies, until, is_english=is_english)
    start = time.monotonic()
    server = open_server(settings)

    def report(sentence: int) -> None:
        if progress is not None:
            second = transcript.sentences[sentence].span.end
            progress("writing", second, transcript.sentences[-1].span.end)

    try:
        limits = RequestLimits()
        if prompt is None and settings.form == "edit":
            # parsed before the extractive writer reads it too
            narration = narration or parse_narration(transcript)
            requests = CheckedRequests(server, settings, replies, limits, until)
            filled = edit_steps(write_fallback(), narration, withheld, requests, report)
        else:
            prompt = prompt or form_prompt(settings)
            chunks = split_transcript(transcript, settings, prompt, withheld)
            writer = ChunkWriter(
                server, settings, replies, limits, until, prompt, embed, is_english
            )
            written = _ask_chunks(writer, chunks, title, report)
            parts = [
                written.get(number, ChunkSteps(chunk, fallback_reason=DEADLINE_PASSED))
                for number, chunk in enumerate(chunks)
            ]
            if parts and all(part.is_rejected for part in parts):
                raise rejected_error(settings, parts[0].fallback_reason)
            filled = _fill_gaps(parts, write_fallback)
    finally:
        server.close()
    logger.info("asked in %.1f s", time.monotonic() - start)
    steps = [step for step in filled.steps if set(step.sources).isdisjoint(withheld)]
    merged = merge_by_meaning(steps, embed=embed, are_different=name_different_things)
    notes += filled.notes + ((replies.write_error,) if replies.write_error else ())
    return WrittenSteps(number_steps(merged), (*withheld_records, *filled.dropped), notes)


def _choose_request_form(
    settings: LlmSettings, replies: ReplyCache, until: float, *, is_english: bool
) -> tuple[LlmSettings, tuple[str, ...]]:
    """Return the settings with "auto" replaced by a request form that fits model and language, and a
    note to the user about that.

    A strong model is asked to "write", another to "edit". "edit" becomes "nasva" for a transcript
    that is not English, because the scorer that chooses its sentences knows only English.

    Args:
        settings: server or model file, form and limits.
        replies: the reply cache, which may hold the model's reply to the probe of its strength.
        until: deadline, in seconds of the clock `time.monotonic`.
        is_english: whether the transcript is English.
    """
    form = settings.form
    if form == "auto":
        server = open_server(settings)
        try:
            requests = CheckedRequests(server, settings, replies, RequestLimits(), until)
            form = "write" if is_strong(requests) else "edit"
        finally:
            server.close()
    if form == "edit" and not is_english:
        form = "nasva"
    notes: tuple[str, ...] = ()
    if settings.form == "auto":
        passed = "passed" if form == "write" else "did not pass"
        notes = (f"writing.llm.form=auto took {form}: the model {passed} the test narration",)
    # made anew, since defaults depend on the form
    return LlmSettings(**{**settings.model_dump(exclude_unset=True), "form": form}), notes


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

        def content(fault: str) -> str:
            return build_prompt(self.prompt, chunk, context, fault)

        def parse_answer(answer: Answer) -> ParsedReply:
            return parse_reply(
                answer.text,
                spoken=chunk.text,
                sentences=len(chunk.sentences),
                complete=answer.complete,
                form="cited" if self.prompt.has_context else "list",
            )

        reply = self.ask(
            CheckedQuestion(
                key_parts={"prompt": self.prompt.name, "question": content("")},
                content=content,
                parse=parse_answer,
                refusal=lambda parsed: parsed.refusal,
            )
        )
        refused = [parsed for parsed in reply.readings if parsed.refusal is not None]
        # Lines of refused replies are reported, also where a later reply is taken.
        dropped = list(dict.fromkeys(line for parsed in refused for line in parsed.dropped))
        if reply.fault is not None:
            return ChunkSteps(
                chunk,
                dropped=tuple(dropped),
                fallback_reason=reply.fault.reason,
                is_rejected=reply.fault.rejected,
            )
        parsed = reply.readings[-1]
        if parsed.refusal is not None:
            return ChunkSteps(chunk, dropped=tuple(dropped), fallback_reason=parsed.refusal)
        notes = [f"a reply was refused ({other.refusal}) and asked for again" for other in refused]
        if parsed.removed_times:
            notes.append(
                f"times that the model wrote were cut out: {', '.join(parsed.removed_times)}"
            )
        dropped += parsed.dropped
        with _citing:
            reasons = talk_reasons(parsed.texts) if self.is_english else [None] * len(parsed.texts)
            texts = []
            cited: list[tuple[int, ...]] = []
            for k, (text, talk_reason) in enumerate(zip(parsed.texts, reasons, strict=True)):
                if talk_reason is None:
                    texts.append(text)
                    cited += parsed.cited_numbers[k : k + 1]
                else:
                    dropped.append(Rejected(what="step", text=text, reason=talk_reason))
            steps, unsupported = cite_sources(
                texts, chunk, floor=self.settings.floor, embed=self.embed, cited=cited
            )
        reason = ""
        if unsupported and not steps:
            reason = "no sentence supports any step of the reply"
        # A strong model takes an amount from the list of materials, however far away.
        near = len(chunk.sentences) if self.prompt.has_context else NEAR_SENTENCES
        said_steps, unsaid = reject_unsaid(steps, chunk, near=near)
        return ChunkSteps(
            chunk,
            tuple(said_steps),
            (*dropped, *(rejected for _, rejected in unsaid), *unsupported),
            tuple(notes),
            reason,
            fallback_sentences=tuple(index for step, _ in unsaid for index in step.sources),
        )


def _ask_chunks(
    writer: ChunkWriter, chunks: Sequence[Chunk], title: str, report: Callable[[int], None]
) -> dict[int, ChunkSteps]:
    """Return the steps of each chunk, by its index. A chunk that misses the deadline has none.

    Args:
        writer: asks about one chunk.
        chunks: in order.
        title: title of the video, "" without one.
        report: reports the progress. Its argument is the index of the last sentence of a chunk.
    """
    # A prompt with a context holds the steps of earlier chunks, so one worker takes all in order.
    has_context = writer.prompt.has_context
    texts: list[str] = []

    def write(chunk: Chunk) -> ChunkSteps:
        context = chunk_context(chunk, chunks, title, texts) if has_context else None
        part = writer.write(chunk, context)
        texts.extend(step.text for step in part.steps)
        report(chunk.indices[-1])
        return part

    workers = 1 if has_context else writer.server.workers
    return run_in_threads(write, chunks, workers=workers, until=writer.until)


def dry_run_note(transcript: Transcript, settings: LlmSettings, withheld: Sequence[int]) -> str:
    """Return a note to the user with about the most requests, tokens and seconds that a transcript
    would cost, without retries.

    withheld: indices of the sentences that the model is not shown.
    """
    words = sum(len(sentence.text.split()) for sentence in transcript.sentences)
    if settings.form in ("write", "nasva"):
        prompt = form_prompt(settings)
        chunks = split_transcript(transcript, settings, prompt, withheld)
        count = len(chunks)
        tokens = sum(question_tokens(len(build_prompt(prompt, chunk)), ()) for chunk in chunks)
    else:
        count = math.ceil(len(transcript.sentences) / SENTENCES_PER_QUESTION)
        tokens = count * QUESTION_TOKENS
    tokens += count * settings.max_tokens
    seconds = settings.deadline_seconds(words)
    return (
        "dry run: the language model that writes would be asked at most "
        f"{count} requests, {tokens} tokens and {seconds:g} s; the grammar wrote the steps"
    )


def _fill_gaps(parts: Sequence[ChunkSteps], fallback: Callable[[], WrittenSteps]) -> WrittenSteps:
    """Return the steps of all chunks, where a chunk that the model did not write has the steps of
    the fallback.

    What the fallback rejected is reported only if it wrote all chunks, because it is not known to
    which chunk it belongs.

    Args:
        parts: what the model wrote of each chunk, in order.
        fallback: returns the steps of the whole transcript.
    """
    has_gaps = any(part.fallback_reason or part.fallback_sentences for part in parts)
    fallback_steps = fallback() if has_gaps else WrittenSteps()
    steps: list[Step] = []
    notes = list(fallback_steps.notes)
    dropped = list(fallback_steps.dropped) if all(part.fallback_reason for part in parts) else []
    for reason, same in groupby(parts, key=lambda part: part.fallback_reason):
        run = list(same)
        for part in run:
            if reason:
                # Its steps that rest on a sentence of this chunk.
                indices = set(part.chunk.indices)
                for step in fallback_steps.steps:
                    if not indices.isdisjoint(step.sources) and step not in steps:
                        steps.append(step)
            else:
                steps += _with_retold(part, fallback_steps.steps)
            dropped += part.dropped
            notes += [f"{_sentence_range([part])}: {note}" for note in part.notes]
        if reason:
            notes.append(
                f"{_sentence_range(run)}: provisional, from the extractive writer, because {reason}"
            )
    return WrittenSteps(tuple(steps), tuple(dropped), tuple(notes))


def _sentence_range(parts: Sequence[ChunkSteps]) -> str:
    first, last = parts[0].chunk.indices[0], parts[-1].chunk.indices[-1]
    return f"sentences {first + 1}-{last + 1}"


def _with_retold(part: ChunkSteps, fallback_steps: Sequence[Step]) -> list[Step]:
    """Return the steps of a chunk, with the fallback's steps of its `retold` sentences among them.

    A step of the fallback is left out if a step that shares a source says all its content words.
    """
    steps = list(part.steps)
    for added in fallback_steps:
        if not set(part.fallback_sentences).issuperset(added.sources):
            continue
        sharing = [step for step in steps if not set(step.sources).isdisjoint(added.sources)]
        words, *sharing_words = content_words([added.text, *(step.text for step in sharing)])
        if any(words <= other for other in sharing_words):
            continue
        added = added.model_copy(update={"text": added.text[:1].upper() + added.text[1:]})
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
        sentences = [SENTENCE_BEFORE_STEP, text.rstrip(".") + ".", SENTENCE_AFTER_STEP]
        _, tags, _ = load_tagger().tag_sentences(sentences)
        reasons.append(
            TALK_REASON if tags.kind_probabilities[talk] >= MIN_TALK_PROBABILITY else None
        )
    return reasons
