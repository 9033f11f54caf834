"""Sentence encoder: BERT or MPNet, read from a folder in the sentence-transformers layout.

ONNX Runtime runs it on a CPU, torch on any other device, or in other numbers than float32
(`torch_encoder.py`). Letters: B texts in a batch, L tokens, H heads, D width. `token_pad` is True
where a token is padding. Sources: Devlin et al. 2019 (BERT), Song et al. 2020 (MPNet), Reimers and
Gurevych 2019 (pooling).

modules.json                 the parts in order: Transformer, Pooling and, perhaps, Normalize
config.json                  the transformer's sizes
1_Pooling/config.json        how token vectors become one vector
sentence_bert_config.json    the longest input, in tokens
tokenizer.json, model.safetensors
"""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from stepline.errors import ModelError
from stepline.limits import parse_json, read_safetensors_header
from stepline.networks.device import Device, current_device
from stepline.networks.onnx_graph import OnnxGraph
from stepline.records import Matrix

Array = npt.NDArray[Any]
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
    """Architecture and sizes of a sentence encoder.

    Attributes:
        architecture: the architecture: "bert" or "mpnet".
        layers: number of transformer layers.
        heads: number of attention heads per layer, H.
        width: width of a token or sentence vector, D.
        feed_forward_width: width of the feed-forward layers.
        vocabulary: number of tokens that have an embedding.
        positions: number of position embeddings.
        epsilon: added to the variance in every LayerNorm.
        pad_id: id of the padding token. MPNet counts its positions from the next number.
        max_tokens: tokens per text, special tokens included. Longer texts are truncated.
        pooling: how token vectors become the sentence vector.
        bucket_count: number of buckets of relative distance between tokens, used by MPNet only.
    """

    architecture: Literal["bert", "mpnet"]
    layers: int
    heads: int
    width: int
    feed_forward_width: int
    vocabulary: int
    positions: int
    epsilon: float
    pad_id: int
    max_tokens: int
    pooling: Literal["mean", "cls"]
    bucket_count: int


def layer_parts(config: EncoderConfig, layer: int) -> dict[str, str]:
    """Return our name -> checkpoint name of each part of one transformer layer, such as "query".
    Names have no ".weight" or ".bias".

    Args:
        config: architecture of the encoder, which decides the names.
        layer: index of the layer.
    """
    parts = LAYER_PARTS[config.architecture].items()
    return {part: f"encoder.layer.{layer}.{name}" for part, name in parts}


def read_encoder_config(folder: Path) -> EncoderConfig:
    """Return the configuration of a model folder. Raises ModelError for an unsupported kind."""
    # All files of the layout.
    for file in ("model.safetensors", "tokenizer.json", "config.json", "modules.json"):
        if not (folder / file).is_file():
            cure = "give a folder in the sentence-transformers layout with safetensors"
            raise ModelError(f"{folder}: no {file}; {cure}")
    parts = [part["type"].rpartition(".")[2] for part in _read_json(folder / "modules.json")]
    if parts[:2] != ["Transformer", "Pooling"] or any(part not in MODULE_ORDER for part in parts):
        raise ModelError(
            f"{folder}: modules {parts}; only {', '.join(MODULE_ORDER)} in this order are supported"
        )
    pooling = _read_json(folder / _read_json(folder / "modules.json")[1]["path"] / "config.json")
    config = _read_json(folder / "config.json")
    limits = folder / "sentence_bert_config.json"
    # Sizes, and how much of a text is read.
    try:
        kind = config["model_type"]
        if kind not in KNOWN_ARCHITECTURES or config["hidden_act"] != "gelu":
            cure = f"give {' or '.join(KNOWN_ARCHITECTURES)} with gelu"
            raise ModelError(f"{folder}: a {kind} model with {config['hidden_act']}; {cure}")
        max_tokens = _read_json(limits).get("max_seq_length") if limits.is_file() else None
        # MPNet leaves its first two positions unused.
        max_positions = config["max_position_embeddings"] - (2 if kind == "mpnet" else 0)
        return EncoderConfig(
            architecture=kind,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            width=config["hidden_size"],
            feed_forward_width=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            positions=config["max_position_embeddings"],
            epsilon=config["layer_norm_eps"],
            pad_id=config.get("pad_token_id", 1 if kind == "mpnet" else 0),
            max_tokens=min(max_tokens or max_positions, max_positions),
            pooling=_pooling(folder, pooling),
            bucket_count=config.get("relative_attention_num_buckets", 32),
        )
    except KeyError as error:
        raise ModelError(f"{folder}/config.json: no {error}; give a BERT or MPNet model") from error


