"""The language-model writer: steps from chunks of about ten sentences, each citing the sentences
that support it.

A step's sources are the sentences that share its content words and are near in meaning, in the
order of the speech.
Source: NaSVA, section 3.1. Differs: every step must cite sentences of its chunk, times in a reply
are cut out, and what the model does not serve in time the extractive writer serves, which a note
says.

Letters: K steps of one reply, S sentences of its chunk.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
from stepline.writing.extractive.writer import merge_repeats, number_steps
from stepline.writing.llm.prompts import (
    Chunk,
    ParsedReply,
    Prompt,
    build_prompt,
    chosen_prompt,
    find_model_orders,
    split_citation,
    split_into_chunks,
)
from stepline.writing.llm.requests import ChunkReply, RequestRunner
from stepline.writing.settings import LlmSettings
from stepline.writing.types import WrittenSteps

logger = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], Matrix]  # texts -> (N, D) unit rows

WORDS = 0.5  # weight of the shared share of a step's content words, beside a cosine
BACK = (
    # cost of citing an earlier sentence than the step before: models keep the order of the speech,
    # but for slips
    0.1
)
# with this share of a step's content words said, WORD_FLOOR x floor is enough; one common verb is
# not
SHARED = 0.6
WORD_FLOOR = 0.5
BESIDE = 0.85  # a neighbour that scores this share of the best sentence is cited too
# spaCy's coarse tags of the words that carry a step
CONTENT = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "NUM"})
SEEN = "seen, not said: a picture at {:.1f} s, by the writer"
BESIDE_SPEECH = "for: the writer names what a picture at {:.1f} s shows"
_NAMED = re.compile(r"\ba picture at (\d+\.\d) s\b")  # in both of them
# no sign
LIGHT = frozenset(
    {"be", "have", "do", "go", "get", "make", "use", "take", "put", "let", "thing", "step"}
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
        return np.asarray(self.cosine + WORDS * self.shared, dtype=np.float32)


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
    chosen = choose_in_order(support.score) if texts else []
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for k, text in enumerate(texts):
        pictures = seconds[k] if seconds else ()
        rows = _sources(support, k, chosen[k], floor * (WORD_FLOOR if pictures else 1.0))
        if rows:
            said = covering_span(chunk.sentences[row].span for row in rows)
            seen = tuple(BESIDE_SPEECH.format(start + second) for second in pictures)
            sources = tuple(chunk.indices[row] for row in rows)
            steps.append(Step(id="0", text=text, sources=sources, said=said, seen=seen))
        elif pictures:
            seen = tuple(SEEN.format(start + second) for second in pictures)
            steps.append(Step(id="0", text=text, at=pictures[0], seen=seen))
        else:
            dropped.append(Rejected(what="step", text=text, reason="no sentence supports it"))
    return steps, dropped


def named_seconds(step: Step) -> list[float]:
    """Return the seconds, of the whole video, of the pictures that the writer says a step rests
    on."""
    return [float(second) for words in step.seen for second in _NAMED.findall(words)]


def measure_support(texts: Sequence[str], sentences: Sequence[str], embed: Embed) -> Support:
    """Return how well each of the S sentences supports each of the K texts."""
    if not texts:
        return Support(
            np.zeros((0, len(sentences)), np.float32), np.zeros((0, len(sentences)), np.float32)
        )
    rows = embed([*texts, *sentences])
    cosine = np.asarray(rows[: len(texts)] @ rows[len(texts) :].T, dtype=np.float32)  # (K, S)
    words = content_words([*texts, *sentences])
    steps, spoken = words[: len(texts)], words[len(texts) :]
    shared = [[len(step & said) / len(step) if step else 0.0 for said in spoken] for step in steps]
    return Support(cosine, np.asarray(shared, dtype=np.float32).reshape(cosine.shape))  # (K, S)


def choose_in_order(score: Matrix) -> list[int]:
    """Return one sentence a step: the best sum of scores, where each step back in time costs BACK.

    score: (K, S). Ties keep the earlier sentence.
    """
    best = score[0].astype(np.float64)  # (S,)
    came = np.zeros(score.shape, dtype=np.int64)  # (K, S): the sentence of the step before
    for k in range(1, len(score)):
        # (S, S): from row to column; below = backwards
        moves = best[:, None] - BACK * np.tri(len(best), k=-1)
        came[k] = moves.argmax(axis=0)
        best = moves.max(axis=0) + score[k]
    path = [int(best.argmax())]
    for k in range(len(score) - 1, 0, -1):
        path.append(int(came[k, path[-1]]))
    return path[::-1]


def content_words(texts: Sequence[str]) -> list[frozenset[str]]:
    """Return the lemmas of each text's content words, in lower case."""
    return [
        frozenset(
            word.lemma_.lower()
            for word in doc
            if word.pos_ in CONTENT and word.lemma_.lower() not in LIGHT | {"-"}
        )
        for doc in parse(list(texts))
    ]


