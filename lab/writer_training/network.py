"""What the taggers of narration learn: low-rank additions to MiniLM and linear heads, in torch.

Letters: B windows, L tokens, N rows, W words, D width, R rank, H heads.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import OneCycleLR

from stepline.files.atomic_files import write_atomic
from stepline.networks.weights import find_weights
from stepline.settings import Batch, Count, LayersOrZero, NonNegative, Positive, Seed, Settings
from stepline.text.encoder import layer_parts, load_encoder_weights, read_encoder_config
from stepline.text.narration.adapted_encoder import FORMAT_VERSION, LORA_SCALE, METADATA_KEY
from stepline.text.narration.windows import TokenWindow, WordSpan
from stepline.text.torch_encoder import NO_ATTENTION, PostNormLayers

logger = logging.getLogger(__name__)

LAYER_MATRICES: Final = ("query", "key", "value", "mix", "widen", "narrow")
HIDDEN_TOKEN: Final = 103  # [MASK], those up to it are not words
IGNORED_LABEL: Final = -100  # torch's index of what a cross-entropy leaves out

Sample = TypeVar("Sample")
HeadSize: TypeAlias = tuple[int, int]  # inputs in widths of MiniLM, and classes


class AdditionSettings(Settings):
    """How low-rank additions and heads are trained, by AdamW. The learning rate goes up and then
    down."""

    epochs: Count = 6
    rank: Count = 16  # R of the additions
    first_layer: LayersOrZero = 2  # layers below it stay as they are
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 0.01
    batch_windows: Batch = 16
    dropout: float = Field(default=0.1, ge=0, lt=1)  # of the vectors that the heads read
    hidden_share: float = Field(default=0.0, ge=0, lt=1)  # of tokens that are hidden
    seed: Seed = 0


class LowRankLinear(nn.Module):  # type: ignore[misc]
    """x W' + b with the additions of rank R: W stays, A and B learn."""

    def __init__(self, weight: Tensor, bias: Tensor, rank: int, rng: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        outputs, inputs = weight.shape
        # A is random and B is zero, so training begins at MiniLM itself.
        down = torch.randn(rank, inputs, generator=rng)
        down = down / math.sqrt(inputs)
        self.down = nn.Parameter(down)  # A (R, D in)
        up = torch.zeros(outputs, rank)
        self.up = nn.Parameter(up)  # B (D out, R)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the product with the rows (N, D in): (N, D out)."""
        narrow = F.linear(rows, self.down)  # (N, R)
        addition = F.linear(narrow, self.up)
        product = F.linear(rows, self.weight, self.bias)
        return product + LORA_SCALE * addition


class AdaptedNetwork(PostNormLayers, nn.Module):  # type: ignore[misc]
    """MiniLM with additions, and linear heads. `encode` gives token vectors (B, L, D)."""

    def __init__(self, settings: AdditionSettings, heads: Mapping[str, HeadSize]) -> None:
        """heads: of each its inputs, in widths of MiniLM, and its classes."""
        super().__init__()
        folder = find_weights("minilm")
        self.config = read_encoder_config(folder)
        weights = load_encoder_weights(folder, self.config)
        self.weights = {}
        for name, values in weights.items():
            self.weights[name] = torch.tensor(values)

        # additions
        rng = torch.Generator().manual_seed(settings.seed)
        self.linear = nn.ModuleDict()
        for layer in range(settings.first_layer, self.config.layers):
            part = layer_parts(self.config, layer)
            for matrix in LAYER_MATRICES:
                name = part[matrix]
                weight = self.weights[f"{name}.weight"]
                bias = self.weights[f"{name}.bias"]
                key = _key(name)
                self.linear[key] = LowRankLinear(weight, bias, settings.rank, rng)

        # heads
        width = self.config.width
        self.heads = nn.ModuleDict()
        for name, (widths, classes) in heads.items():
            self.heads[name] = nn.Linear(widths * width, classes)
        self.dropout = settings.dropout

    def encode(self, ids: Tensor, is_token: Tensor) -> Tensor:
        """Return token vectors (B, L, D) of ids (B, L)."""
        fixed = self.weights
        length = ids.shape[1]
        hidden = fixed["embeddings.word_embeddings.weight"][ids]  # (B, L, D)
        hidden = hidden + fixed["embeddings.position_embeddings.weight"][:length]
        hidden = hidden + fixed["embeddings.token_type_embeddings.weight"][0]
        hidden = self._norm("embeddings.LayerNorm", hidden)
        mask = torch.zeros(ids.shape)
        mask = mask.masked_fill(~is_token, NO_ATTENTION)
        mask = mask[:, None, None]  # (B, 1, 1, L)
        return self.run_layers(hidden, mask)

    def _linear(self, name: str, rows: Tensor) -> Tensor:
        key = _key(name)
        if key in self.linear:
            product: Tensor = self.linear[key](rows)
            return product
        return super()._linear(name, rows)

    def head(self, name: str, rows: Tensor) -> Tensor:
        """Return the logits of a head for vectors (N, D)."""
        head = self.heads[name]
        rows = F.dropout(rows, self.dropout, self.training)
        logits: Tensor = head(rows)
        return logits


def _key(name: str) -> str:
    """Return the name of a part as a module may have it."""
    return name.replace(".", "/")


def with_hidden_words(window: TokenWindow, share: float, rng: np.random.Generator) -> TokenWindow:
    """Return the window with a share of its tokens hidden."""
    ids = np.array(window.ids)
    is_hidden = rng.random(len(ids)) < share
    is_hidden &= ids > HIDDEN_TOKEN
    ids[is_hidden] = HIDDEN_TOKEN
    return replace(window, ids=tuple(ids.tolist()))


def encode_windows(network: AdaptedNetwork, windows: Sequence[TokenWindow]) -> Tensor:
    """Return token vectors of windows, (B, L, D)."""
    rows = [torch.tensor(window.ids) for window in windows]
    ids = pad_sequence(rows, batch_first=True)  # (B, L)
    is_token = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = network.encode(ids, is_token.bool())
    return hidden.float()


def word_vectors(hidden: Tensor, span: WordSpan) -> Tensor:
    """Return the means of each word's tokens (W, D). hidden: (L, D)."""
    edges = torch.tensor(span.word_starts)
    first = edges[:-1]
    last = edges[1:]
    # Sums are differences of running totals, without a loop over words.
    totals = F.pad(hidden.cumsum(0), (0, 0, 1, 0))  # (L + 1, D)
    sums = totals[last] - totals[first]  # (W, D)
    # A word that was cut off has no token, and a mean of 0.
    counts = (last - first).clamp(min=1)
    means: Tensor = sums / counts[:, None]
    return means


def fit_in_place(
    network: AdaptedNetwork,
    samples_of_epoch: Callable[[np.random.Generator], Sequence[Sample]],
    loss_of: Callable[[Sequence[Sample]], Tensor],
    settings: AdditionSettings,
) -> None:
    """Train a network, `epochs` times through the samples that the function gives for each.

    The function gets the generator that decides their order too, first.
    """
    parameters = [weight for weight in network.parameters() if weight.requires_grad]
    rng = np.random.default_rng(settings.seed)
    samples = samples_of_epoch(rng)

    # the optimizer, and its schedule
    rate = settings.learning_rate
    decay = settings.weight_decay
    optimizer = torch.optim.AdamW(parameters, rate, weight_decay=decay)
    steps = math.ceil(len(samples) / settings.batch_windows)
    step_count = steps * settings.epochs + 1
    schedule = OneCycleLR(optimizer, rate, step_count, pct_start=0.1)

    # epochs of batches
    network.train()
    for epoch in range(settings.epochs):
        losses = []
        if epoch:
            samples = samples_of_epoch(rng)
        for batch in random_batches(samples, steps, rng):
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
            logger.debug("step %d: loss %.3f", len(losses), losses[-1])
        mean_loss = np.mean(losses)
        logger.info("epoch %d of %d: loss %.3f", epoch + 1, settings.epochs, mean_loss)
    network.eval()


def random_batches(
    samples: Sequence[Sample], count: int, rng: np.random.Generator
) -> Iterator[list[Sample]]:
    """Yield `count` batches that hold each sample once, in random order."""
    order = rng.permutation(len(samples))
    for rows in np.array_split(order, count):
        yield [samples[row] for row in rows]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of what is labelled, zero where nothing is."""
    is_labelled = labels != IGNORED_LABEL
    if not is_labelled.any():
        # Zero, but with a gradient, so that it can be added to other losses.
        return logits.sum() * 0
    return F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)


def write_network(network: AdaptedNetwork, facts: Mapping[str, Any], path: Path) -> None:
    """Write the additions and heads as float16 to a safetensors file, with facts about them."""
    tensors: dict[str, Tensor] = {}
    for key, linear in network.linear.items():
        name = key.replace("/", ".")
        tensors[f"{name}.down"] = linear.down
        tensors[f"{name}.up"] = linear.up
    for key, head in network.heads.items():
        tensors[f"head.{key}.weight"] = head.weight
        tensors[f"head.{key}.bias"] = head.bias
    halves = {}
    for name, values in tensors.items():
        half = values.detach().half()
        halves[name] = half.contiguous()
    facts = {**facts, "version": FORMAT_VERSION}
    metadata = {METADATA_KEY: json.dumps(facts)}
    write_atomic(path, save(halves, metadata))