def _pooling(folder: Path, config: dict[str, Any]) -> Literal["mean", "cls"]:
    """Return the pooling that a pooling configuration names, in either of two formats: one flag per
    mode (sentence-transformers < 5.3) or `pooling_mode`. folder: named in the error."""
    modes = [
        key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for key, is_on in config.items()
        if key.startswith("pooling_mode_") and is_on
    ]
    modes = [config["pooling_mode"]] if "pooling_mode" in config else modes
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


def _read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); install the model again") from error


class TokenEncoder:
    """A transformer from token ids to token vectors. It is immutable once loaded, so thread-safe."""

    def __init__(
        self, folder: Path, config: EncoderConfig, weights: dict[str, Array], device: Device
    ) -> None:
        """Load the transformer of a model folder on a device.

        Args:
            folder: folder of the model.
            config: architecture and sizes.
            weights: checkpoint name -> array, from `load_encoder_weights`. The weights are removed
                from the dict one by one, to save memory.
            device: device of the transformer.
        """
        self._config = config
        # Looked up in the file: the table of words is half of the weights.
        del weights[WORD_VECTORS_NAME]
        self._words = WordEmbeddingTable(folder, config)
        self._positions = np.array(weights.pop("embeddings.position_embeddings.weight"))
        if config.architecture == "bert":
            # All text is of type 0.
            self._positions = self._positions + weights.pop(TYPE_VECTORS_NAME)[0]
        self._distances: Array | None = None  # (buckets, H)
        if config.architecture == "mpnet":
            # MPNet counts positions from the number after its padding.
            self._positions = self._positions[config.pad_id + 1 :]
            self._distances = np.array(weights.pop("encoder.relative_attention_bias.weight"))
        if device.needs_torch:
            from stepline.text.torch_encoder import TorchTransformer

            self._transform: Transformer = TorchTransformer(config, weights, device)
        else:
            self._transform = compile_transformer(config, weights)

    def encode(self, ids: Array, keep: Array) -> Array:
        """Return the last layer's token vectors, (B, L, D).

        Args:
            ids: token ids, (B, L).
            keep: 0 where a token is padding, else 1, (B, L).
        """
        length = ids.shape[1]
        inputs = {"hidden": self._words[ids] + self._positions[:length], "keep": keep}
        if self._distances is not None:
            bias = self._distances[distance_buckets(length, self._config.bucket_count)]  # (L, L, H)
            inputs["bias"] = np.ascontiguousarray(bias.transpose(2, 0, 1)[None])  # (1, H, L, L)
        return self._transform(**inputs)


class SentenceEncoder:
    """A sentence encoder, from token ids to unit vectors of width D. Immutable once loaded, so
    thread-safe."""

    def __init__(self, folder: Path, device: Device | None = None) -> None:
        """Load the model of a folder. device: None is the device of this process."""
        self.config = read_encoder_config(folder)
        self.dim = self.config.width  # D of a sentence vector
        self.device = device or current_device()
        weights = load_encoder_weights(folder, self.config)
        self._encoder = TokenEncoder(folder, self.config, weights, self.device)
        self._tokenizer = _load_tokenizer(folder / "tokenizer.json")
        self._tokenizer.enable_truncation(self.config.max_tokens)
        self._tokenizer.no_padding()

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, truncated to the model's maximum length."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def encode(self, tokens: Sequence[Sequence[int]]) -> Matrix:
        """Return the unit vectors of B texts, (B, D) float32. tokens: the token ids of each text."""
        # tokens, padded
        shape = (len(tokens), max(map(len, tokens)))
        ids = np.full(shape, self.config.pad_id)  # (B, L)
        keep = np.zeros(shape, np.int32)
        for row, text_ids in enumerate(tokens):
            ids[row, : len(text_ids)] = text_ids
            keep[row, : len(text_ids)] = 1

        # unit vectors of texts
        hidden = self._encoder.encode(ids, keep)  # (B, L, D)
        if self.config.pooling == "cls":
            pooled = hidden[:, 0]  # (B, D)
        else:
            weight = keep[:, :, None].astype(np.float32)
            pooled = (hidden * weight).sum(1) / weight.sum(1)
        vectors: Matrix = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return vectors


def _load_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises no narrower class
        raise ModelError(f"{path}: not a tokenizer ({error}); install the model again") from error


# hidden (B, L, D): words and positions. keep (B, L) int32: 0 where a token is padding. MPNet's bias
# (1, H, L, L).
# Returns the last layer's token vectors (B, L, D).
Transformer = Callable[..., Array]


