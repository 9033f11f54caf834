"""Narrated videos with the seconds in which people marked their steps, and the line model's weights
without a dish, for line_labels.py."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from fit_line_model import FEATURE_NAMES, FOLDS, NarrationReader, all_lists, fit
from narration import transcript_of

from stepline.grounding.line_model import LineWeights, load_line_weights
from stepline.records import Sentence, Span, Transcript
from stepline.text import embed

OTHER_DOCUMENTS = 19  # of other videos that are tried with a video's own

Folds: TypeAlias = Sequence[tuple[frozenset[str], LineWeights]]


@dataclass
class NarratedVideo:
    """A video's sentences and lines with what people marked. spans: (K,) of its own lines."""

    name: str
    dish: str
    transcript: Transcript
    tells_step: tuple[bool, ...]
    lines: tuple[str, ...]
    spans: tuple[Span, ...]
    step_probabilities: np.ndarray
    other_lines: tuple[str, ...] = ()  # of another dish
    documents: tuple[str, ...] = ()  # the videos whose lists are tried, its own among them

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """Return what is said."""
        return self.transcript.sentences


class VectorCache:
    """MiniLM vectors of texts, each text embedded once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._rows: dict[str, np.ndarray] = {}
        self(texts)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the rows of the texts, (N, D)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if new:
            vectors = embed(new)
            self._rows |= dict(zip(new, vectors, strict=True))
        return np.stack([self._rows[text] for text in texts])


def texts_of(sentences: Sequence[Sentence]) -> list[str]:
    """Return the texts of sentences."""
    return [sentence.text for sentence in sentences]


def vectors_of(video: NarratedVideo) -> VectorCache:
    """Return the vectors of a video's sentences and lines."""
    return VectorCache([*texts_of(video.sentences), *video.lines, *video.other_lines])


def each_left_out(videos: Sequence[NarratedVideo], folds: Folds) -> Iterator[NarratedVideo]:
    """Yield the videos, each while the line model has the weights that left its dish out."""
    target = "stepline.grounding.line_model.load_line_weights"
    for dishes, weights in folds:
        with patch(target, return_value=weights):
            for video in videos:
                if video.dish in dishes:
                    yield video


def read_videos(
    reader: NarrationReader, probabilities: dict[str, list[float]]
) -> list[NarratedVideo]:
    """Return the videos with steps, each with the lines of another dish."""
    rng = random.Random(0)
    videos = []
    for name, row in reader.videos.items():
        video = NarratedVideo(
            name=name,
            dish=row["title"],
            transcript=transcript_of(row),
            tells_step=tuple(sentence["is_step"] for sentence in row["sentences"]),
            lines=tuple(step["text"] for step in row["steps"]),
            spans=tuple(Span(*step["span"]) for step in row["steps"]),
            step_probabilities=np.array(probabilities[name]),
        )
        videos.append(video)
    names = [video.name for video in videos]
    for video in videos:
        others = [other for other in videos if other.dish != video.dish]
        video.other_lines = rng.choice(others).lines
        rest = [name for name in names if name != video.name]
        video.documents = tuple(sorted([video.name, *rng.sample(rest, OTHER_DOCUMENTS)]))
    return videos


def fold_weights(reader: NarrationReader, path: Path | None) -> Folds:
    """Return dishes, and weights that were fitted without them. path: where they are kept."""
    if path is None:
        dishes = frozenset(video["title"] for video in reader.videos.values())
        return [(dishes, load_line_weights())]
    if not path.is_file():
        rows = fit_folds(reader)
        path.write_text(json.dumps(rows), encoding="utf-8")
    folds = []
    for held_out, content in json.loads(path.read_text(encoding="utf-8")):
        for name, value in content.items():
            if isinstance(value, list):
                content[name] = tuple(value)
        folds.append((frozenset(held_out), LineWeights(**content)))
    return folds


def fit_folds(reader: NarrationReader) -> list[tuple[list[str], dict[str, Any]]]:
    """Fit weights without each fold of dishes."""
    lists = reader.lists()
    dishes = sorted({item.dish for item in lists["own"]})
    random.Random(0).shuffle(dishes)
    use_all = [True] * len(FEATURE_NAMES)
    rows = []
    for fold in range(FOLDS):
        held_out = dishes[fold::FOLDS]
        train = [item for item in all_lists(lists) if item.dish not in held_out]
        weights = fit(train, use_all)
        rows.append((held_out, asdict(weights)))
    return rows
