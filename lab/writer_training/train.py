"""Training of the narration tagger: low-rank additions to MiniLM and three heads, by AdamW.

Every batch holds windows of sentences: kinds, edits and front verbs are learned together. The same
narrations, settings and processor give the same bytes. What learns punctuation is in mark_training.
Letters: S sentences, W words, D width.
"""

import argparse
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lab.writer_training.labels import EditLabels, edit_labels
from lab.writer_training.mark_training import MarkTrainSettings, train_marks
from lab.writer_training.marked import MarkedNarration, read_marked_narrations
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
from stepline.errors import DatasetError
from stepline.networks.weights import find_weights
from stepline.settings import load_settings
from stepline.text.narration.adapted_encoder import load_plain_tokenizer
from stepline.text.narration.tagger import WEIGHTS_FILE
from stepline.text.narration.windows import TokenWindow, sentence_windows
from stepline.text.narration.words import NO_VERB, SENTENCE_KINDS, WORD_EDITS

logger = logging.getLogger(__name__)

UNKNOWN_KIND: Final = -1  # of a sentence where only is known that it has no step
STEP_COLUMN: Final = SENTENCE_KINDS.index("step")


class TaggerTrainSettings(AdditionSettings):
    """How the narration tagger is trained."""

    section: ClassVar[str] = "writing.train"

    front_verbs: int = Field(
        default=40, ge=0, le=10_000
    )  # commonest verbs that editors put in front
    marks: MarkTrainSettings = MarkTrainSettings()  # of what learns punctuation


@dataclass(frozen=True)
class _WindowSample:
    """A window and what is to be learned of it, a row per span of the window.

    kinds: an index into SENTENCE_KINDS, or UNKNOWN_KIND. verbs: an index or IGNORED_LABEL. edits: an
    index or IGNORED_LABEL per word.
    """

    window: TokenWindow
    kinds: tuple[int, ...]
    verbs: tuple[int, ...]
    edits: tuple[tuple[int, ...], ...]


def train_tagger(
    narrations: Sequence[MarkedNarration], settings: TaggerTrainSettings
) -> tuple[AdaptedNetwork, tuple[str, ...]]:
    """Return the trained network and its front verbs. Raises DatasetError without any step."""
    if not any(_has_step(narration) for narration in narrations):
        raise DatasetError("no sentence is marked as a step; give marked narration")
    labels = [edit_labels(narration.sentences) for narration in narrations]
    front_verbs = _front_verbs(labels, settings.front_verbs)

    # the network
    torch.manual_seed(settings.seed)
    heads = {
        "kind": (1, len(SENTENCE_KINDS)),
        "edit": (2, len(WORD_EDITS)),
        "verb": (1, len(front_verbs)),
    }
    network = AdaptedNetwork(settings, heads)

    # windows of sentences
    tokenizer = load_plain_tokenizer(find_weights("minilm"))
    all_samples: list[_WindowSample] = []
    for narration, rows in zip(narrations, labels, strict=True):
        texts = [row.text for row in narration.sentences]
        for window in sentence_windows(texts, tokenizer):
            all_samples.append(_sentence_sample(window, narration, rows, front_verbs))

    def samples_of_epoch(rng: np.random.Generator) -> list[_WindowSample]:
        samples = []
        for sample in all_samples:
            window = with_hidden_words(sample.window, settings.hidden_share, rng)
            samples.append(replace(sample, window=window))
        return samples

    def loss_of(batch: Sequence[_WindowSample]) -> Tensor:
        return _sentence_loss(network, batch)

    fit_in_place(network, samples_of_epoch, loss_of, settings)
    return network, front_verbs


def _has_step(narration: MarkedNarration) -> bool:
    return any(row.kind == "step" for row in narration.sentences)


def _front_verbs(labels: Sequence[Sequence[EditLabels]], count: int) -> tuple[str, ...]:
    verbs: Counter[str] = Counter()
    for rows in labels:
        verbs.update(label.verb for label in rows)
    del verbs[NO_VERB]
    commonest = [verb for verb, _ in verbs.most_common(count)]
    return (NO_VERB, *sorted(commonest))