def compile_transformer(config: EncoderConfig, weights: dict[str, Array]) -> Transformer:
    """Return the post-norm transformer layers as a function that runs an ONNX Runtime graph.

    It uses ONNX Runtime's fused kernels: multi-head attention, a sum with its LayerNorm, GELU with
    its bias.

    Args:
        config: the sizes.
        weights: name in the checkpoint -> values. They are removed from the dict one by one, so that
            they are not held twice.
    """
    graph = OnnxGraph()
    fused_domain: dict[str, Any] = {"domain": "com.microsoft"}
    norm_settings: dict[str, Any] = {"epsilon": config.epsilon}

    def matrix(name: str) -> str:
        return graph.constant(weights.pop(f"{name}.weight").T)

    def vector(name: str) -> str:
        return graph.constant(weights.pop(name))

    def norm_tensors(name: str) -> tuple[str, str]:
        return vector(f"{name}.weight"), vector(f"{name}.bias")

    def add_norm(rows: str, residual: str, linear_name: str, norm_name: str) -> str:
        projected = graph.add("MatMul", rows, matrix(linear_name))
        scale, shift = norm_tensors(norm_name)
        inputs = (projected, residual, scale, shift, vector(f"{linear_name}.bias"))
        return graph.add("SkipLayerNormalization", *inputs, **norm_settings, **fused_domain)

    def stacked(names: Sequence[str], kind: str) -> Array:
        return np.concatenate([weights.pop(f"{name}.{kind}") for name in names])

    # inputs
    hidden = graph.input("hidden", ("B", "L", config.width))
    keep = graph.input("keep", ("B", "L"), "int32")
    distances = ""
    if config.architecture == "mpnet":
        distances = graph.input("bias", (1, config.heads, "L", "L"))
    first_norm = norm_tensors("embeddings.LayerNorm")
    hidden = graph.add("LayerNormalization", hidden, *first_norm, **norm_settings)
    for layer in range(config.layers):
        part = layer_parts(config, layer)

        # attention of all heads
        names = (part["query"], part["key"], part["value"])
        matrices = stacked(names, "weight")
        biases = stacked(names, "bias")
        qkv_weight = graph.constant(matrices.T)  # (D, 3 D)
        inputs = (hidden, qkv_weight, graph.constant(biases), keep, "", distances)
        attended = graph.add("Attention", *inputs, num_heads=config.heads, **fused_domain)
        hidden = add_norm(attended, hidden, part["mix"], part["mix_norm"])

        # feed forward
        widen = part["widen"]
        inner = graph.add("MatMul", hidden, matrix(widen))
        inner = graph.add("BiasGelu", inner, vector(f"{widen}.bias"), **fused_domain)
        hidden = add_norm(inner, hidden, part["narrow"], part["narrow_norm"])
    return graph.compile(hidden)


def distance_buckets(length: int, buckets: int) -> Array:
    """Return the bucket of relative position of each pair of tokens, (L, L) int64. The row is the
    token that attends, the column the token it attends to.

    One half of the buckets is for later tokens. In each half, the first half holds one distance per
    bucket, and the others grow logarithmically up to MAX_DISTANCE_TOKENS.

    Args:
        length: number of tokens, L.
        buckets: number of buckets.
    Source: Raffel et al. 2020 (T5), as MPNet uses it.
    """
    position = np.arange(length)
    # (L, L), > 0 where the attended token comes later
    distance = position[None, :] - position[:, None]
    half_buckets = buckets // 2
    exact_buckets = buckets // 4
    token_distance = np.abs(distance)
    # in float32, as transformers does: at whole powers the last bit decides the bucket
    ratio = np.maximum(token_distance, 1).astype(np.float32) / exact_buckets
    max_ratio = np.float32(MAX_DISTANCE_TOKENS / exact_buckets)
    log_growth = np.log(ratio) / np.log(max_ratio)
    far_bucket = exact_buckets + (log_growth * (half_buckets - exact_buckets)).astype(int)
    far_bucket = np.minimum(far_bucket, half_buckets - 1)
    bucket: Array = np.where(token_distance < exact_buckets, token_distance, far_bucket)
    bucket += half_buckets * (distance > 0)
    return bucket


# How safetensors names the numbers that a checkpoint may have. bfloat16 is the upper half of a
# float32.
NUMPY_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
WEIGHTS_FILE = "model.safetensors"
WORD_VECTORS_NAME = "embeddings.word_embeddings.weight"  # (vocabulary, D)
TYPE_VECTORS_NAME = "embeddings.token_type_embeddings.weight"  # (2, D)


