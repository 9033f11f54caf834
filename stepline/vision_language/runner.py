"""One question about pictures after another: by the cache first, within limits, refused replies
asked for once more."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepline.chat.pictures import question_tokens
from stepline.chat.requests import (
    ReplyCache,
    RequestLimits,
    ask_with_retries,
    cache_key,
    run_in_threads,
)
from stepline.chat.servers import Content, RequestError, Schema, Server
from stepline.vision.settings import VisionLanguageSettings
from stepline.vision_language.questions import (
    DESCRIPTION,
    QUESTION,
    REPLY_TOKENS,
    Reply,
    choice_question,
    choice_schema,
    description_question,
    description_schema,
    read_choices,
    read_descriptions,
)

logger = logging.getLogger(__name__)


@dataclass
class QuestionRunner:
    """Asks questions about the pictures of one video, by the cache first, within the limits and
    until a second."""

    server: Server
    settings: VisionLanguageSettings
    cache: ReplyCache
    limits: RequestLimits
    until: float

    def ask(
        self,
        texts: Sequence[str],
        pictures: Sequence[bytes],
        content: Callable[[bool], Content],
        schema: Schema,
        read: Callable[[str], tuple[Reply, ...]],
    ) -> tuple[Reply, ...]:
        """Return the replies to one question; where one is refused it is asked for once more, then
        says why.

        texts: the words of the question, and pictures, for the cache and the limits. content: the
        message, reminded of the form or not. read: takes a reply apart.
        """
        settings = self.settings
        key = cache_key(
            server=self.server.name,
            question="\n".join(texts),
            pictures=hashlib.sha256(
                b"".join(hashlib.sha256(one).digest() for one in pictures)
            ).hexdigest(),
            together=settings.together,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            seed=settings.seed,
        )
        kept = self.cache.get(key)
        if kept is not None and not any(reply.refusal for reply in read(kept)):
            return read(kept)
        replies: tuple[Reply, ...] = ()
        for reminded in (False, True):
            try:
                found = ask_with_retries(
                    self.server,
                    content(reminded),
                    settings,
                    seed=settings.seed + reminded,
                    until=self.until,
                    schema=schema,
                    limits=self.limits,
                    tokens=tokens_at_most(texts, len(pictures), settings),
                )
            except RequestError as fault:
                return replies or (Reply(refusal=fault.reason),) * len(read(""))
            now = read(found.text)
            if found.complete and not any(reply.refusal for reply in now):
                self.cache.put(key, found.text)
            # What the first reply said well stands, whatever the second one lacks.
            replies = tuple(b if a.refusal else a for a, b in zip(replies or now, now, strict=True))
            if not any(reply.refusal for reply in replies):
                break
            logger.info("%s: %s", texts[1:], [reply.refusal for reply in replies])
        return replies

    def choose(self, steps: Sequence[str], pictures: Sequence[bytes]) -> tuple[Reply, ...]:
        """Return in which of the pictures, or clips, each step is done: a reply a step."""
        together, video = self.settings.together, self.settings.video
        return self.ask(
            [QUESTION, *steps],
            pictures,
            lambda reminded: choice_question(
                steps, pictures, together=together, video=video, reminded=reminded
            ),
            choice_schema(len(steps), len(pictures)),
            lambda text: read_choices(text, len(steps), len(pictures)),
        )

    def describe(self, pictures: Sequence[bytes]) -> list[Reply]:
        """Return what is done in each of some pictures of a video, as `after`; several a question,
        several at once."""
        size = self.settings.choices
        groups = [pictures[n : n + size] for n in range(0, len(pictures), size)]

        def describe(group: Sequence[bytes]) -> tuple[Reply, ...]:
            return self.ask(
                [DESCRIPTION],
                group,
                lambda reminded: description_question(
                    group,
                    together=self.settings.together,
                    video=self.settings.video,
                    reminded=reminded,
                ),
                description_schema(len(group)),
                lambda text: read_descriptions(text, len(group)),
            )

        answered = run_in_threads(describe, groups, workers=self.server.workers, until=self.until)
        late = Reply(refusal="no answer in time")
        return [
            reply
            for n, group in enumerate(groups)
            for reply in answered.get(n, (late,) * len(group))
        ]


def tokens_at_most(texts: Sequence[str], pictures: int, settings: VisionLanguageSettings) -> int:
    """Return about how many tokens a question of these words takes; a picture is twice as long as
    wide at most.

    pictures: or clips, of which a server sees each picture.
    """
    pixels = [(settings.picture_size, 2 * settings.picture_size)] * (
        pictures * settings.pictures_a_clip
    )
    return question_tokens(sum(map(len, texts)), pixels) + REPLY_TOKENS * max(len(texts) - 1, 1)