def _sources(support: Support, k: int, chosen: int, floor: float) -> list[int]:
    """Return the chosen sentence, if it supports step k, and the neighbours that support it nearly
    as well."""
    score = support.score[k]
    cosine, shared = support.cosine[k], support.shared[k]
    supported = (cosine >= floor) | ((cosine >= WORD_FLOOR * floor) & (shared >= SHARED))
    if not supported[chosen]:
        others = np.flatnonzero(supported)
        if not len(others):
            return []
        chosen = int(others[score[others].argmax()])
    beside = [s for s in (chosen - 1, chosen + 1) if 0 <= s < len(score)]
    return sorted(
        [chosen, *(s for s in beside if supported[s] and score[s] >= BESIDE * score[chosen])]
    )


Fallback = Callable[[Transcript], WrittenSteps]


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
) -> WrittenSteps:
    """Return the steps that the model finds in the transcript, each with the sentences or pictures
    it rests on.

    prompt: for experiments; else that of the settings' file, else the main job's. fallback: writes
    the whole transcript where the model fails (the extractive writer by default). embed: texts to
    unit rows (MiniLM by default). pictures: of the video, for a model that sees; as many as the
    settings say are shown beside each chunk.
    Raises WriterError when the named server is not there or refuses access, ModelError when a
    library or model is missing.
    """
    withheld = find_model_orders(transcript)
    chunks = split_into_chunks(transcript, settings.sentences_per_chunk, withheld)
    reason = "addresses a language model, not the viewer; withheld from it"
    hidden = tuple(
        Rejected(what="sentence", text=transcript.sentences[i].text, reason=reason)
        for i in withheld
    )
    if not chunks:
        return WrittenSteps(dropped=hidden)
    seeing = pictures if settings.pictures else None
    prompt = prompt or chosen_prompt(settings.prompt_file, pictures=seeing is not None)
    fallback = fallback or _extractive
    if settings.dry_run:
        whole = fallback(transcript)
        note = _dry_run(chunks, prompt, settings, pictures=seeing is not None)
        return WrittenSteps(whole.steps, hidden + whole.dropped, (note, *whole.notes))

    # The model's replies, then the steps of each chunk with what they rest on.
    jpegs = _read_pictures(chunks, seeing, settings.pictures) if seeing is not None else {}
    replies, asking_notes = _ask_chunks(chunks, prompt, settings, jpegs)
    embed = embed or _minilm
    start = seeing.start if seeing else 0.0
    parts = []
    for chunk, reply in zip(chunks, replies, strict=True):
        seconds = tuple(jpegs.get(chunk.number, ()))
        parts.append(_part(chunk, reply, embed, settings.floor, seconds, start))

    # What the model did not serve is filled by the fallback.
    whole = _fallback(transcript, parts, fallback)
    steps: list[Step] = []
    dropped = [*hidden, *whole.dropped]
    notes = [*asking_notes.of_pictures(start, jpegs), *whole.notes]
    for part in parts:
        steps += _steps_within(part.chunk, whole) if part.reason else part.steps
        dropped += part.dropped
        notes += part.notes
    notes += asking_notes.of_cache
    steps = [step for step in steps if not set(step.sources) & set(withheld)]
    return WrittenSteps(number_steps(merge_repeats(steps)), tuple(dropped), tuple(notes))


@dataclass(frozen=True)
class AskingNotes:
    """What is to be reported of an asking: whom it went to, and what of the cache is broken."""

    server: str
    of_cache: tuple[str, ...]

    def of_pictures(self, start: float, jpegs: Mapping[int, Mapping[float, bytes]]) -> list[str]:
        """Return where pictures went, if any did. start: of the part of the video."""
        seconds = [f"{start + second:.1f}" for chunk in jpegs.values() for second in chunk]
        if not seconds:
            return []
        return [f"pictures went to {self.server}: those at {', '.join(seconds)} s"]


