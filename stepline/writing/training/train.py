"""Training of the narration tagger: low-rank additions to MiniLM and four heads, by AdamW.

Every batch holds windows of sentences (kinds, edits, front verbs) and windows of words without
their marks. The same narrations, settings and processor give the same bytes.
Letters: B windows, L tokens, S sentences, W words, D width, R rank.
"""

import json
import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor, nn

from stepline.atomic_files import write_atomic
from stepline.errors import DatasetError
from stepline.narration.tagger import ADDITION_SCALE, FORMAT_VERSION, WEIGHTS_FILE, plain_tokenizer
from stepline.narration.windows import (
    ASKED_WORDS,
    Window,
    WordSpan,
    pad_windows,
    sentence_windows,
    stretch_windows,
)
from stepline.narration.words import (
    NO_VERB,
    SENTENCE_KINDS,
    WORD_EDITS,
    WORD_MARKS,
    mark_after,
    spoken_words,
)
from stepline.settings import Settings
from stepline.text.encoder import load_encoder_weights
from stepline.text.encoder_config import EncoderConfig, layer_parts, read_encoder_config
from stepline.weights import find_weights
from stepline.writing.training.labels import EditLabels, edit_labels
from stepline.writing.training.marked import MarkedNarration, read_marked_narrations

logger = logging.getLogger(__name__)

LAYER_MATRICES: Final = ("query", "key", "value", "mix", "widen", "narrow")
IGNORED_LABEL: Final = -100  # torch's index of what a cross-entropy leaves out
UNKNOWN_KIND: Final = -1  # of a sentence of which only is known that it tells no step
STEP_COLUMN: Final = SENTENCE_KINDS.index("step")


class TaggerTrainSettings(Settings):
    """How the narration tagger is trained."""

    section: ClassVar[str] = "writing.train"

    epochs: int = Field(default=6, ge=1)
    rank: int = Field(default=16, ge=1)  # R of the additions
    first_layer: int = Field(default=2, ge=0)  # layers below it stay as they are
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    mark_weight: float = Field(default=2.0, ge=0)  # of the loss of marks
    batch_windows: int = Field(default=16, ge=1)  # of sentences; half as many of words
    dropout: float = Field(default=0.1, ge=0, lt=1)  # of the vectors that the heads read
    front_verbs: int = Field(default=40, ge=0)  # commonest verbs that editors put in front
    seed: int = 0


