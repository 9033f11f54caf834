"""What a model folder in the sentence-transformers layout says about itself; torch-free.

modules.json                 the parts in order: Transformer, Pooling and, perhaps, Normalize
config.json                  the transformer's sizes
1_Pooling/config.json        how token vectors become one vector
sentence_bert_config.json    the longest input, in tokens
tokenizer.json, model.safetensors
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stepline.errors import ModelError

KINDS = ("bert", "mpnet")
PARTS = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class Layout:
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


def read_layout(folder: Path) -> Layout:
    """Return the layout of a model folder. Raises ModelError for a kind that is not supported."""
    for file in ("model.safetensors", "tokenizer.json", "config.json", "modules.json"):
        if not (folder / file).is_file():
            raise ModelError(f"{folder}: no {file}; give a folder in the sentence-transformers layout with safetensors")
    parts = [part["type"].rpartition(".")[2] for part in _json(folder / "modules.json")]
    if parts[:2] != ["Transformer", "Pooling"] or any(part not in PARTS for part in parts):
        raise ModelError(f"{folder}: modules {parts}; only {', '.join(PARTS)} in this order are supported")
    pooling = _json(folder / _json(folder / "modules.json")[1]["path"] / "config.json")
    try:
        return _layout(folder, _json(folder / "config.json"), pooling)
    except KeyError as error:
        raise ModelError(f"{folder}/config.json: no {error}; give a BERT or MPNet model") from error


def _layout(folder: Path, config: dict[str, Any], pooling: dict[str, Any]) -> Layout:
    kind = config["model_type"]
    if kind not in KINDS or config["hidden_act"] != "gelu":
        raise ModelError(f"{folder}: a {kind} model with {config['hidden_act']}; give {' or '.join(KINDS)} with gelu")
    limits = folder / "sentence_bert_config.json"
    longest = _json(limits).get("max_seq_length") if limits.is_file() else None
    room = config["max_position_embeddings"] - (2 if kind == "mpnet" else 0)
    return Layout(
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


def _pooling(folder: Path, config: dict[str, Any]) -> Literal["mean", "cls"]:
    """Read both spellings: one flag a mode (sentence-transformers < 5.3) and `pooling_mode`."""
    flags = [
        key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for key, on in config.items()
        if key.startswith("pooling_mode_") and on
    ]
    modes = [config["pooling_mode"]] if "pooling_mode" in config else flags
    if modes == ["mean"]:
        return "mean"
    if modes == ["cls"]:
        return "cls"
    raise ModelError(f"{folder}: pooling {modes}; only 'mean' or 'cls' is supported")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); install the model again") from error
