"""The language-model writer: steps from chunks of about 150 words, each citing the sentences that
support it.

A step's sources are the sentences that share its content words and are near in meaning, in the
order of the speech.
Source: NaSVA, section 3.1. Differs: every step must cite sentences of its chunk, times in a reply
are cut out, steps that mean the same are folded, and what the model does not serve in time the
extractive writer serves, which a note says.

Letters: K steps of one reply, S sentences of its chunk.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from stepline.chat import requests as reply_cache
from stepline.chat.checked_requests import DEADLINE_PASSED
from stepline.chat.pictures import PICTURE_LETTERS, VideoPictures, question_tokens
from stepline.chat.requests import RequestLimits, run_in_threads
from stepline.chat.servers import open_server
from stepline.errors import WriterError
from stepline.records import Matrix, Rejected, Step, Transcript, covering_span
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.off_topic import small_talk_reasons
from stepline.writing.extractive.repeats import fold_by_meaning, merge_repeats, number_steps
from stepline.writing.llm.prompts import (
    Chunk,
    Prompt,
    build_prompt,
    chosen_prompt,
    chunks_of,
    context_of,
    find_model_orders,
    split_citation,
)
from stepline.writing.llm.replies import ParsedReply
from stepline.writing.llm.requests import ChunkReply, RequestRunner
from stepline.writing.settings import LlmSettings
from stepline.writing.types import WrittenSteps

logger = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], Matrix]  # texts -> (N, D) unit rows
Fallback = Callable[[Transcript], WrittenSteps]
Pictures = Mapping[int, Mapping[float, bytes]]  # by the number of the chunk: second -> JPEG

WORD_WEIGHT = 0.5  # of the shared fraction of a step's content words, next to a cosine
# cost of citing an earlier sentence than the step before: models keep the order of the speech, but
# for slips
BACKWARD_COST = 0.1
# with this fraction of a step's content words said, WORD_FLOOR x floor is enough; one common verb
# is not
MIN_SHARED_WORDS = 0.6
WORD_FLOOR = 0.5
# a neighbour that scores this fraction of the best sentence is cited too
MIN_NEIGHBOUR_SCORE = 0.85
# spaCy's coarse tags of the words that carry a step
CONTENT_TAGS = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "NUM"})
PARTICLE_TAGS = frozenset({"ADP", "ADV", "PART"})  # of "on" behind "turn"
PICTURE_STEP_REMARK = "seen, not said: a picture at {:.1f} s, by the writer"
PICTURE_REMARK = "for: the writer names what a picture at {:.1f} s shows"
_PICTURE_SECOND = re.compile(r"\ba picture at (\d+\.\d) s\b")  # in both of them
WITHHELD = "addresses a language model, not the viewer; withheld from it"
# content words that say nothing of a step
LIGHT_LEMMAS = frozenset(
    {"be", "have", "do", "go", "get", "make", "use", "take", "put", "let", "thing", "step", "-"}
)


@dataclass(frozen=True)
class Support:
    """How well each sentence supports each step: cosine and shared share of content words, both (K,
    S)."""

    cosine: Matrix
    shared: Matrix

    @property
    def score(self) -> Matrix:
        """The sum by which sentences are chosen, (K, S)."""
        return np.asarray(self.cosine + WORD_WEIGHT * self.shared, dtype=np.float32)


def cite_sources(
    texts: Sequence[str],
    chunk: Chunk,
    *,
    floor: float,
    embed: Embed,
    seconds: Sequence[Sequence[float]] = (),
    start: float = 0.0,
) -> tuple[list[Step], list[Rejected]]:
    """Return the texts as steps that cite sentences of the chunk, and those that no sentence
    supports.

    A sentence supports a step when their cosine is at least `floor`, or half of that where it says
    most of the step's content words. seconds: of the pictures that each text names, if any: half
    the floor is enough beside one, and a text that no sentence supports rests on the first alone.
    start: of the part of the video, for what is told of them.
    """
    support = measure_support(texts, [sentence.text for sentence in chunk.sentences], embed)
    path = choose_in_order(support.score) if texts else []
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for k, text in enumerate(texts):
        pictures = seconds[k] if seconds else ()
        rows = _sources(support, k, path[k], floor * (WORD_FLOOR if pictures else 1.0))
        if not rows and not pictures:
            dropped.append(Rejected(what="step", text=text, reason="no sentence supports it"))
            continue
        remark = PICTURE_REMARK if rows else PICTURE_STEP_REMARK
        step = Step(
            id="0",
            text=text,
            sources=tuple(chunk.indices[row] for row in rows),
            said=covering_span(chunk.sentences[row].span for row in rows),
            at=None if rows else pictures[0],
            seen=tuple(remark.format(start + second) for second in pictures),
        )
        steps.append(step)
    return steps, dropped


def named_seconds(step: Step) -> list[float]:
    """Return the seconds, of the whole video, of the pictures that the writer says a step rests
    on."""
    return [float(second) for words in step.seen for second in _PICTURE_SECOND.findall(words)]


def measure_support(texts: Sequence[str], sentences: Sequence[str], embed: Embed) -> Support:
    """Return how well each of the S sentences supports each of the K texts."""
    if not texts:
        nothing = np.zeros((0, len(sentences)), np.float32)
        return Support(nothing, nothing)
    count = len(texts)
    rows = embed([*texts, *sentences])
    cosine = np.asarray(rows[:count] @ rows[count:].T, dtype=np.float32)  # (K, S)
    words = content_words([*texts, *sentences])
    shared = np.zeros(cosine.shape, dtype=np.float32)  # (K, S)
    for row, step in zip(shared, words[:count], strict=True):
        if step:
            row[:] = [len(step & sentence) / len(step) for sentence in words[count:]]
    return Support(cosine, shared)


def choose_in_order(score: Matrix) -> list[int]:
    """Return one sentence a step: the best sum of scores, where each step back in time costs
    BACKWARD_COST.

    score: (K, S). Ties keep the earlier sentence.
    """
    best = score[0].astype(np.float64)  # (S,)
    previous = np.zeros(score.shape, dtype=np.int64)  # (K, S): the sentence of the step before
    for k in range(1, len(score)):
        # (S, S): from row to column; below = backwards
        moves = best[:, None] - BACKWARD_COST * np.tri(len(best), k=-1)
        previous[k] = moves.argmax(axis=0)
        best = moves.max(axis=0) + score[k]
    path = [int(best.argmax())]
    for k in range(len(score) - 1, 0, -1):
        path.append(int(previous[k, path[-1]]))
    return path[::-1]


def content_words(texts: Sequence[str]) -> list[frozenset[str]]:
    """Return the lemmas of each text's content words, in lower case."""
    words = []
    for doc in parse(list(texts)):
        lemmas = {word.lemma_.lower() for word in doc if word.pos_ in CONTENT_TAGS}
        words.append(frozenset(lemmas - LIGHT_LEMMAS))
    return words