class WordEmbeddingTable:
    """A model's word embeddings (vocabulary, D), each read from the file on lookup. It is thread-safe.

    A memory map would load the sixteen pages around each word: 30 MiB and more for a video's text.
    """

    def __init__(self, folder: Path, config: EncoderConfig) -> None:
        """Open the weights file of a model folder, which `load_encoder_weights` has checked."""
        self._path = folder / WEIGHTS_FILE
        self._lock = threading.Lock()
        self._file = self._path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)
        for name, location in _tensor_locations(self._path):
            if name.removeprefix(f"{config.architecture}.") == WORD_VECTORS_NAME:
                self._location = location

    def __getitem__(self, ids: Array) -> Array:
        """Return the embedding of each token id, in the shape of `ids` with one more axis of width
        D, float32. Raises ModelError for a truncated file."""
        location = self._location
        unique_ids, positions = np.unique(ids, return_inverse=True)
        width = location.shape[1]
        rows = np.empty((len(unique_ids), width), location.numpy_dtype)
        row_bytes = rows.dtype.itemsize * width
        with self._lock:
            for row, token_id in enumerate(unique_ids.tolist()):
                self._file.seek(location.offset + token_id * row_bytes)
                content = self._file.read(row_bytes)
                if len(content) != row_bytes:
                    raise ModelError(f"{self._path}: was cut short; install the model again")
                rows[row] = np.frombuffer(content, location.numpy_dtype)
        return location.decode(rows)[positions.reshape(np.shape(ids))]


def load_encoder_weights(folder: Path, config: EncoderConfig) -> dict[str, Array]:
    """Return checkpoint name -> float32 array of the weights of a model folder, with all names and
    shapes checked.

    Raises ModelError for an unreadable file or another model.
    """
    path = folder / WEIGHTS_FILE
    weights = {}
    try:
        for name, values in _map_tensors(path):
            short_name = name.removeprefix(f"{config.architecture}.")
            if not short_name.startswith(UNUSED_WEIGHTS):
                weights[short_name] = values
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); install the model again") from error
    shapes = _weight_shapes(config)
    mismatched = sorted(shapes.keys() ^ weights.keys())
    if mismatched:
        problem = f"{len(mismatched)} weights are missing or unknown, first {mismatched[0]!r}"
        raise ModelError(f"{path}: {problem}; give a {config.architecture} model")
    for name, shape in shapes.items():
        if weights[name].shape != shape:
            problem = f"{name} is {weights[name].shape}, not {shape}"
            raise ModelError(f"{path}: {problem}; install the model again")
    return weights


class TensorLocation(NamedTuple):
    """The position of a tensor in a safetensors file.

    Attributes:
        dtype_name: type of its numbers as the file names it, a key of NUMPY_DTYPES.
        offset: position of its first byte in the file.
        size: number of bytes.
        shape: lengths of its dimensions.
    """

    dtype_name: str
    offset: int
    size: int
    shape: tuple[int, ...]

    @property
    def numpy_dtype(self) -> str:
        """The NumPy dtype of the stored numbers."""
        return NUMPY_DTYPES[self.dtype_name]

    def decode(self, values: Array) -> Array:
        """Return numbers of this tensor's stored type as float32. NumPy has no bfloat16, so it is
        converted here."""
        if self.dtype_name == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32, copy=False)


def _tensor_locations(path: Path) -> Iterator[tuple[str, TensorLocation]]:
    """Yield the name and location of each tensor in a safetensors file."""
    with path.open("rb") as file:
        header, begin = read_safetensors_header(file)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        yield name, TensorLocation(entry["dtype"], begin + start, end - start, shape)


def _map_tensors(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the name and values (float32, memory-mapped) of each tensor in a safetensors file."""
    for name, location in _tensor_locations(path):
        values = np.memmap(path, location.numpy_dtype, "r", location.offset, location.shape)
        if values.nbytes != location.size:
            raise ValueError(f"{name}: {location.size} bytes for {values.nbytes}")
        yield name, location.decode(values).view(np.ndarray)


def _weight_shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape that each weight of a model must have, by its name in the checkpoint."""
    width = config.width
    inner = config.feed_forward_width
    # Words and positions.
    shapes: dict[str, tuple[int, ...]] = {
        WORD_VECTORS_NAME: (config.vocabulary, width),
        "embeddings.position_embeddings.weight": (config.positions, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    if config.architecture == "bert":
        shapes[TYPE_VECTORS_NAME] = (2, width)
    else:
        shapes["encoder.relative_attention_bias.weight"] = (config.bucket_count, config.heads)
    # The layers. A bias is as long as its matrix has rows.
    for layer in range(config.layers):
        for part, name in layer_parts(config, layer).items():
            sizes = [width, width]
            if part == "widen":
                sizes = [inner, width]
            elif part == "narrow":
                sizes = [width, inner]
            elif part.endswith("norm"):
                sizes = [width]
            shapes[f"{name}.weight"] = tuple(sizes)
            shapes[f"{name}.bias"] = (sizes[0],)
    return shapes
