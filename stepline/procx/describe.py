"""The steps of silent videos: the network's proposals, those of them that are steps, and a sentence for each.

    described = describe(model, vocabulary, features)         # one video
    described.steps                                           # in the order of time

Source: ProcX section 5 and PDVC's code: the surest proposals, as many as the network counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from stepline.errors import SettingsError, ShapeError
from stepline.procx.choosing import SHORTEST, Floats, Proposals, choose, parted
from stepline.procx.describe_settings import DescribeSettings
from stepline.procx.events import said_around
from stepline.procx.model import ProcX
from stepline.procx.proposals import Proposing, propose, with_likelihood, written
from stepline.procx.search import Written
from stepline.procx.tokens import Vocabulary
from stepline.records import Dropped, FeatureSequence, Matrix, Sentence, Span, Step

Choose: TypeAlias = Callable[[int, Proposals], Sequence[int]]  # (number of the video, its proposals) to queries

NO_WORDS = "the network found no words for it"
TOO_SHORT = f"it lasts less than {SHORTEST:g} s inside the video"
DIGITS = 3  # of seconds and scores


@dataclass(frozen=True)
class Clip:
    """A video to describe. values: (T, C), T may be 0; they cover `seconds`, of which the video has `end`.

    said: what is spoken, for a network that reads it.
    """

    values: Matrix
    seconds: float
    end: float
    said: tuple[Sentence, ...] = ()

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.end > 0) or not np.isfinite(self.values).all():
            what = f"{self.seconds} s of features for {self.end} s"
            raise ShapeError(f"a video to describe needs finite features and a length above 0, not {what}")


@dataclass(frozen=True)
class Described:
    """Steps in the order of time, and proposals that were chosen but could not become one."""

    steps: tuple[Step, ...] = ()
    dropped: tuple[Dropped, ...] = ()


def describe(
    model: ProcX,
    vocabulary: Vocabulary,
    features: FeatureSequence,
    settings: DescribeSettings | None = None,
    *,
    duration: float | None = None,
    said: Sequence[Sentence] = (),
    around: float = 10.0,
) -> Described:
    """Return the steps of one video; without a feature row none. duration: its seconds, None: as the features say.

    said, around: what is spoken, and how many seconds around a step are read; used only where `settings.speech`.
    """
    if not len(features.values):
        return Described()
    seconds = features.duration
    clip = Clip(features.values, seconds, seconds if duration is None else min(seconds, duration), tuple(said))
    return describe_many(model, vocabulary, [clip], settings, around=around)[0]


def describe_many(
    model: ProcX,
    vocabulary: Vocabulary,
    clips: Sequence[Clip],
    settings: DescribeSettings | None = None,
    *,
    around: float = 10.0,
    chooser: Choose | None = None,
) -> list[Described]:
    """Return what each video shows, in their order; none changes another.

    chooser: which queries of a video are steps, instead of what `settings` say. The model should be at rest (eval).
    Raises ShapeError for features of another width, SettingsError where speech is asked of a network without ears.
    """
    return Describer(model, vocabulary, settings or DescribeSettings(), around, chooser).describe(clips)


@dataclass(frozen=True)
class Describer:
    """A network with all that decides what it says; see `describe_many`."""

    model: ProcX
    vocabulary: Vocabulary
    settings: DescribeSettings
    around: float = 10.0
    chooser: Choose | None = None

    def __post_init__(self) -> None:
        if self.settings.speech and self.model.settings.captioner.kind == "lstm":
            raise SettingsError("speech=true: PDVC's captioner reads no speech; leave it out")

    def describe(self, clips: Sequence[Clip]) -> list[Described]:
        """Return what each video shows, in their order."""
        size = self.settings.batch
        parts = [clips[first : first + size] for first in range(0, len(clips), size)]
        return [one for number, part in enumerate(parts) for one in self._some(part, number * size)]

    def _some(self, clips: Sequence[Clip], first: int) -> list[Described]:
        """Return what the videos of one batch show; the first of them is number `first`."""
        found = propose(self.model, [clip.values for clip in clips], [clip.seconds for clip in clips])
        if self.settings.caption_weight:
            heard = self._heard(clips, found, [range(self.model.settings.queries)] * len(clips))
            found = with_likelihood(self.model, found, self.settings, heard, self.vocabulary)
        both = enumerate(zip(clips, found.videos, strict=True), start=first)
        asked = [self._choose(number, video) if len(clip.values) else [] for number, (clip, video) in both]
        heard = self._heard(clips, found, asked)
        rows = written(self.model, found, asked, self.settings.search, said=heard, vocabulary=self.vocabulary)
        told = zip(clips, found.videos, asked, rows, strict=True)
        return [self._told(clip, video, queries, row) for clip, video, queries, row in told]

    def _choose(self, number: int, video: Proposals) -> list[int]:
        return list(self.chooser(number, video)) if self.chooser else choose(video, self.settings)

    def _heard(self, clips: Sequence[Clip], found: Proposing, asked: Sequence[Sequence[int]]) -> list[list[str]] | None:
        """Return what is said around each asked query of each video; None where nobody listens."""
        if not self.settings.speech:
            return None
        rows = zip(clips, [video.boxes.tolist() for video in found.videos], asked, strict=True)
        return [[said_around(clip.said, self.around, *boxes[one]) for one in row] for clip, boxes, row in rows]

    def _told(self, clip: Clip, video: Proposals, queries: list[int], row: Sequence[Written]) -> Described:
        spans = video.boxes[queries].reshape(-1, 2)
        if self.settings.choose == "apart" and not self.chooser:
            spans = parted(spans)
        texts = [self.vocabulary.decode(one.tokens) for one in row]
        return _steps(spans, video.confidence[queries], texts, clip.end)


def _steps(spans: Floats, sure: Floats, texts: Sequence[str], end: float) -> Described:
    """Return steps in the order of time, numbered from 1."""
    steps: list[Step] = []
    dropped: list[Dropped] = []
    for (start, stop), score, text in zip(spans.tolist(), sure.tolist(), texts, strict=True):
        start, stop = round(start, DIGITS), round(min(stop, end), DIGITS)
        if not text or stop - start < SHORTEST:
            dropped.append(Dropped(what="step", text=text, reason=TOO_SHORT if text else NO_WORDS))
            continue
        span = Span(start, stop)
        score = round(score, DIGITS)
        steps.append(Step(id="0", text=text, spans=(span,), at=round(span.center, DIGITS), status="shown", score=score))
    steps.sort(key=lambda step: (step.spans[0].start, step.spans[0].end))
    numbered = (step.model_copy(update={"id": str(number)}) for number, step in enumerate(steps, start=1))
    return Described(tuple(numbered), tuple(dropped))