class LowRankLinear(nn.Module):  # type: ignore[misc]
    """x W' + b with the additions of rank R: W stays, A and B learn."""

    def __init__(self, weight: Tensor, bias: Tensor, rank: int, rng: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        width = weight.shape[1]
        start = torch.randn(rank, width, generator=rng) / math.sqrt(width)
        self.down = nn.Parameter(start)  # A (R, D in)
        self.up = nn.Parameter(torch.zeros(weight.shape[0], rank))  # B (D out, R)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the product with the rows (N, D in): (N, D out)."""
        addition = F.linear(F.linear(rows, self.down), self.up)
        return F.linear(rows, self.weight, self.bias) + ADDITION_SCALE * addition


class TaggerNetwork(nn.Module):  # type: ignore[misc]
    """MiniLM with additions, and the heads; `encode` gives token vectors (B, L, D)."""

    def __init__(self, settings: TaggerTrainSettings, front_verbs: Sequence[str]) -> None:
        super().__init__()
        folder = find_weights("minilm")
        self.config: EncoderConfig = read_encoder_config(folder)
        weights = load_encoder_weights(folder, self.config)
        self._fixed = {name: torch.tensor(value) for name, value in weights.items()}
        rng = torch.Generator().manual_seed(settings.seed)
        self.linear = nn.ModuleDict()
        for layer in range(settings.first_layer, self.config.layers):
            part = layer_parts(self.config, layer)
            for name in LAYER_MATRICES:
                weight = self._fixed[f"{part[name]}.weight"]
                bias = self._fixed[f"{part[name]}.bias"]
                self.linear[_key(part[name])] = LowRankLinear(weight, bias, settings.rank, rng)
        width = self.config.width
        sizes = {
            "kind": (width, len(SENTENCE_KINDS)),
            "edit": (2 * width, len(WORD_EDITS)),
            "verb": (width, len(front_verbs)),
            "mark": (2 * width, len(WORD_MARKS)),
        }
        self.heads = nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()})
        self.dropout = settings.dropout

    def encode(self, ids: Tensor, is_token: Tensor) -> Tensor:
        """Return token vectors (B, L, D) of ids (B, L)."""
        fixed = self._fixed
        length = ids.shape[1]
        hidden = fixed["embeddings.word_embeddings.weight"][ids]  # (B, L, D)
        hidden = hidden + fixed["embeddings.position_embeddings.weight"][:length]
        hidden = hidden + fixed["embeddings.token_type_embeddings.weight"][0]
        hidden = self._norm("embeddings.LayerNorm", hidden)
        mask = torch.zeros(ids.shape).masked_fill(~is_token, float("-inf"))[:, None, None]
        for layer in range(self.config.layers):
            hidden = self._layer(layer_parts(self.config, layer), hidden, mask)
        return hidden

    def _layer(self, part: Mapping[str, str], hidden: Tensor, mask: Tensor) -> Tensor:
        """Attend, then feed forward, each added and normalised (post-norm)."""
        inputs = []  # query, key and value, each (B, H, L, D / H)
        for name in ("query", "key", "value"):
            rows = self._linear(part[name], hidden)
            inputs.append(rows.unflatten(2, (self.config.heads, -1)).transpose(1, 2))
        query, key, value = inputs
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed = self._linear(part["mix"], mixed.transpose(1, 2).flatten(2))
        hidden = self._norm(part["mix_norm"], hidden + mixed)
        inner = F.gelu(self._linear(part["widen"], hidden))
        inner = self._linear(part["narrow"], inner)
        return self._norm(part["narrow_norm"], hidden + inner)

    def _linear(self, name: str, rows: Tensor) -> Tensor:
        key = _key(name)
        if key in self.linear:
            product: Tensor = self.linear[key](rows)
            return product
        return F.linear(rows, self._fixed[f"{name}.weight"], self._fixed[f"{name}.bias"])

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        scale = self._fixed[f"{name}.weight"]
        shift = self._fixed[f"{name}.bias"]
        return F.layer_norm(hidden, scale.shape, scale, shift, self.config.epsilon)

    def head(self, name: str, rows: Tensor) -> Tensor:
        """Return the logits of a head for vectors (N, D)."""
        logits: Tensor = self.heads[name](F.dropout(rows, self.dropout, self.training))
        return logits


def _key(name: str) -> str:
    """Return the name of a part as a module may have it."""
    return name.replace(".", "/")


@dataclass(frozen=True)
class _WindowSample:
    """A window and what is to be learned of it, a row a span of the window.

    kinds: an index into SENTENCE_KINDS, or UNKNOWN_KIND. verbs: an index or IGNORED_LABEL. edits, marks: an index
    or IGNORED_LABEL a word.
    """

    window: Window
    kinds: tuple[int, ...] = ()
    verbs: tuple[int, ...] = ()
    edits: tuple[tuple[int, ...], ...] = ()
    marks: tuple[int, ...] = ()


def train_tagger(
    narrations: Sequence[MarkedNarration], settings: TaggerTrainSettings
) -> tuple[TaggerNetwork, tuple[str, ...]]:
    """Return the trained network and its front verbs. Raises DatasetError without any step."""
    if not any(row.kind == "step" for narration in narrations for row in narration.sentences):
        raise DatasetError("no sentence is marked as a step; give marked narration")
    labels = [edit_labels(narration.sentences) for narration in narrations]
    front_verbs = _front_verbs(labels, settings.front_verbs)
    torch.manual_seed(settings.seed)
    network = TaggerNetwork(settings, front_verbs)
    tokenizer = plain_tokenizer(find_weights("minilm"))
    sentences: list[_WindowSample] = []
    for narration, rows in zip(narrations, labels, strict=True):
        windows = sentence_windows([row.text for row in narration.sentences], tokenizer)
        sentences += [_sentence_sample(w, narration, rows, front_verbs) for w in windows]
    stretches = [_marks_of(narration) for narration in narrations]
    _fit(network, sentences, stretches, tokenizer, settings)
    return network, front_verbs