def say_different_things(one: str, other: str) -> bool:
    """Tell whether each of two steps names something that the other does not, verbs aside: other
    amounts, sides or directions, as in "turn it on" and "turn it off"."""
    words = []
    for doc in parse([one, other]):
        named = set()
        for word in doc:
            # "on" of "turn on": behind its verb, and not one of the small words between two things
            is_particle = (
                word.i > 0 and doc[word.i - 1].pos_ == "VERB" and word.pos_ in PARTICLE_TAGS
            )
            if is_particle or (word.pos_ in CONTENT_TAGS and word.pos_ != "VERB"):
                named.add(word.lemma_.lower())
        words.append(named - LIGHT_LEMMAS)
    return bool(words[0] - words[1]) and bool(words[1] - words[0])


def _sources(support: Support, k: int, best: int, floor: float) -> list[int]:
    """Return the best sentence, if it supports step k, and the neighbours that support it nearly as
    well."""
    score = support.score[k]
    cosine, shared = support.cosine[k], support.shared[k]
    said = (cosine >= WORD_FLOOR * floor) & (shared >= MIN_SHARED_WORDS)
    supporting = np.flatnonzero((cosine >= floor) | said).tolist()
    if not supporting:
        return []
    if best not in supporting:
        best = max(supporting, key=lambda row: score[row])
    least = MIN_NEIGHBOUR_SCORE * score[best]
    return [s for s in supporting if s == best or (abs(s - best) == 1 and score[s] >= least)]


