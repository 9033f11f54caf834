"""The files of a sentence encoder: its config, and how its vectors are pooled."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

from stepline.errors import ModelError
from stepline.limits import parse_json

Array: TypeAlias = npt.NDArray[Any]
KNOWN_ARCHITECTURES = ("bert", "mpnet")
MODULE_ORDER = ("Transformer", "Pooling", "Normalize")

MAX_DISTANCE_TOKENS = 128  # MPNet puts all larger distances into one bucket
# Our name of each part of a layer -> its name in the checkpoint.
FEED_FORWARD = {
    "widen": "intermediate.dense",
    "narrow": "output.dense",
    "narrow_norm": "output.LayerNorm",
}
UNUSED_WEIGHTS = (
    "pooler.",
    "embeddings.position_ids",
)  # what checkpoints carry beyond the sentence vector


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of a sentence encoder.

    longest: tokens per text, with its marks. The rest of a text is not read.
    """

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


def layer_parts(config: EncoderConfig, layer: int) -> dict[str, str]:
    """Return our name of each part of a layer -> its name in the checkpoint."""
    parts = LAYER_PARTS[config.kind].items()
    return {part: f"encoder.layer.{layer}.{name}" for part, name in parts}


def read_encoder_config(folder: Path) -> EncoderConfig:
    """Return the layout of a model folder. Raises ModelError for a kind that is not supported."""
    # All files of the layout.
    for file in ("model.safetensors", "tokenizer.json", "config.json", "modules.json"):
        if not (folder / file).is_file():
            cure = "give a folder in the sentence-transformers layout with safetensors"
            raise ModelError(f"{folder}: no {file}; {cure}")
    parts = [part["type"].rpartition(".")[2] for part in _json(folder / "modules.json")]
    if parts[:2] != ["Transformer", "Pooling"] or any(part not in MODULE_ORDER for part in parts):
        raise ModelError(
            f"{folder}: modules {parts}; only {', '.join(MODULE_ORDER)} in this order are supported"
        )
    pooling = _json(folder / _json(folder / "modules.json")[1]["path"] / "config.json")
    config = _json(folder / "config.json")
    limits = folder / "sentence_bert_config.json"
    # Sizes, and how much of a text is read.
    try:
        kind = config["model_type"]
        if kind not in KNOWN_ARCHITECTURES or config["hidden_act"] != "gelu":
            cure = f"give {' or '.join(KNOWN_ARCHITECTURES)} with gelu"
            raise ModelError(f"{folder}: a {kind} model with {config['hidden_act']}; {cure}")
        longest = _json(limits).get("max_seq_length") if limits.is_file() else None
        # MPNet leaves its first two positions unused.
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
    modes: list[Any] = []
    if "pooling_mode" in config:
        modes = [config["pooling_mode"]]
    else:
        for key, is_on in config.items():
            if key.startswith("pooling_mode_") and is_on:
                mode = key.removeprefix("pooling_mode_")
                modes.append(mode.removesuffix("_tokens").removesuffix("_token"))
    if modes not in (["mean"], ["cls"]):
        raise ModelError(f"{folder}: pooling {modes}; only 'mean' or 'cls' is supported")
    return "mean" if modes == ["mean"] else "cls"


LAYER_PARTS = {
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


def _json(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); install the model again") from error
