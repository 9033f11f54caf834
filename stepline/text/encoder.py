"""Sentence encoder: BERT or MPNet in plain PyTorch, read from a folder in the sentence-transformers layout.

Letters: B texts in a batch, L tokens, H heads, D width. `token_pad` is True where a token is padding.
Sources: Devlin et al. 2019 (BERT), Song et al. 2020 (MPNet), Reimers and Gurevych 2019 (pooling).

modules.json                 the parts in order: Transformer, Pooling and, perhaps, Normalize
config.json                  the transformer's sizes
1_Pooling/config.json        how token vectors become one vector
sentence_bert_config.json    the longest input, in tokens
tokenizer.json, model.safetensors
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from stepline.device import Device, current_device
from stepline.errors import ModelError
from stepline.limits import parse_json
from stepline.records import Matrix

ARCHITECTURES = ("bert", "mpnet")
MODULE_ORDER = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of a sentence encoder. longest: tokens a text, with its marks; the rest of a text is not read."""

    kind: Literal["bert", "mpnet"]
    layers: int
    heads: int
    width: int
    inner: int
    vocabulary: int
    positions: int
    epsilon: float  # of every LayerNorm
    pad: int  # id of the padding token; MPNet counts its positions from the next number
    longest: int
    pooling: Literal["mean", "cls"]
    buckets: int  # of relative distance, MPNet only


def read_encoder_config(folder: Path) -> EncoderConfig:
    """Return the layout of a model folder. Raises ModelError for a kind that is not supported."""
    for file in ("model.safetensors", "tokenizer.json", "config.json", "modules.json"):
        if not (folder / file).is_file():
            raise ModelError(f"{folder}: no {file}; give a folder in the sentence-transformers layout with safetensors")
    parts = [part["type"].rpartition(".")[2] for part in _json(folder / "modules.json")]
    if parts[:2] != ["Transformer", "Pooling"] or any(part not in MODULE_ORDER for part in parts):
        raise ModelError(f"{folder}: modules {parts}; only {', '.join(MODULE_ORDER)} in this order are supported")
    pooling = _json(folder / _json(folder / "modules.json")[1]["path"] / "config.json")
    config, limits = _json(folder / "config.json"), folder / "sentence_bert_config.json"
    try:
        kind = config["model_type"]
        if kind not in ARCHITECTURES or config["hidden_act"] != "gelu":
            cure = f"give {' or '.join(ARCHITECTURES)} with gelu"
            raise ModelError(f"{folder}: a {kind} model with {config['hidden_act']}; {cure}")
        longest = _json(limits).get("max_seq_length") if limits.is_file() else None
        room = config["max_position_embeddings"] - (2 if kind == "mpnet" else 0)
        return EncoderConfig(
            kind=kind,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            width=config["hidden_size"],
            inner=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            positions=config["max_position_embeddings"],
            epsilon=config["layer_norm_eps"],
            pad=config.get("pad_token_id", 1 if kind == "mpnet" else 0),
            longest=min(longest or room, room),
            pooling=_pooling(folder, pooling),
            buckets=config.get("relative_attention_num_buckets", 32),
        )
    except KeyError as error:
        raise ModelError(f"{folder}/config.json: no {error}; give a BERT or MPNet model") from error


def _pooling(folder: Path, config: dict[str, Any]) -> Literal["mean", "cls"]:
    """Read both spellings: one flag a mode (sentence-transformers < 5.3) and `pooling_mode`."""
    flags = [
        key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for key, on in config.items()
        if key.startswith("pooling_mode_") and on
    ]
    modes: list[Any] = [config["pooling_mode"]] if "pooling_mode" in config else flags
    if modes not in (["mean"], ["cls"]):
        raise ModelError(f"{folder}: pooling {modes}; only 'mean' or 'cls' is supported")
    mode: Literal["mean", "cls"] = modes[0]
    return mode


def _json(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); install the model again") from error


FARTHEST = 128  # tokens; MPNet puts all larger distances into one bucket

# Our name of each part of a layer -> its name in the checkpoint.
FEED_FORWARD = {"widen": "intermediate.dense", "narrow": "output.dense", "narrow_norm": "output.LayerNorm"}
PARTS = {
    "bert": {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "mix": "attention.output.dense",
        "mix_norm": "attention.output.LayerNorm",
        **FEED_FORWARD,
    },
    "mpnet": {
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "mix": "attention.attn.o",
        "mix_norm": "attention.LayerNorm",
        **FEED_FORWARD,
    },
}
UNUSED = ("pooler.", "embeddings.position_ids")  # what checkpoints carry beyond the sentence vector


