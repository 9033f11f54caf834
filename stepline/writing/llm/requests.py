"""What the model is asked about a chunk: its reply is taken from the cache, else asked for and
checked for a list."""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stepline.chat.pictures import with_pictures
from stepline.chat.requests import ReplyCache, ask_with_retries, cache_key
from stepline.chat.servers import Answer, Content, RequestError, Server
from stepline.writing.llm.prompts import Chunk, ParsedReply, Prompt, build_prompt, read_reply
from stepline.writing.settings import LlmSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChunkReply:
    """What the model gave for a chunk.

    reading: None when it gave nothing usable; then `reason` says why. rejected: the server would
    not take the question.
    notes: what happened on the way (a reply refused, times cut out).
    """

    reading: ParsedReply | None = None
    reason: str = ""
    rejected: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RequestRunner:
    """Serves chunks one by one; several threads may share it. pictures: second -> JPEG, in order,
    by chunk number."""

    server: Server
    settings: LlmSettings
    prompt: Prompt
    cache: ReplyCache
    until: float  # monotonic second of the job's deadline
    sleep: Callable[[float], None] = time.sleep
    pictures: Mapping[int, Mapping[float, bytes]] = field(default_factory=dict)

    def serve(self, chunk: Chunk) -> ChunkReply:
        """Return the chunk's steps as the model wrote them, or why there are none.

        A reply that is refused is asked for once more. Raises WriterError when the server is of no
        use at all.
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
            answer = ask_with_retries(
                self.server,
                self._question(chunk, again=again),
                self.settings,
                seed=self.settings.seed + again,
                until=self.until,
                sleep=self.sleep,
            )
            reading = self._read(answer, chunk)
            if reading.refusal is None:
                if answer.complete:
                    self.cache.put(key, answer.text)
                notes = tuple(
                    f"a reply was refused ({reason}) and asked for again" for reason in refusals
                )
                return ChunkReply(reading, notes=notes + _times(reading))
            logger.info("chunk %d: %s", chunk.number, reading.refusal)
            refusals.append(reading.refusal)
        return ChunkReply(reason=refusals[-1])

    def _question(self, chunk: Chunk, *, again: bool) -> Content:
        text, shown = build_prompt(self.prompt, chunk, again=again), self.pictures.get(chunk.number)
        return (
            with_pictures(text, list(shown.values()), together=self.settings.together)
            if shown
            else text
        )

    def _read(self, answer: Answer, chunk: Chunk) -> ParsedReply:
        return read_reply(
            answer.text, spoken=chunk.text, sentences=len(chunk.sentences), complete=answer.complete
        )

    def _key(self, chunk: Chunk) -> str:
        shown: dict[str, str | bool] = {}
        if chunk.number in self.pictures:
            each = b"".join(
                hashlib.sha256(one).digest() for one in self.pictures[chunk.number].values()
            )
            shown = {
                "pictures": hashlib.sha256(each).hexdigest(),
                "together": self.settings.together,
            }
        return cache_key(
            **shown,
            server=self.server.name,
            prompt=self.prompt.name,
            question=build_prompt(self.prompt, chunk),
            max_tokens=self.settings.max_tokens,
            temperature=self.settings.temperature,
            seed=self.settings.seed,
        )


def _times(reading: ParsedReply) -> tuple[str, ...]:
    return (
        (f"times that the model wrote were cut out: {', '.join(reading.times)}",)
        if reading.times
        else ()
    )
