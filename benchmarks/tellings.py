"""Steps that are said in one span of a video and shown in another: of YouCook2's narrations, and of
WhenAct.

Letters: K steps, S sentences, T seconds of a video.
"""

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from narration import transcript_of
from whenact_data import CLIP, folds, read_actions

from stepline.grounding.line_model import match_lines
from stepline.records import Span
from stepline.text import embed
from stepline.writing.extractive.writer import sentence_step_probabilities

MIN_SAID_PROBABILITY = 0.5  # from which a step counts as said
MIN_COSINE = 0.5  # the same where sentences are matched by cosine alone
MOMENT_SECONDS = 1e-3  # of what is shown without any length

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Telling:
    """A step said in one span and shown in another. fold: in which it is left out. seconds: of the
    video."""

    video: str
    fold: int
    speech: Span
    picture: Span
    seconds: int

    @property
    def target(self) -> Array:
        """(T,): uniform over the seconds in which it is shown."""
        return uniform_within(self.picture, self.seconds)

    @property
    def offset(self) -> float:
        """Seconds from the middle of the words to the picture: 0 inside, negative where the picture
        comes first."""
        middle = self.speech.center
        early = min(0.0, self.picture.end - middle)
        late = max(0.0, self.picture.start - middle)
        return early + late


@dataclass(frozen=True)
class Narration:
    """A video: its sentences, (S,), which of them tell a step, (S,), when its steps are shown, (K,).

    places: (K, S) P(said here) by the line model, of sum P(said). cosines: (K, S).
    """

    name: str
    fold: int
    sentences: tuple[Span, ...]
    tells_step: tuple[bool, ...]
    pictures: tuple[Span, ...]
    seconds: int
    places: Array
    cosines: Array

    def by_line_model(self) -> list[Telling]:
        """Return the tellings by each step's most probable sentence."""
        is_told = self.places.sum(axis=1) >= MIN_SAID_PROBABILITY
        return self._tellings(self.places, is_told)

    def by_cosine(self) -> list[Telling]:
        """Return the tellings by each step's most similar sentence."""
        is_told = self.cosines.max(axis=1) >= MIN_COSINE
        return self._tellings(self.cosines, is_told)

    def _tellings(self, matching: Array, is_told: npt.NDArray[np.bool_]) -> list[Telling]:
        rows = []
        for step in np.flatnonzero(is_told).tolist():
            best = int(matching[step].argmax())
            if not self.tells_step[best]:
                continue
            telling = Telling(
                self.name, self.fold, self.sentences[best], self.pictures[step], self.seconds
            )
            rows.append(telling)
        return rows


def uniform_within(span: Span, seconds: int) -> Array:
    """Return (T,): a distribution over the seconds of a video, uniform within a span."""
    t = np.arange(seconds)
    ends = np.minimum(t + 1, span.end)
    starts = np.maximum(t, span.start)
    row = np.maximum(ends - starts, 0)
    return np.asarray(row / row.sum())


def read_narrations(path: Path) -> list[Narration]:
    """Return the videos of a narration.json.gz that have steps. A dish has one fold."""
    videos = json.loads(gzip.decompress(path.read_bytes()))
    names = []
    for name in sorted(videos):
        if videos[name]["steps"]:
            names.append(name)
    dishes = [videos[name]["title"] for name in names]
    narrations = []
    for name, fold in zip(names, folds(dishes).tolist(), strict=True):
        narrations.append(read_narration(name, videos[name], fold))
    return narrations


def read_narration(name: str, video: dict[str, Any], fold: int) -> Narration:
    """Return a video with what the line model says of it, as the product asks the model."""
    texts = [row["text"] for row in video["sentences"]]
    lines = [step["text"] for step in video["steps"]]
    vectors = embed(texts)
    line_vectors = embed(lines)
    match = match_lines(
        lines,
        texts,
        line_vectors,
        vectors,
        step_probabilities=np.array(sentence_step_probabilities(texts)),
    )
    transcript = transcript_of(video)
    sentences = [sentence.span for sentence in transcript.sentences]
    pictures = [Span(*step["span"]) for step in video["steps"]]
    ends = [span.end for span in (*sentences, *pictures)]
    return Narration(
        name=name,
        fold=fold,
        sentences=tuple(sentences),
        tells_step=tuple(row["is_step"] for row in video["sentences"]),
        pictures=tuple(pictures),
        seconds=math.ceil(max(*ends, video["duration"] or 0.0)),
        places=match.places * match.said_probabilities[:, None],
        cosines=(line_vectors @ vectors.T).astype(np.float64),
    )


def whenact_tellings() -> list[Telling]:
    """Return WhenAct's phrases that are shown. A source video has one fold."""
    actions = read_actions()
    sources = [action.source for action in actions]
    rows = []
    for action, fold in zip(actions, folds(sources).tolist(), strict=True):
        if action.shown is None:
            continue
        start, end = action.shown
        start = min(start, CLIP - MOMENT_SECONDS)
        picture = Span(start, max(end, start + MOMENT_SECONDS))
        telling = Telling(action.source, fold, action.said, picture, CLIP)
        rows.append(telling)
    return rows


def cut_into_clips(tellings: Sequence[Telling]) -> list[Telling]:
    """Return the tellings within pieces of 60 s, as WhenAct's clips are. What is shown in another
    piece than its words is lost."""
    rows = []
    for telling in tellings:
        start = CLIP * (telling.speech.center // CLIP)
        end = min(start + CLIP, telling.seconds)
        if telling.picture.start >= end or telling.picture.end <= start:
            continue
        part = replace(
            telling,
            speech=_within(telling.speech, start, end),
            picture=_within(telling.picture, start, end),
            seconds=math.ceil(end - start),
        )
        rows.append(part)
    return rows


def _within(span: Span, start: float, end: float) -> Span:
    return Span(max(span.start, start) - start, min(span.end, end) - start)