@dataclass(frozen=True)
class ChunkSteps:
    """What the model made of one chunk; `reason` says why the fallback serves it, "" where the
    model did."""

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
    pictures: VideoPictures | None = None,
    title: str = "",
) -> WrittenSteps:
    """Return the steps that the model finds in the transcript, each with the sentences or pictures
    it rests on.

    prompt: for experiments; else that of the settings' file, else the main job's. fallback: writes
    the whole transcript where the model fails (the extractive writer by default). embed: texts to
    unit rows (MiniLM by default). pictures: of the video, for a model that sees; as many as the
    settings say are shown beside each chunk. title: of the video, "" where it has none.
    Raises WriterError when the named server is not there or refuses access, ModelError when a
    library or model is missing.
    """
    withheld = find_model_orders(transcript)
    chunks = chunks_of(transcript, settings)
    hidden = [
        Rejected(what="sentence", text=transcript.sentences[i].text, reason=WITHHELD)
        for i in withheld
    ]
    if not chunks:
        return WrittenSteps(dropped=tuple(hidden))
    seeing = pictures if settings.pictures else None
    prompt = prompt or chosen_prompt(settings, pictures=seeing is not None)
    fallback = fallback or _extractive
    if settings.dry_run:
        note = dry_run_note(chunks, prompt, settings, pictures=seeing is not None)
        whole = fallback(transcript)
        return WrittenSteps(whole.steps, (*hidden, *whole.dropped), (note, *whole.notes))

    # the steps of each chunk with what they rest on
    jpegs = _read_pictures(chunks, seeing, settings.pictures) if seeing is not None else {}
    start = seeing.start if seeing else 0.0
    embed = embed or _minilm

    def cite(chunk: Chunk, reply: ChunkReply) -> ChunkSteps:
        seconds = tuple(jpegs.get(chunk.number, ()))
        return _cite(chunk, reply, embed, settings.floor, seconds, start)

    parts, asking = _ask_chunks(Asking(chunks, prompt, settings, jpegs, title, cite))

    # what the model did not serve
    filled = _fill_gaps(transcript, parts, fallback)
    steps = [step for step in filled.steps if set(step.sources).isdisjoint(withheld)]
    folded = fold_by_meaning(merge_repeats(steps), embed=embed, differ=say_different_things)
    return WrittenSteps(
        number_steps(folded),
        (*hidden, *filled.dropped),
        (*asking.of_pictures(start, jpegs), *filled.notes, *asking.of_cache),
    )


@dataclass(frozen=True)
class Asking:
    """What the model is asked about a transcript. cite: makes the steps of a chunk of its reply."""

    chunks: tuple[Chunk, ...]
    prompt: Prompt
    settings: LlmSettings
    jpegs: Pictures
    title: str
    cite: "Callable[[Chunk, ChunkReply], ChunkSteps]"


@dataclass(frozen=True)
class AskingNotes:
    """What is to be reported of an asking: whom it went to, and what of the cache is broken."""

    server: str
    of_cache: tuple[str, ...]

    def of_pictures(self, start: float, jpegs: Pictures) -> list[str]:
        """Return where pictures went, if any did. start: of the part of the video."""
        seconds = [f"{start + second:.1f}" for chunk in jpegs.values() for second in chunk]
        if not seconds:
            return []
        return [f"pictures went to {self.server}: those at {', '.join(seconds)} s"]


def _ask_chunks(asking: Asking) -> tuple[list[ChunkSteps], AskingNotes]:
    """Return the steps of each chunk, a late one with none.

    Raises WriterError where the server refuses every question: then the settings are wrong, not the
    speech.
    """
    chunks, settings = asking.chunks, asking.settings
    cache = reply_cache.open_cache(settings.cache)
    server = open_server(settings)
    try:
        start = time.monotonic()
        until = start + settings.seconds_for(len(chunks))
        runner = RequestRunner(
            server, settings, cache, RequestLimits(), until, asking.prompt, asking.jpegs
        )
        if asking.prompt.in_context:
            parts = _ask_in_turn(runner, asking)
        else:
            replies = run_in_threads(runner.serve, chunks, workers=server.workers, until=until)
            parts = {n: (reply, asking.cite(chunks[n], reply)) for n, reply in replies.items()}
        logger.info("asked for %d chunks in %.1f s", len(chunks), time.monotonic() - start)
    finally:
        server.close()
    late = ChunkReply(reason=DEADLINE_PASSED)
    for number in set(range(len(chunks))) - set(parts):
        parts[number] = late, asking.cite(chunks[number], late)
    if all(reply.rejected for reply, _ in parts.values()):
        cure = "correct the settings under writing.llm"
        raise WriterError(f"{settings.base_url}: {parts[0][0].reason}; {cure}")
    broken = (cache.broken,) if cache.broken else ()
    return [parts[n][1] for n in range(len(chunks))], AskingNotes(server.name, broken)


def _ask_in_turn(
    runner: RequestRunner, asking: Asking
) -> "dict[int, tuple[ChunkReply, ChunkSteps]]":
    """Return the reply and the steps of each chunk by its index; each prompt holds the steps of
    those before."""
    texts: list[str] = []

    def serve(chunk: Chunk) -> tuple[ChunkReply, ChunkSteps]:
        context = context_of(chunk, asking.chunks, asking.title, texts)
        reply = runner.serve(chunk, context)
        part = asking.cite(chunk, reply)
        texts.extend(step.text for step in part.steps)
        return reply, part

    # one worker, which takes them in their order
    return run_in_threads(serve, asking.chunks, workers=1, until=runner.until)