class SentenceEncoder:
    """Token ids to unit sentence vectors; immutable once loaded, so that threads may share it."""

    def __init__(self, folder: Path, device: Device | None = None) -> None:
        self.config = read_encoder_config(folder)
        self.dim = self.config.width  # D of a sentence vector
        self.device = device or current_device()
        weights = _load(folder / "model.safetensors", self.config)
        self.weights = {name: value.to(self.device.name) for name, value in weights.items()}
        path = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises no narrower class
            raise ModelError(f"{path}: not a tokenizer ({error}); install the model again") from error
        self._tokenizer.enable_truncation(self.config.longest)
        self._tokenizer.no_padding()

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, with its marks, cut at the model's longest input."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def encode(self, tokens: Sequence[Sequence[int]]) -> Matrix:
        """Return unit vectors (B, D) float32 for a batch of token ids."""
        longest = max(map(len, tokens))
        ids = torch.tensor([[*row, *[self.config.pad] * (longest - len(row))] for row in tokens])  # (B, L)
        token_pad = torch.tensor([[False] * len(row) + [True] * (longest - len(row)) for row in tokens])
        ids, token_pad = ids.to(self.device.name), token_pad.to(self.device.name)
        with torch.inference_mode(), self.device.autocast():
            hidden = self._transform(ids, token_pad)  # (B, L, D)
            keep = (~token_pad).unsqueeze(2).float()
            pooled = hidden[:, 0] if self.config.pooling == "cls" else (hidden * keep).sum(1) / keep.sum(1)  # (B, D)
            vectors: Matrix = F.normalize(pooled.float(), dim=1).cpu().numpy()
        return vectors

    def _transform(self, ids: Tensor, token_pad: Tensor) -> Tensor:
        """Return the last layer's token vectors (B, L, D)."""
        weights = self.weights
        first = self.config.pad + 1 if self.config.kind == "mpnet" else 0
        positions = torch.arange(first, first + ids.shape[1], device=ids.device)
        hidden = weights["embeddings.word_embeddings.weight"][ids]  # (B, L, D)
        hidden = hidden + weights["embeddings.position_embeddings.weight"][positions]
        if self.config.kind == "bert":
            hidden = hidden + weights["embeddings.token_type_embeddings.weight"][0]
        hidden = self._norm("embeddings.LayerNorm", hidden)
        bias = hidden.new_zeros(token_pad.shape).masked_fill(token_pad, float("-inf"))[:, None, None, :]  # (B, 1, 1, L)
        if self.config.kind == "mpnet":
            buckets = distance_buckets(ids.shape[1], self.config.buckets).to(ids.device)  # (L, L)
            distances = weights["encoder.relative_attention_bias.weight"][buckets]  # (L, L, H)
            bias = bias + distances.permute(2, 0, 1)  # (B, H, L, L)
        for layer in range(self.config.layers):
            hidden = self._layer(layer, hidden, bias)
        return hidden

    def _layer(self, layer: int, hidden: Tensor, bias: Tensor) -> Tensor:
        """Attend, then feed forward, each added and normalised (post-norm). hidden: (B, L, D)."""
        part = {ours: f"encoder.layer.{layer}.{theirs}" for ours, theirs in PARTS[self.config.kind].items()}
        heads = self.config.heads
        query, key, value = (
            self._linear(part[name], hidden).unflatten(2, (heads, -1)).transpose(1, 2)  # (B, H, L, D / H)
            for name in ("query", "key", "value")
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)  # (B, H, L, D / H)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, L, D)
        hidden = self._norm(part["mix_norm"], hidden + self._linear(part["mix"], mixed))
        inner = F.gelu(self._linear(part["widen"], hidden))  # (B, L, 4 D)
        return self._norm(part["narrow_norm"], hidden + self._linear(part["narrow"], inner))

    def _linear(self, name: str, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        scale, shift = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(hidden, scale.shape, scale, shift, self.config.epsilon)


def distance_buckets(length: int, buckets: int) -> Tensor:
    """Return the bucket of the distance between every two tokens: (L, L) int64, row = the attending token.

    Half the buckets serve tokens that come later. In each half one half is exact, the rest grows by logarithm up
    to FARTHEST tokens. Source: Raffel et al. 2020 (T5), as MPNet uses it.
    """
    position = torch.arange(length)
    distance = position[None, :] - position[:, None]  # (L, L), > 0 where the attended token comes later
    half, near = buckets // 2, buckets // 4
    steps = distance.abs()
    growth = torch.log(steps.clamp(min=1).float() / near) / torch.log(torch.tensor(FARTHEST / near))
    far = (near + (growth * (half - near)).long()).clamp(max=half - 1)
    return torch.where(steps < near, steps, far) + half * (distance > 0)


def _load(path: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """Return the weights as float32, after every name and shape was checked."""
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); install the model again") from error
    weights = {name.removeprefix(f"{config.kind}."): value for name, value in weights.items()}
    weights = {name: value for name, value in weights.items() if not name.startswith(UNUSED)}
    shapes = _weight_shapes(config)
    if wrong := sorted(shapes.keys() ^ weights.keys()):
        raise ModelError(
            f"{path}: {len(wrong)} weights are missing or unknown, first {wrong[0]!r}; give a {config.kind} model"
        )
    for name, shape in shapes.items():
        if tuple(weights[name].shape) != shape:
            raise ModelError(f"{path}: {name} is {tuple(weights[name].shape)}, not {shape}; install the model again")
    return {name: value.float() for name, value in weights.items()}


def _weight_shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape that each weight must have."""
    width, inner = config.width, config.inner
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.vocabulary, width),
        "embeddings.position_embeddings.weight": (config.positions, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    if config.kind == "bert":
        shapes["embeddings.token_type_embeddings.weight"] = (2, width)
    else:
        shapes["encoder.relative_attention_bias.weight"] = (config.buckets, config.heads)
    out = {"widen": inner}
    for layer in range(config.layers):
        for ours, theirs in PARTS[config.kind].items():
            name, rows = f"encoder.layer.{layer}.{theirs}", out.get(ours, width)
            columns = inner if ours == "narrow" else width
            shapes[f"{name}.weight"] = (rows,) if ours.endswith("norm") else (rows, columns)
            shapes[f"{name}.bias"] = (rows,)
    return shapes
