"""Requests to the model: a chunk's reply comes from the cache, else it is asked for, retried and checked for a list.

ReplyCache     good replies on disk, keyed by all that they depend on; a damaged entry is asked for again
RequestRunner  serves one chunk
run_in_threads serves all of them until a deadline, and leaves behind what does not come back in time
"""

import hashlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stepline.errors import StoreError
from stepline.limits import parse_json
from stepline.storage import write_atomic
from stepline.weights import cache_folder
from stepline.writing.llm.prompts import Chunk, ParsedReply, Prompt, build_prompt, read_reply
from stepline.writing.llm.servers import Answer, RequestError, Server
from stepline.writing.settings import LlmSettings

logger = logging.getLogger(__name__)

VERSION = 1  # of an entry's shape; another one is not read


class ReplyCache:
    """A folder of replies; `folder` None keeps none. Keys and entries hold no API key."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.broken: str | None = None  # why nothing more can be written, for a note to the user

    def get(self, key: str) -> str | None:
        """Return the reply under `key`, None when there is none that can be read."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            entry = parse_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("%s: damaged reply in the cache (%s); it is asked for again", path, type(error).__name__)
            return None
        if not isinstance(entry, dict) or entry.get("version") != VERSION or not isinstance(entry.get("reply"), str):
            logger.warning("%s: no reply of version %d; it is asked for again", path, VERSION)
            return None
        return str(entry["reply"])

    def put(self, key: str, reply: str) -> None:
        """Keep a reply; where the folder cannot be written, say so once and go on without."""
        if self.folder is None or self.broken is not None:
            return
        try:
            write_atomic(self._path(key), json.dumps({"version": VERSION, "reply": reply}))
        except StoreError as error:
            self.broken = f"replies of the model are not kept: {error}; STEPLINE_CACHE names another folder"
            logger.warning("%s", self.broken)

    def _path(self, key: str) -> Path:
        return Path(self.folder or ".") / f"{key}.json"


def open_cache(use: bool) -> ReplyCache:
    """Return the user's cache of replies, or one that keeps nothing."""
    return ReplyCache(cache_folder() / "replies" if use else None)


def cache_key(**parts: str | float | int | bool | None) -> str:
    """Return the hex sha256 of everything that a reply depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()


LATE = "the deadline passed"


@dataclass(frozen=True)
class ChunkReply:
    """What the model gave for a chunk.

    reading: None when it gave nothing usable; then `reason` says why. rejected: the server would not take the question.
    notes: what happened on the way (a reply refused, times cut out).
    """

    reading: ParsedReply | None = None
    reason: str = ""
    rejected: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RequestRunner:
    """Serves chunks one by one; several threads may share it."""

    server: Server
    settings: LlmSettings
    prompt: Prompt
    cache: ReplyCache
    until: float  # monotonic second of the job's deadline
    sleep: Callable[[float], None] = time.sleep

    def serve(self, chunk: Chunk) -> ChunkReply:
        """Return the chunk's steps as the model wrote them, or why there are none.

        A reply that is refused is asked for once more. Raises WriterError when the server is of no use at all.
        """
        key = self._key(chunk)
        kept = self.cache.get(key)
        if kept is not None:
            reading = self._read(Answer(kept), chunk)
            if reading.refusal is None:
                return ChunkReply(reading, notes=_times(reading))
        try:
            return self._asked(chunk, key)
        except RequestError as fault:
            logger.info("sentences of chunk %d: %s", chunk.number, fault.reason)
            return ChunkReply(reason=fault.reason, rejected=fault.rejected)

    def _asked(self, chunk: Chunk, key: str) -> ChunkReply:
        refusals: list[str] = []
        for again in (False, True):
            answer = self._answer(build_prompt(self.prompt, chunk, again=again), self.settings.seed + again)
            reading = self._read(answer, chunk)
            if reading.refusal is None:
                if answer.complete:
                    self.cache.put(key, answer.text)
                notes = tuple(f"a reply was refused ({reason}) and asked for again" for reason in refusals)
                return ChunkReply(reading, notes=notes + _times(reading))
            logger.info("chunk %d: %s", chunk.number, reading.refusal)
            refusals.append(reading.refusal)
        return ChunkReply(reason=refusals[-1])

    def _answer(self, text: str, seed: int) -> Answer:
        """Ask, and ask again after a pause that doubles, as long as the fault may pass and time is left."""
        pause = self.settings.pause
        for left in range(self.settings.retries, -1, -1):
            if time.monotonic() >= self.until:
                raise RequestError(LATE, passing=False)
            try:
                return self.server.ask(text, seed=seed, until=self.until)
            except RequestError as fault:
                wait = max(pause, fault.wait)
                late = time.monotonic() + wait >= self.until
                if not fault.passing or not left or late:
                    raise RequestError(f"{fault.reason}; {LATE}", passing=False) if late else fault from fault
                logger.info("%s; asking again in %.1f s", fault.reason, wait)
                self.sleep(wait)
                pause *= 2
        raise RequestError(LATE, passing=False)

    def _read(self, answer: Answer, chunk: Chunk) -> ParsedReply:
        return read_reply(answer.text, spoken=chunk.text, sentences=len(chunk.sentences), complete=answer.complete)

    def _key(self, chunk: Chunk) -> str:
        return cache_key(
            server=self.server.name,
            prompt=self.prompt.name,
            question=build_prompt(self.prompt, chunk),
            max_tokens=self.settings.max_tokens,
            temperature=self.settings.temperature,
            seed=self.settings.seed,
        )


def _times(reading: ParsedReply) -> tuple[str, ...]:
    return (f"times that the model wrote were cut out: {', '.join(reading.times)}",) if reading.times else ()


Item = TypeVar("Item")
Result = TypeVar("Result")

GRACE = 1.0  # s beyond the deadline for work that watches it itself to come back


def run_in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], *, workers: int, until: float
) -> dict[int, Result]:
    """Return the results by index; what is not there soon after the monotonic second `until` is missing.

    The first exception that `work` raises is raised here, and no further work begins. The threads are daemons: one
    that hangs in a library keeps neither the caller waiting nor the process alive.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result | None, Exception | None]] = queue.SimpleQueue()
    stopped = threading.Event()
    for index in range(len(items)):
        todo.put(index)

    def worker() -> None:
        while not stopped.is_set():
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((index, work(items[index]), None))
            except Exception as error:  # noqa: BLE001 - it is raised in the caller's thread
                stopped.set()
                done.put((index, None, error))

    for _ in range(min(workers, len(items))):
        threading.Thread(target=worker, daemon=True, name="stepline-writer").start()
    try:
        results: dict[int, Result] = {}
        while len(results) < len(items):
            try:
                index, result, error = done.get(timeout=max(0.0, until + GRACE - time.monotonic()))
            except queue.Empty:
                break
            if error is not None:
                raise error
            results[index] = result  # type: ignore[assignment]
        return results
    finally:
        stopped.set()
