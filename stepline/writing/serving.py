"""Gets one chunk served by the model: from the cache, else asked, retried and checked until there is a list."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from stepline.writing import reply_cache
from stepline.writing.asking import Prompt, question
from stepline.writing.chunks import Chunk
from stepline.writing.llm_settings import LlmSettings
from stepline.writing.replies import Reading, read_reply
from stepline.writing.reply_cache import ReplyCache
from stepline.writing.servers import Answer, Fault, Server

logger = logging.getLogger(__name__)

LATE = "the deadline passed"


@dataclass(frozen=True)
class Served:
    """What the model gave for a chunk.

    reading: None when it gave nothing usable; then `reason` says why. rejected: the server would not take the question.
    notes: what happened on the way (a reply refused, times cut out).
    """

    reading: Reading | None = None
    reason: str = ""
    rejected: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Waiter:
    """Serves chunks one by one; several threads may share it."""

    server: Server
    settings: LlmSettings
    prompt: Prompt
    cache: ReplyCache
    until: float  # monotonic second of the job's deadline
    sleep: Callable[[float], None] = time.sleep

    def serve(self, chunk: Chunk) -> Served:
        """Return the chunk's steps as the model wrote them, or why there are none.

        A reply that is refused is asked for once more. Raises WriterError when the server is of no use at all.
        """
        key = self._key(chunk)
        kept = self.cache.get(key)
        if kept is not None:
            reading = self._read(Answer(kept), chunk)
            if reading.refusal is None:
                return Served(reading, notes=_times(reading))
        try:
            return self._asked(chunk, key)
        except Fault as fault:
            logger.info("sentences of chunk %d: %s", chunk.number, fault.reason)
            return Served(reason=fault.reason, rejected=fault.rejected)

    def _asked(self, chunk: Chunk, key: str) -> Served:
        refusals: list[str] = []
        for again in (False, True):
            answer = self._answer(question(self.prompt, chunk, again=again), self.settings.seed + again)
            reading = self._read(answer, chunk)
            if reading.refusal is None:
                if answer.complete:
                    self.cache.put(key, answer.text)
                notes = tuple(f"a reply was refused ({reason}) and asked for again" for reason in refusals)
                return Served(reading, notes=notes + _times(reading))
            logger.info("chunk %d: %s", chunk.number, reading.refusal)
            refusals.append(reading.refusal)
        return Served(reason=refusals[-1])

    def _answer(self, text: str, seed: int) -> Answer:
        """Ask, and ask again after a pause that doubles, as long as the fault may pass and time is left."""
        pause = self.settings.pause
        for left in range(self.settings.retries, -1, -1):
            if time.monotonic() >= self.until:
                raise Fault(LATE, passing=False)
            try:
                return self.server.ask(text, seed=seed, until=self.until)
            except Fault as fault:
                wait = max(pause, fault.wait)
                late = time.monotonic() + wait >= self.until
                if not fault.passing or not left or late:
                    raise Fault(f"{fault.reason}; {LATE}", passing=False) if late else fault from fault
                logger.info("%s; asking again in %.1f s", fault.reason, wait)
                self.sleep(wait)
                pause *= 2
        raise Fault(LATE, passing=False)

    def _read(self, answer: Answer, chunk: Chunk) -> Reading:
        return read_reply(answer.text, spoken=chunk.text, sentences=len(chunk.sentences), complete=answer.complete)

    def _key(self, chunk: Chunk) -> str:
        return reply_cache.key(
            server=self.server.name,
            prompt=self.prompt.name,
            question=question(self.prompt, chunk),
            max_tokens=self.settings.max_tokens,
            temperature=self.settings.temperature,
            seed=self.settings.seed,
        )


def _times(reading: Reading) -> tuple[str, ...]:
    return (f"times that the model wrote were cut out: {', '.join(reading.times)}",) if reading.times else ()
