"""A vision-language model says of texts whether the picture shows them in their own seconds, at
others, or nowhere.

A question shows pictures of its texts' own seconds and others spread over the video, shuffled: who
says "yes" to everything is right by chance alone.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np

from stepline.chat.pictures import VideoPictures
from stepline.chat.requests import run_in_threads
from stepline.records import Span
from stepline.vision.settings import VisionLanguageSettings
from stepline.vision_language.questions import QUESTION, Reply
from stepline.vision_language.runner import QuestionRunner, tokens_at_most

OWN = 2  # pictures of each text's own seconds; the others of a question are spread over the video
AWAY = 3.0  # s from the texts' seconds that the others keep: next to them the same is seen

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
    groups, seconds = _questions(texts, video.duration, runner.settings)
    known = video.read(sorted({second for each in seconds for second in each}))
    offered = [[second for second in each if second in known] for each in seconds]
    kept = [n for n in range(len(groups)) if offered[n]]

    def ask(number: int) -> tuple[Reply, ...]:
        return runner.choose(
            [texts[row].text for row in groups[number]],
            [known[second] for second in offered[number]],
        )

    found = run_in_threads(ask, kept, workers=runner.server.workers, until=runner.until)
    told: dict[int, WhereShown] = {}
    for place, replies in sorted(found.items()):
        for row, reply in zip(groups[kept[place]], replies, strict=True):
            if reply.refusal:
                continue
            own = (
                reply.answer is not None
                and texts[row].span.gap(offered[kept[place]][reply.answer]) == 0.0
            )
            told[row] = "not shown" if reply.answer is None else "aligned" if own else "misplaced"
    return told, tuple(sorted(known))


def cost_at_most(
    texts: Sequence[TimedText], duration: float, settings: VisionLanguageSettings
) -> tuple[int, int]:
    """Return how many requests and tokens a video's texts take at most, within its limits and
    without second tries."""
    groups, seconds = _questions(texts, duration, settings)
    words = [[QUESTION, *(texts[row].text for row in group)] for group in groups]
    tokens = [
        tokens_at_most(each, len(shown), settings)
        for each, shown in zip(words, seconds, strict=True)
    ]
    return min(settings.requests, len(groups)), min(
        settings.tokens, sum(tokens[: settings.requests])
    )


def _questions(
    texts: Sequence[TimedText], duration: float, settings: VisionLanguageSettings
) -> tuple[list[range], list[list[float]]]:
    """Return the rows of the texts that each question is about, and the seconds of its pictures."""
    size = min(settings.steps, max(1, settings.choices // OWN))
    groups = [range(n, min(n + size, len(texts))) for n in range(0, len(texts), size)]
    rng = np.random.default_rng(settings.seed)
    return groups, [
        _seconds([texts[row].span for row in group], duration, settings.choices, rng)
        for group in groups
    ]


def _seconds(
    spans: Sequence[Span], duration: float, count: int, rng: np.random.Generator
) -> list[float]:
    """Return the seconds of a question's pictures, shuffled: some of each text's own, the others
    spread evenly."""
    last = max(0.0, duration - 0.1)
    own = {
        round(min(last, span.start + (n + 0.5) / OWN * span.duration), 1)
        for span in spans
        for n in range(OWN)
    }
    spread = [round(last * (n + 0.5) / count, 1) for n in range(count)]
    others = [second for second in spread if all(span.gap(second) > AWAY for span in spans)]
    more = others[:: max(1, -(-len(others) // max(1, count - len(own))))][
        : max(0, count - len(own))
    ]
    return [float(second) for second in rng.permutation(sorted(own | set(more)))][:count]
