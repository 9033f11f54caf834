"""Questions to a vision-language model about the pictures of one video: which show a step, what is
done in each."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from stepline.grounding.vision_language.questions import (
    CHOICE_QUESTION,
    DESCRIPTION_QUESTION,
    NO_ANSWER,
    REPLY_TOKENS_PER_STEP,
    Reply,
    choice_question,
    choice_schema,
    description_question,
    description_schema,
    read_choices,
    read_descriptions,
)
from stepline.llm.checked_requests import (
    CheckedQuestion,
    CheckedRequests,
    KeyParts,
    pictures_digest,
)
from stepline.llm.pictures import question_tokens
from stepline.llm.requests import RequestLimits, open_cache, run_in_threads
from stepline.llm.servers import Content, Schema, Server
from stepline.vision.settings import VisionLanguageSettings


@dataclass(frozen=True)
class QuestionRunner(CheckedRequests):
    """Asks questions about the pictures, or clips, of one video."""

    settings: VisionLanguageSettings

    @classmethod
    def begin(cls, server: Server, settings: VisionLanguageSettings) -> Self:
        """Return a runner with the user's cache, and the settings' limits and deadline from now
        on."""
        limits = RequestLimits(settings.requests, settings.tokens)
        until = time.monotonic() + settings.deadline
        return cls(server, settings, open_cache(settings.cache), limits, until)

    def choose(self, steps: Sequence[str], pictures: Sequence[bytes]) -> tuple[Reply, ...]:
        """Return a reply per step: in which of the pictures it is done."""
        return self._ask_about(
            [CHOICE_QUESTION, *steps],
            pictures,
            partial(choice_question, steps, pictures),
            choice_schema(len(steps), len(pictures)),
            lambda text: read_choices(text, len(steps), len(pictures)),
        )

    def describe(self, pictures: Sequence[bytes]) -> list[Reply]:
        """Return a reply per picture with what is done in it as `after`, several pictures per
        question."""
        size = self.settings.choices
        groups = [pictures[first : first + size] for first in range(0, len(pictures), size)]

        def describe_group(group: Sequence[bytes]) -> tuple[Reply, ...]:
            return self._ask_about(
                [DESCRIPTION_QUESTION],
                group,
                partial(description_question, group),
                description_schema(len(group)),
                lambda text: read_descriptions(text, len(group)),
            )

        answers = run_in_threads(
            describe_group, groups, workers=self.server.workers, until=self.until
        )
        replies: list[Reply] = []
        # A group without an answer in time has none for any of its pictures.
        for n, group in enumerate(groups):
            replies += answers.get(n, (NO_ANSWER,) * len(group))
        return replies

    def _ask_about(
        self,
        texts: Sequence[str],
        pictures: Sequence[bytes],
        content: Callable[..., Content],
        schema: Schema,
        parse: Callable[[str], tuple[Reply, ...]],
    ) -> tuple[Reply, ...]:
        """Return the replies to one question. What is refused twice says why.

        texts: the words of the question, for the cache and the limits. content: makes the message
        of the form in which pictures are shown.
        """
        together = self.settings.together
        video = self.settings.video
        # An answer in the cache is of these words, pictures and form.
        key_parts: KeyParts = {
            "question": "\n".join(texts),
            "pictures": pictures_digest(pictures),
            "together": together,
        }
        question = CheckedQuestion(
            key_parts,
            lambda reminded: content(together=together, video=video, reminded=reminded),
            lambda answer: parse(answer.text),
            first_refusal,
            schema,
            tokens_at_most(texts, len(pictures), self.settings),
        )
        reply = self.ask(question)
        if not reply.readings:
            reason = ""
            if reply.fault:
                reason = reply.fault.reason
            return (Reply(refusal=reason),) * len(parse(""))
        # What the first reply says well stays, whatever the second one lacks.
        best = []
        for first, last in zip(reply.readings[0], reply.readings[-1], strict=True):
            best.append(last if first.refusal else first)
        return tuple(best)


def first_refusal(replies: Sequence[Reply]) -> str:
    """Return why the first reply that is refused is, "" where none is."""
    return next((reply.refusal for reply in replies if reply.refusal), "")


def tokens_at_most(texts: Sequence[str], pictures: int, settings: VisionLanguageSettings) -> int:
    """Return about how many tokens a question of these words takes. A picture is twice as long as
    wide at most.

    pictures: or clips. A server sees each picture of a clip.
    """
    pixels = [(settings.picture_size, 2 * settings.picture_size)] * (
        pictures * settings.pictures_a_clip
    )
    return question_tokens(sum(map(len, texts)), pixels) + REPLY_TOKENS_PER_STEP * max(
        len(texts) - 1, 1
    )
