"""MiniLM with low-rank additions to its matrices, and linear heads on its vectors.

A word's vector is the mean of its tokens' vectors. ONNX Runtime runs the encoder with the additions
merged, numpy runs the heads. No torch is needed.
Letters: L tokens, W words, D width, R rank.
Source of the low-rank additions: Hu et al. 2021 (LoRA), equation 3.
"""

import io
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load
from tokenizers import Tokenizer

from stepline.errors import ModelError
from stepline.limits import parse_json, read_safetensors_header
from stepline.networks.device import Device
from stepline.networks.weights import find_weights
from stepline.numeric import softmax
from stepline.text.encoder import TokenEncoder, load_encoder_weights, read_encoder_config

Array = npt.NDArray[np.float32]

METADATA_KEY = "stepline"  # one key holds all, because files do not fix the order of several
FORMAT_VERSION = "1"
LORA_SCALE = 2.0  # of B A, as in training


class AdaptedEncoder:
    """MiniLM with merged LoRA weights, and linear heads. It is immutable once loaded, so
    thread-safe."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        """Load MiniLM and merge the LoRA weights.

        weights: LoRA's A as "<matrix>.down", (R, input width), its B as "<matrix>.up", (output
            width, R), and the heads as "head.<name>.weight", (classes, D), and "head.<name>.bias".
        Raises ModelError when they do not fit or MiniLM is missing.
        """
        folder = find_weights("minilm")
        config = read_encoder_config(folder)
        encoder = load_encoder_weights(folder, config)
        # Merged once, so that reading costs no more than MiniLM alone.
        merge_lora_weights(encoder, weights)
        self._encoder = TokenEncoder(folder, config, encoder, Device("cpu"))
        self._heads = {name: value for name, value in weights.items() if name.startswith("head.")}
        self.tokenizer = load_plain_tokenizer(folder)

    def encode(self, token_ids: Sequence[int]) -> Array:
        """Return the vectors of a window's L tokens, (L, D): MiniLM's last layer with the LoRA
        update."""
        # A window alone has no padding and fits a core's cache. In batches of 16 it takes a quarter
        # more time.
        ids = np.array([token_ids])  # (1, L)
        hidden: Array = self._encoder.encode(ids, np.ones_like(ids, np.int32))[0]
        return hidden

    def predict_classes(self, name: str, rows: Array) -> Array:
        """Return the class probabilities that a linear head gives N vectors, (N, classes).

        Args:
            name: of the head, as in "head.<name>.weight".
            rows: the vectors, (N, width of the head).
        """
        weight = self._heads[f"head.{name}.weight"]
        return softmax(rows @ weight.T + self._heads[f"head.{name}.bias"])


def running_total(hidden: Array) -> Array:
    """Return the sum of the token vectors before each token and before the end, (L + 1, D).

    hidden: the token vectors of a window, (L, D).
    """
    return np.concatenate([np.zeros_like(hidden[:1]), np.cumsum(hidden, axis=0)])


def word_means(totals: Array, word_starts: Sequence[int]) -> Array:
    """Return the mean of each word's token vectors, (W, D), zeros for a truncated word.

    Args:
        totals: `running_total` of a window's token vectors, (L + 1, D).
        word_starts: index of each word's first token, then the end of the last word, (W + 1,).
    """
    word_edges = np.array(word_starts)
    # A word that was cut off has no token, and a mean of 0.
    counts = np.maximum(np.diff(word_edges), 1)
    means: Array = np.diff(totals[word_edges], axis=0) / counts[:, None]
    return means


def load_plain_tokenizer(folder: Path) -> Tokenizer:
    """Return MiniLM's tokenizer without padding and truncation."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def read_weights_file(path: Path | None, name: str) -> tuple[dict[str, Array], Mapping[str, Any]]:
    """Return the weights of a safetensors file as float32, and its metadata.

    Args:
        path: the file, or the folder that holds a file `name`. None: the file `name` shipped with
            the package.
        name: a file name.
    Raises ModelError for an unreadable file, or one of another version.
    """
    try:
        # The bytes, read once.
        if path is None:
            content = resources.files("stepline.text.narration").joinpath(name).read_bytes()
        elif path.is_dir():
            content = (path / name).read_bytes()
        else:
            content = path.read_bytes()
        # `load` returns no metadata.
        header, _ = read_safetensors_header(io.BytesIO(content))
        metadata = parse_json(header["__metadata__"][METADATA_KEY])
        tensors = load(content)
        version = metadata["version"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{path or name}: no narration tagger ({error}); give a file that lab/writer_training "
            "wrote"
        ) from error
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: a tagger of version {version}, not {FORMAT_VERSION}; train again"
        )
    weights = {key: tensor.astype(np.float32) for key, tensor in tensors.items()}
    return weights, metadata


def merge_lora_weights(encoder: dict[str, Any], weights: Mapping[str, Array]) -> None:
    """Add the LoRA update LORA_SCALE * B A to each encoder matrix that has one, in place.

    Args:
        encoder: name in MiniLM's checkpoint -> matrix or vector.
        weights: LoRA's A as "<matrix>.down", (R, input width), and its B as "<matrix>.up", (output
            width, R).

    Raises ModelError if an update has the shape of no matrix.
    """
    for name, lora_down in weights.items():  # A (R, D in)
        if not name.endswith(".down"):
            continue
        base_name = name.removesuffix(".down")
        matrix_name = f"{base_name}.weight"
        lora_up = weights[f"{base_name}.up"]  # B (D out, R)
        update = LORA_SCALE * (lora_up @ lora_down)
        matrix = encoder.get(matrix_name)
        if matrix is None or matrix.shape != update.shape:
            raise ModelError(f"the tagger's {name} fits no matrix of MiniLM; train it again")
        encoder[matrix_name] = matrix + update