def _front_verbs(labels: Sequence[Sequence[EditLabels]], count: int) -> tuple[str, ...]:
    verbs = Counter(label.verb for rows in labels for label in rows if label.verb != NO_VERB)
    return (NO_VERB, *sorted(verb for verb, _ in verbs.most_common(count)))


def _sentence_sample(
    window: Window,
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
        kinds.append(UNKNOWN_KIND if row.kind is None else SENTENCE_KINDS.index(row.kind))
        has_steps = bool(row.steps) and not row.is_repeat
        is_known = has_steps and label.verb in front_verbs
        verbs.append(front_verbs.index(label.verb) if is_known else IGNORED_LABEL)
        edits.append(label.edits if row.steps else (IGNORED_LABEL,) * len(label.edits))
    return _WindowSample(window, tuple(kinds), tuple(verbs), tuple(edits))


def _marks_of(narration: MarkedNarration) -> tuple[list[str], list[int]]:
    """Return the words of a narration and the mark after each.

    Where a machine put the marks, those within a sentence are left out; its end is one all the
    same.
    """
    words: list[str] = []
    marks: list[int] = []
    for row in narration.sentences:
        row_words = spoken_words(row.text)
        row_marks = [WORD_MARKS.index(mark_after(word)) for word in row_words]
        if not narration.is_punctuated:
            row_marks = [mark if mark == 0 else IGNORED_LABEL for mark in row_marks]
        if row_marks and row_marks[-1] != WORD_MARKS.index("question"):
            row_marks[-1] = WORD_MARKS.index("stop")
        words += row_words
        marks += row_marks
    return words, marks


def _stretch_samples(
    stretches: Sequence[tuple[list[str], list[int]]], offset: int, tokenizer: Tokenizer
) -> list[_WindowSample]:
    """Return windows over the words of each narration from the word `offset` on."""
    samples = []
    for words, marks in stretches:
        for window in stretch_windows(words[offset:], tokenizer):
            span = window.spans[0]
            begin = offset + span.number
            end = begin + len(span.starts) - 1
            samples.append(_WindowSample(window, marks=tuple(marks[begin:end])))
    return samples


def _fit(
    network: TaggerNetwork,
    sentences: Sequence[_WindowSample],
    stretches: Sequence[tuple[list[str], list[int]]],
    tokenizer: Tokenizer,
    settings: TaggerTrainSettings,
) -> None:
    """Train in place: `epochs` times through all windows, the learning rate up and then down."""
    parameters = [weight for weight in network.parameters() if weight.requires_grad]
    rate = settings.learning_rate
    optimizer = torch.optim.AdamW(parameters, rate, weight_decay=settings.weight_decay)
    steps = math.ceil(len(sentences) / settings.batch_windows)
    total = steps * settings.epochs + 1
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total, pct_start=0.1)
    rng = np.random.default_rng(settings.seed)
    network.train()
    for epoch in range(settings.epochs):
        losses = []
        # other windows each time, so that a word has other neighbours
        offset = int(rng.integers(ASKED_WORDS))
        samples = _stretch_samples(stretches, offset, tokenizer)
        word_batches = _batches(samples, steps, rng)
        for batch, words in zip(_batches(sentences, steps, rng), word_batches, strict=True):
            mark_loss = _mark_loss(network, words)
            loss = _sentence_loss(network, batch) + settings.mark_weight * mark_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
            logger.debug("step %d: loss %.3f", len(losses), losses[-1])
        logger.info("epoch %d of %d: loss %.3f", epoch + 1, settings.epochs, np.mean(losses))
    network.eval()


def _batches(
    samples: Sequence[_WindowSample], count: int, rng: np.random.Generator
) -> Iterator[list[_WindowSample]]:
    """Yield `count` batches that hold each sample once, in random order."""
    order = rng.permutation(len(samples))
    for rows in np.array_split(order, count):
        yield [samples[row] for row in rows]


def _encode(network: TaggerNetwork, batch: Sequence[_WindowSample]) -> Tensor:
    ids, is_token = pad_windows([sample.window for sample in batch])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = network.encode(torch.tensor(ids), torch.tensor(is_token))
    return hidden.float()