def _ask_chunks(
    chunks: Sequence[Chunk],
    prompt: Prompt,
    settings: LlmSettings,
    jpegs: dict[int, dict[float, bytes]],
) -> tuple[list[ChunkReply], AskingNotes]:
    """Return the reply to each chunk, a late one as none.

    Raises WriterError where the server refuses every question: then the settings are wrong, not the
    speech.
    """
    cache = reply_cache.open_cache(settings.cache)
    server = open_server(settings)
    try:
        start = time.monotonic()
        until = start + settings.deadline
        runner = RequestRunner(server, settings, cache, RequestLimits(), until, prompt, jpegs)
        results = run_in_threads(runner.serve, chunks, workers=server.workers, until=until)
        logger.info("asked for %d chunks in %.1f s", len(chunks), time.monotonic() - start)
    finally:
        server.close()
    replies = [results.get(i, ChunkReply(reason=DEADLINE_PASSED)) for i in range(len(chunks))]
    if all(reply.rejected for reply in replies):
        cure = "correct the settings under writing.llm"
        raise WriterError(f"{settings.base_url}: {replies[0].reason}; {cure}")
    broken = (cache.broken,) if cache.broken else ()
    return replies, AskingNotes(server.name, broken)


def _read_pictures(
    chunks: Sequence[Chunk], pictures: VideoPictures, count: int
) -> dict[int, dict[float, bytes]]:
    """Return the pictures beside each chunk, second -> JPEG, by its number.

    They are spread evenly from where it begins to be said, or the video, to where the next one
    does, or the video ends.
    """
    starts = [0.0, *(chunk.sentences[0].span.start for chunk in chunks[1:])]
    ends = [*starts[1:], pictures.duration]
    wanted = {
        chunk.number: [start + (end - start) * (n + 0.5) / count for n in range(count)]
        for chunk, start, end in zip(chunks, starts, ends, strict=True)
        if end > start
    }
    known = pictures.reader([round(second, 1) for seconds in wanted.values() for second in seconds])
    shown = {}
    for number, seconds in wanted.items():
        ours = dict.fromkeys(round(second, 1) for second in seconds)
        shown[number] = {second: known[second] for second in ours if second in known}
    return {number: each for number, each in shown.items() if each}


def _dry_run(
    chunks: Sequence[Chunk], prompt: Prompt, settings: LlmSettings, *, pictures: bool
) -> str:
    """Return what the model would be asked at most, without second tries."""
    pixels = [(settings.picture_size, 2 * settings.picture_size)] * (
        settings.pictures if pictures else 0
    )
    questions = sum(question_tokens(len(build_prompt(prompt, chunk)), pixels) for chunk in chunks)
    most = f"{len(chunks)} requests, {questions + len(chunks) * settings.max_tokens} tokens and {settings.deadline:g} s"
    beside = f", {len(chunks) * len(pixels)} pictures beside them" if pixels else ""
    return f"dry run: the language model that writes would be asked at most {most}{beside}; the grammar wrote the steps"


def _part(
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
    place = f"sentences {chunk.indices[0] + 1}-{chunk.indices[-1] + 1}"
    notes = tuple(f"{place}: {note}" for note in reply.notes)
    reason, reading = reply.reason, reply.reading or ParsedReply()
    cited = [split_citation(text) if seconds else (text, ()) for text in reading.texts]
    judged = list(zip(cited, small_talk_reasons([text for text, _ in cited]), strict=True))
    talk = [
        Rejected(what="step", text=text, reason=why) for (text, _), why in judged if why is not None
    ]
    kept = [
        (text, [PICTURE_LETTERS.index(letter) for letter in letters])
        for (text, letters), why in judged
        if why is None
    ]
    seen = [[seconds[n] for n in numbers if n < len(seconds)] for _, numbers in kept]
    steps, unsupported = cite_sources(
        [text for text, _ in kept], chunk, floor=floor, embed=embed, seconds=seen, start=start
    )
    if unsupported and not steps:
        reason = "no sentence supports any step of the reply"
    if reason:
        notes += (f"{place}: provisional, from the extractive writer, because {reason}",)
    return ChunkSteps(chunk, tuple(steps), (*reading.dropped, *talk, *unsupported), notes, reason)


def _fallback(
    transcript: Transcript, parts: Sequence[ChunkSteps], fallback: Fallback
) -> WrittenSteps:
    """Return what the fallback writes of the whole transcript, nothing where the model served every
    chunk.

    What it leaves out is reported only where it served everything: it does not say in which chunk
    that lay.
    """
    if not any(part.reason for part in parts):
        return WrittenSteps()
    whole = fallback(transcript)
    return (
        whole if all(part.reason for part in parts) else WrittenSteps(whole.steps, (), whole.notes)
    )


def _steps_within(chunk: Chunk, whole: WrittenSteps) -> list[Step]:
    return [step for step in whole.steps if set(step.sources) & set(chunk.indices)]


def _extractive(transcript: Transcript) -> WrittenSteps:
    from stepline.writing.extractive.writer import write_extractive

    return write_extractive(transcript)


def _minilm(texts: Sequence[str]) -> Matrix:
    from stepline.text import embed

    return embed(texts)