def _read_pictures(
    chunks: Sequence[Chunk], pictures: VideoPictures, count: int
) -> dict[int, dict[float, bytes]]:
    """Return the pictures beside each chunk, second -> JPEG, by its number.

    They are spread evenly from where it begins to be said, or the video, to where the next one
    does, or the video ends.
    """
    starts = [0.0, *(chunk.sentences[0].span.start for chunk in chunks[1:])]
    seconds: dict[int, list[float]] = {}
    for chunk, (start, end) in zip(chunks, pairwise([*starts, pictures.duration]), strict=True):
        if end > start:
            middles = [start + (end - start) * (n + 0.5) / count for n in range(count)]
            seconds[chunk.number] = [round(second, 1) for second in middles]
    jpegs = pictures.reader(list(chain(*seconds.values())))
    shown: dict[int, dict[float, bytes]] = {}
    for number, own in seconds.items():
        readable = {second: jpegs[second] for second in own if second in jpegs}
        if readable:
            shown[number] = readable
    return shown


def dry_run_note(
    chunks: Sequence[Chunk], prompt: Prompt, settings: LlmSettings, *, pictures: bool
) -> str:
    """Return what the model would be asked at most, without second tries."""
    pixels = []
    if pictures:
        pixels = [(settings.picture_size, 2 * settings.picture_size)] * settings.pictures
    tokens = len(chunks) * settings.max_tokens
    tokens += sum(question_tokens(len(build_prompt(prompt, chunk)), pixels) for chunk in chunks)
    most = f"{len(chunks)} requests, {tokens} tokens and {settings.seconds_for(len(chunks)):g} s"
    beside = f", {len(chunks) * len(pixels)} pictures beside them" if pixels else ""
    return f"dry run: the language model that writes would be asked at most {most}{beside}; the grammar wrote the steps"


def _cite(
    chunk: Chunk,
    reply: ChunkReply,
    embed: Embed,
    floor: float,
    seconds: Sequence[float] = (),
    start: float = 0.0,
) -> ChunkSteps:
    """Return the model's steps for a chunk, cited, or why there are none that can be used.

    seconds: of the pictures that it was shown, in their order. start: of the part of the video.
    """
    reading = reply.reading or ParsedReply()
    cited = [split_citation(text) if seconds else (text, ()) for text in reading.texts]
    dropped = [*reply.dropped, *reading.dropped]
    texts: list[str] = []
    pictures: list[list[float]] = []  # the seconds of those that each text names
    reasons = small_talk_reasons([text for text, _ in cited])
    for (text, letters), small_talk in zip(cited, reasons, strict=True):
        if small_talk is not None:
            dropped.append(Rejected(what="step", text=text, reason=small_talk))
            continue
        numbers = [PICTURE_LETTERS.index(letter) for letter in letters]
        texts.append(text)
        pictures.append([seconds[n] for n in numbers if n < len(seconds)])
    steps, unsupported = cite_sources(
        texts, chunk, floor=floor, embed=embed, seconds=pictures, start=start
    )
    reason = reply.reason
    if unsupported and not steps:
        reason = "no sentence supports any step of the reply"
    sentences = f"sentences {chunk.indices[0] + 1}-{chunk.indices[-1] + 1}"
    notes = [f"{sentences}: {note}" for note in reply.notes]
    if reason:
        notes.append(f"{sentences}: provisional, from the extractive writer, because {reason}")
    return ChunkSteps(chunk, tuple(steps), (*dropped, *unsupported), tuple(notes), reason)


def _fill_gaps(
    transcript: Transcript, parts: Sequence[ChunkSteps], fallback: Fallback
) -> WrittenSteps:
    """Return the steps of all chunks, those that the model did not serve as the fallback writes
    them.

    What the fallback leaves out is reported only where it served everything: it does not say from
    which chunk that was.
    """
    whole = WrittenSteps()
    if any(part.reason for part in parts):
        whole = fallback(transcript)
    steps: list[Step] = []
    dropped: list[Rejected] = []
    notes = list(whole.notes)
    if all(part.reason for part in parts):
        dropped += whole.dropped
    for part in parts:
        served = part.steps
        if part.reason:
            own = set(part.chunk.indices)
            served = tuple(step for step in whole.steps if not own.isdisjoint(step.sources))
        steps += served
        dropped += part.dropped
        notes += part.notes
    return WrittenSteps(tuple(steps), tuple(dropped), tuple(notes))


def _extractive(transcript: Transcript) -> WrittenSteps:
    from stepline.writing.extractive.writer import write_extractive

    return write_extractive(transcript)


def _minilm(texts: Sequence[str]) -> Matrix:
    from stepline.text import embed

    return embed(texts)