def _word_vectors(hidden: Tensor, span: WordSpan) -> Tensor:
    """Return the means of each word's tokens (W, D). hidden: (L, D)."""
    edges = torch.tensor(span.starts)
    total = F.pad(hidden.cumsum(0), (0, 0, 1, 0))  # (L + 1, D)
    counts = (edges[1:] - edges[:-1]).clamp(min=1)[:, None]
    means: Tensor = (total[edges[1:]] - total[edges[:-1]]) / counts
    return means


def _sentence_loss(network: TaggerNetwork, batch: Sequence[_WindowSample]) -> Tensor:
    """Return the sum of the losses of kinds, edits and front verbs."""
    hidden = _encode(network, batch)
    sentence_rows = []
    word_rows = []
    edits: list[int] = []
    for row, sample in enumerate(batch):
        for span, labels in zip(sample.window.spans, sample.edits, strict=True):
            words = _word_vectors(hidden[row], span)  # (W, D)
            sentence = words.mean(0) if len(words) else hidden[row, 0]
            sentence_rows.append(sentence)
            word_rows.append(torch.cat([words, sentence.expand_as(words)], 1))
            edits += labels
    sentence_matrix = torch.stack(sentence_rows)  # (S, D)
    kinds = torch.tensor([kind for sample in batch for kind in sample.kinds])
    verbs = torch.tensor([verb for sample in batch for verb in sample.verbs])
    loss = _kind_loss(network.head("kind", sentence_matrix), kinds)
    loss = loss + _cross_entropy(network.head("verb", sentence_matrix), verbs)
    return loss + _cross_entropy(network.head("edit", torch.cat(word_rows)), torch.tensor(edits))


def _mark_loss(network: TaggerNetwork, batch: Sequence[_WindowSample]) -> Tensor:
    if not batch:
        return torch.zeros(())
    hidden = _encode(network, batch)
    rows = []
    for number, sample in enumerate(batch):
        words = _word_vectors(hidden[number], sample.window.spans[0])  # (W, D)
        following = torch.cat([words[1:], words[:1] * 0])
        rows.append(torch.cat([words, following], 1))
    marks = torch.tensor([mark for sample in batch for mark in sample.marks])
    return _cross_entropy(network.head("mark", torch.cat(rows)), marks)


def _kind_loss(logits: Tensor, kinds: Tensor) -> Tensor:
    """Return the cross-entropy of the kinds; of an unknown one, that of telling no step."""
    log_probabilities = F.log_softmax(logits, 1)  # (S, 8)
    others = log_probabilities.clone()
    others[:, STEP_COLUMN] = float("-inf")
    no_step = others.logsumexp(1)
    is_unknown = kinds == UNKNOWN_KIND
    own = log_probabilities.gather(1, kinds.clamp(min=0)[:, None])[:, 0]
    return -torch.where(is_unknown, no_step, own).mean()


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of what is labelled; zero where nothing is."""
    if not (labels != IGNORED_LABEL).any():
        return logits.sum() * 0
    return F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)


def write_tagger(network: TaggerNetwork, front_verbs: Sequence[str], path: Path) -> None:
    """Write the additions and heads as float16 to a safetensors file."""
    tensors: dict[str, Tensor] = {}
    for key, linear in network.linear.items():
        name = key.replace("/", ".")
        tensors[f"{name}.down"] = linear.down
        tensors[f"{name}.up"] = linear.up
    for key, head in network.heads.items():
        tensors[f"head.{key}.weight"] = head.weight
        tensors[f"head.{key}.bias"] = head.bias
    halves = {name: value.detach().half().contiguous() for name, value in tensors.items()}
    facts = {"front_verbs": list(front_verbs), "version": FORMAT_VERSION}
    write_atomic(path, save(halves, {METADATA_KEY: json.dumps(facts)}))


def train_writer_run(sources: Sequence[Path], out: Path, settings: TaggerTrainSettings) -> Path:
    """Train a tagger on all narrations of the sources and return its file, in the folder `out`.

    Raises DatasetError for a source that cannot be read or holds no step.
    """
    narrations: list[MarkedNarration] = []
    for source in sources:
        narrations += read_marked_narrations(source)
    sentences = sum(len(narration.sentences) for narration in narrations)
    logger.info("train on %d sentences of %d narrations", sentences, len(narrations))
    network, front_verbs = train_tagger(narrations, settings)
    path = out / WEIGHTS_FILE
    write_tagger(network, front_verbs, path)
    return path