def _sentence_sample(
    window: TokenWindow,
    narration: MarkedNarration,
    labels: Sequence[EditLabels],
    front_verbs: Sequence[str],
) -> _WindowSample:
    kinds: list[int] = []
    verbs: list[int] = []
    edits: list[tuple[int, ...]] = []
    for span in window.spans:
        row = narration.sentences[span.number]
        label = labels[span.number]
        kind = UNKNOWN_KIND
        if row.kind is not None:
            kind = SENTENCE_KINDS.index(row.kind)
        kinds.append(kind)

        # words and front verbs are learned from steps alone
        verb = IGNORED_LABEL
        has_steps = bool(row.steps) and not row.is_repeat
        if has_steps and label.verb in front_verbs:
            verb = front_verbs.index(label.verb)
        verbs.append(verb)
        own_edits = label.edits
        if not row.steps:
            own_edits = (IGNORED_LABEL,) * len(label.edits)
        edits.append(own_edits)
    return _WindowSample(window, tuple(kinds), tuple(verbs), tuple(edits))


def _sentence_loss(network: AdaptedNetwork, batch: Sequence[_WindowSample]) -> Tensor:
    """Return the sum of the losses of kinds, edits and front verbs."""
    hidden = encode_windows(network, [sample.window for sample in batch])
    sentence_rows = []
    word_rows = []
    kinds: list[int] = []
    verbs: list[int] = []
    edits: list[int] = []
    # A row per sentence, and per word a row with its sentence's next to it.
    for row, sample in enumerate(batch):
        kinds += sample.kinds
        verbs += sample.verbs
        for span, labels in zip(sample.window.spans, sample.edits, strict=True):
            words = word_vectors(hidden[row], span)  # (W, D)
            # Without words, the window's first token is the sentence.
            sentence = hidden[row, 0]  # (D,)
            if len(words):
                sentence = words.mean(0)
            sentence_rows.append(sentence)
            context = sentence.expand_as(words)
            word_rows.append(torch.cat([words, context], 1))  # (W, 2 D)
            edits += labels
    sentence_matrix = torch.stack(sentence_rows)  # (S, D)

    # losses
    kind_logits = network.head("kind", sentence_matrix)
    loss = _kind_loss(kind_logits, torch.tensor(kinds))
    verb_logits = network.head("verb", sentence_matrix)
    loss = loss + cross_entropy(verb_logits, torch.tensor(verbs))
    edit_logits = network.head("edit", torch.cat(word_rows))
    return loss + cross_entropy(edit_logits, torch.tensor(edits))


def _kind_loss(logits: Tensor, kinds: Tensor) -> Tensor:
    """Return the cross-entropy of the kinds. Of an unknown one, it is that of having no step."""
    log_probabilities = F.log_softmax(logits, 1)  # (S, 8)
    # P(no step) is the sum over all other kinds.
    others = log_probabilities.clone()
    others[:, STEP_COLUMN] = float("-inf")
    no_step = others.logsumexp(1)
    is_unknown = kinds == UNKNOWN_KIND
    columns = kinds.clamp(min=0)[:, None]  # (S, 1)
    own = log_probabilities.gather(1, columns)[:, 0]
    likelihoods = torch.where(is_unknown, no_step, own)
    return -likelihoods.mean()


def train_writer_run(sources: Sequence[Path], out: Path, settings: TaggerTrainSettings) -> Path:
    """Train a tagger on all narrations of the sources and return its file, in the folder `out`.

    Where some are punctuated by a writer, what reads punctuation is trained on them too.
    Raises DatasetError for a source that cannot be read or holds no step.
    """
    narrations: list[MarkedNarration] = []
    for source in sources:
        narrations += read_marked_narrations(source)
    marked = [narration for narration in narrations if narration.has_kinds]
    sentences = sum(len(narration.sentences) for narration in marked)
    logger.info("train on %d sentences of %d narrations", sentences, len(marked))
    network, front_verbs = train_tagger(marked, settings)
    path = out / WEIGHTS_FILE
    write_network(network, {"front_verbs": list(front_verbs)}, path)
    train_marks(narrations, settings.marks, out)
    return path


def main() -> None:
    """Train on the narrations that the command line names, and print the tagger's file."""
    parser = argparse.ArgumentParser(description="Train the narration tagger.")
    parser.add_argument("narration", type=Path, nargs="+", help="marked narration, see docs")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--set", action="append", default=[], help="a setting, e.g. epochs=3")
    options = parser.parse_args()
    settings = load_settings(TaggerTrainSettings, overrides=options.set)
    print(train_writer_run(options.narration, options.out, settings))


if __name__ == "__main__":
    main()
