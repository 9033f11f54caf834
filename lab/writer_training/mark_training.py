"""Training of what reads punctuation: low-rank additions to MiniLM of its own, and one linear head.

It learns from narrations that a writer punctuated, as words without their marks. Some words are
hidden each time, so that it does not learn them by heart. Of other narrations it learns where
sentences end.
Letters: B windows, W words, D width.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lab.writer_training.marked import MarkedNarration
from lab.writer_training.network import (
    IGNORED_LABEL,
    AdaptedNetwork,
    AdditionSettings,
    cross_entropy,
    encode_windows,
    fit_in_place,
    with_hidden_words,
    word_vectors,
    write_network,
)
from stepline.networks.weights import find_weights
from stepline.settings import Count, LayersOrZero, Positive
from stepline.text.narration.adapted_encoder import load_plain_tokenizer
from stepline.text.narration.punctuation import PUNCTUATION_FILE
from stepline.text.narration.windows import TARGET_WORDS, TokenWindow, word_windows
from stepline.text.narration.words import PUNCTUATION_CLASSES, punctuation_after, spoken_words

logger = logging.getLogger(__name__)


class MarkTrainSettings(AdditionSettings):
    """How what reads punctuation is trained."""

    section: ClassVar[str] = "writing.train.marks"

    rank: Count = 32  # R of the additions
    first_layer: LayersOrZero = 0  # layers below it stay as they are
    learning_rate: Positive = 1.5e-3
    dropout: float = Field(default=0.2, ge=0, lt=1)  # of the vectors that the head reads
    hidden_share: float = Field(default=0.12, ge=0, lt=1)  # of tokens that are hidden


@dataclass(frozen=True)
class _MarkSample:
    """A window over words, and the index of the mark after each, or IGNORED_LABEL."""

    window: TokenWindow
    marks: tuple[int, ...]


@dataclass(frozen=True)
class _Speech:
    """The words of a narration, and the index of the mark after each."""

    words: list[str]
    marks: list[int]

    def words_from(self, begin: int, end: int | None) -> "_Speech":
        """Return a part of it."""
        return _Speech(self.words[begin:end], self.marks[begin:end])


def train_marks(
    narrations: Sequence[MarkedNarration], settings: MarkTrainSettings, out: Path
) -> Path | None:
    """Train on all narrations and return the file, in the folder `out`, None where a writer
    punctuated none."""
    if not any(narration.is_punctuated for narration in narrations):
        logger.info("no narration is punctuated: what reads punctuation is not trained")
        return None
    speeches = [_speech(narration) for narration in narrations]
    tokenizer = load_plain_tokenizer(find_weights("minilm"))
    torch.manual_seed(settings.seed)
    network = AdaptedNetwork(settings, {"mark": (2, len(PUNCTUATION_CLASSES))})

    def samples_of_epoch(rng: np.random.Generator) -> list[_MarkSample]:
        # other windows each time, so that a word has other neighbours
        offset = int(rng.integers(TARGET_WORDS))
        parts: list[_Speech] = []
        for speech in speeches:
            parts.append(speech.words_from(0, offset))
            parts.append(speech.words_from(offset, None))
        samples: list[_MarkSample] = []
        for part in parts:
            for window in word_windows(part.words, tokenizer):
                # A window of running speech has one span.
                (span,) = window.spans
                begin = span.number
                end = begin + len(span.word_starts) - 1
                hidden = with_hidden_words(window, settings.hidden_share, rng)
                samples.append(_MarkSample(hidden, tuple(part.marks[begin:end])))
        return samples

    def loss_of(batch: Sequence[_MarkSample]) -> Tensor:
        return _mark_loss(network, batch)

    fit_in_place(network, samples_of_epoch, loss_of, settings)
    path = out / PUNCTUATION_FILE
    write_network(network, {}, path)
    return path


def _speech(narration: MarkedNarration) -> _Speech:
    """Return the words of a narration and the mark after each.

    Where a machine put the marks, those within a sentence are left out. The end of one
    still has its mark.
    """
    words: list[str] = []
    marks: list[int] = []
    for row in narration.sentences:
        row_words = spoken_words(row.text)
        row_marks = []
        for word in row_words:
            mark = PUNCTUATION_CLASSES.index(punctuation_after(word))
            if mark and not narration.is_punctuated:
                mark = IGNORED_LABEL
            row_marks.append(mark)
        # A sentence ends with a full stop, also where the writer left it out.
        if row_marks and row_marks[-1] != PUNCTUATION_CLASSES.index("question"):
            row_marks[-1] = PUNCTUATION_CLASSES.index("stop")
        words += row_words
        marks += row_marks
    return _Speech(words, marks)


def _mark_loss(network: AdaptedNetwork, batch: Sequence[_MarkSample]) -> Tensor:
    """Return the cross-entropy of the marks after the words of some windows."""
    hidden = encode_windows(network, [sample.window for sample in batch])
    rows = []
    for number, sample in enumerate(batch):
        (span,) = sample.window.spans
        words = word_vectors(hidden[number], span)  # (W, D)
        # A mark is read from the word before it and the one behind, zeros after the last.
        following = F.pad(words[1:], (0, 0, 0, 1))
        rows.append(torch.cat([words, following], 1))
    marks = torch.tensor([mark for sample in batch for mark in sample.marks])
    logits = network.head("mark", torch.cat(rows))
    return cross_entropy(logits, marks)
