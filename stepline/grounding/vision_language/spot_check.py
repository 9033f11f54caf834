"""A vision-language model says of texts whether the picture shows them in their own seconds, at
others, or nowhere.

A question shows pictures of its texts' own seconds and others spread over the video, shuffled. A
model that says "yes" to everything is right by chance alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from stepline.grounding.vision_language.places import last_picture_second
from stepline.grounding.vision_language.questions import CHOICE_QUESTION, Reply
from stepline.grounding.vision_language.runner import QuestionRunner, tokens_at_most
from stepline.llm.pictures import VideoPictures
from stepline.llm.requests import run_in_threads
from stepline.records import Span
from stepline.vision.settings import VisionLanguageSettings

# of each text's own seconds. The other pictures of a question are spread over the video.
PICTURES_PER_TEXT = 2
# s that the others keep from the texts' seconds: next to them the same is seen
MIN_SECONDS_AWAY = 3.0

# in its own seconds, at others, nowhere
WhereShown: TypeAlias = Literal["aligned", "misplaced", "not shown"]


class TimedText(Protocol):
    """A text and the seconds that are said to show it."""

    @property
    def text(self) -> str:
        """Its words."""
        ...

    @property
    def span(self) -> Span:
        """Its seconds."""
        ...


def where_shown(
    runner: QuestionRunner, texts: Sequence[TimedText], video: VideoPictures
) -> tuple[dict[int, WhereShown], tuple[float, ...]]:
    """Return what the model says of each text that it answered on, by its row, and the seconds of
    its pictures."""
    # the questions whose pictures can be read
    questions = _questions(texts, video.duration, runner.settings)
    all_seconds = {second for question in questions for second in question.seconds}
    images = video.reader(sorted(all_seconds))
    visible = []
    for question in questions:
        seconds = [second for second in question.seconds if second in images]
        if seconds:
            visible.append(SpotQuestion(question.rows, seconds))

    def ask(question: SpotQuestion) -> tuple[Reply, ...]:
        steps = [texts[row].text for row in question.rows]
        pictures = [images[second] for second in question.seconds]
        return runner.choose(steps, pictures)

    # the answers
    replies = run_in_threads(ask, visible, workers=runner.server.workers, until=runner.until)
    where: dict[int, WhereShown] = {}
    for n in sorted(replies):
        question = visible[n]
        for row, reply in zip(question.rows, replies[n], strict=True):
            # A refused reply says nothing at all.
            if reply.refusal:
                continue
            if reply.answer is None:
                where[row] = "not shown"
                continue
            second = question.seconds[reply.answer]
            is_own = texts[row].span.gap(second) == 0.0
            where[row] = "aligned" if is_own else "misplaced"
    return where, tuple(sorted(images))


def cost_at_most(
    texts: Sequence[TimedText], duration: float, settings: VisionLanguageSettings
) -> tuple[int, int]:
    """Return how many requests and tokens the texts of a video take at most, within its limits and
    without second tries."""
    questions = _questions(texts, duration, settings)
    tokens = 0
    for question in questions[: settings.requests]:
        words = [CHOICE_QUESTION, *(texts[row].text for row in question.rows)]
        tokens += tokens_at_most(words, len(question.seconds), settings)
    requests = min(settings.requests, len(questions))
    return requests, min(settings.tokens, tokens)


@dataclass(frozen=True)
class SpotQuestion:
    """The rows of the texts that a question is about, and the seconds of its pictures."""

    rows: range
    seconds: list[float]


def _questions(
    texts: Sequence[TimedText], duration: float, settings: VisionLanguageSettings
) -> list[SpotQuestion]:
    # Each text needs pictures of its own, so a question has room for few texts.
    most_texts = max(1, settings.choices // PICTURES_PER_TEXT)
    size = min(settings.steps, most_texts)
    rng = np.random.default_rng(settings.seed)
    questions = []
    for first in range(0, len(texts), size):
        end = min(first + size, len(texts))
        rows = range(first, end)
        spans = [texts[row].span for row in rows]
        seconds = _seconds(spans, duration, settings.choices, rng)
        questions.append(SpotQuestion(rows, seconds))
    return questions


def _seconds(
    spans: Sequence[Span], duration: float, count: int, rng: np.random.Generator
) -> list[float]:
    """Return the seconds of a question's pictures, shuffled: some of each text's own, the others
    spread evenly."""
    last = last_picture_second(duration)
    own = set()
    for span in spans:
        for n in range(PICTURES_PER_TEXT):
            second = span.start + (n + 0.5) / PICTURES_PER_TEXT * span.duration
            own.add(round(min(last, second), 1))

    # the others, away from all texts
    away = []
    for n in range(count):
        second = round(last * (n + 0.5) / count, 1)
        if all(span.gap(second) > MIN_SECONDS_AWAY for span in spans):
            away.append(second)
    room = max(0, count - len(own))
    every = -(-len(away) // max(1, room))
    evenly = away[:: max(1, every)]
    seconds = own | set(evenly[:room])
    shuffled = rng.permutation(sorted(seconds))
    return [float(second) for second in shuffled][:count]
