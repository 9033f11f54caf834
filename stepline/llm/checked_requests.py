"""Prompts to a language model whose replies are checked: cache, ask, check, ask once more.

    reply = CheckedRequests(server, settings, cache, limits, until).ask(question)

An accepted reply of an earlier run is read from the cache. Otherwise the model is asked, with
retries after transient errors. After a refused reply it is asked once more, with the next seed and
the reason of the refusal. An accepted reply that is complete is stored in the cache.
"""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from stepline.files.remote.retry import exponential_backoff, retry
from stepline.llm.requests import NotSentError, ReplyCache, RequestLimits, cache_key
from stepline.llm.servers import Answer, Content, RequestError, Schema, Server
from stepline.llm.settings import ChatSettings

logger = logging.getLogger(__name__)

DEADLINE_PASSED = "the deadline passed"
MAX_TRIES = 2  # of a prompt whose replies are refused

Reading = TypeVar("Reading")
KeyParts = Mapping[str, str | bool]


@dataclass(frozen=True)
class CheckedQuestion(Generic[Reading]):
    """A prompt for a language model, with functions that parse and check the reply.

    Attributes:
        key_parts: parts of the cache key next to server and settings: name -> value.
        content: returns the message. The argument is why the last reply was refused, "" for the
            first request.
        parse: returns an answer in parsed form.
        refusal: returns why a parsed answer is refused, "" or None for an accepted one.
        schema: JSON schema that the reply should follow. None: any text.
        tokens: estimated number of tokens of prompt and reply.
    """

    key_parts: KeyParts
    content: Callable[[str], Content]
    parse: Callable[[Answer], Reading]
    refusal: Callable[[Reading], str | None]
    schema: Schema | None = None
    tokens: int = 0


@dataclass(frozen=True)
class CheckedReply(Generic[Reading]):
    """The parsed replies to one prompt.

    Attributes:
        readings: the parsed replies, one per try, at most two. All but the last were refused.
        fault: the error that ended the tries, None if none did.
    """

    readings: tuple[Reading, ...]
    fault: RequestError | None = None


@dataclass(frozen=True)
class CheckedRequests:
    """Sends prompts to one server within limits, with a cache of replies. It is thread-safe.

    Attributes:
        server: the server that is asked.
        settings: sampling, retries and pauses.
        cache: cache of accepted replies.
        limits: maximal numbers of requests and tokens, shared by all prompts.
        until: deadline, in seconds of the clock `time.monotonic`.
    """

    server: Server
    settings: ChatSettings
    cache: ReplyCache
    limits: RequestLimits
    until: float

    def ask(self, question: CheckedQuestion[Reading]) -> CheckedReply[Reading]:
        """Return the parsed replies to a prompt, or the cached one. Raises WriterError if the server
        cannot be used at all."""
        key = cache_key(
            server=self.server.name,
            max_tokens=self.settings.max_tokens,
            temperature=self.settings.temperature,
            seed=self.settings.seed,
            **question.key_parts,
        )

        # a reply that was stored, where it still fits
        cached_reply = self.cache.get(key)
        if cached_reply is not None:
            reading = question.parse(Answer(cached_reply))
            if not question.refusal(reading):
                return CheckedReply((reading,))

        # a new one, asked for again once where it does not fit
        readings: list[Reading] = []
        refusal = ""
        for _ in range(MAX_TRIES):
            try:
                answer = self._ask_with_retries(question, refusal)
            except RequestError as fault:
                logger.info("no reply: %s", fault.reason)
                return CheckedReply(tuple(readings), fault)
            reading = question.parse(answer)
            readings.append(reading)
            refusal = question.refusal(reading) or ""
            if not refusal:
                if answer.complete:
                    self.cache.put(key, answer.text)
                break
            logger.info("a reply is refused: %s", refusal)
        return CheckedReply(tuple(readings))

    def _ask_with_retries(self, question: CheckedQuestion[Reading], refusal: str) -> Answer:
        """Return the answer to a prompt. Transient errors are retried with exponential backoff.

        refusal: why the last reply was refused, "" for the first request.
        """
        content = question.content(refusal)
        seed = self.settings.seed + bool(refusal)

        def send() -> Answer:
            if time.monotonic() >= self.until:
                raise NotSentError(DEADLINE_PASSED)
            self.limits.count_request(question.tokens)
            answer = self.server.ask(content, seed=seed, until=self.until, schema=question.schema)
            if answer.tokens is not None:
                self.limits.add_to_estimate(answer.tokens - question.tokens)
            return answer

        return retry(send, self._retry_pause)

    def _retry_pause(self, error: Exception, tries: int) -> float:
        """Return the seconds to wait before a retry. Raises the error again if no retry is allowed.

        tries: number of requests so far.
        """
        if not isinstance(error, RequestError) or isinstance(error, NotSentError):
            raise error
        backoff_seconds = exponential_backoff(self.settings.pause, tries, most=math.inf)
        seconds = max(backoff_seconds, error.retry_after_seconds)
        if time.monotonic() + seconds >= self.until:
            raise RequestError(f"{error.reason}; {DEADLINE_PASSED}", is_transient=False) from error
        if not error.is_transient or tries > self.settings.retries:
            raise error
        logger.info("%s; asking again in %.1f s", error.reason, seconds)
        return seconds


def pictures_digest(pictures: Iterable[bytes]) -> str:
    """Return one hex sha256 of several images, for the cache key of a prompt."""
    digests = (hashlib.sha256(picture).digest() for picture in pictures)
    return hashlib.sha256(b"".join(digests)).hexdigest()
