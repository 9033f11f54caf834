"""The tagger itself: MiniLM with low-rank additions to its matrices, and four linear heads.

kind   what a sentence does: tells a step, warns, ... (sentence vector)
edit   what becomes of a word in the step (word vector and sentence vector)
verb   the verb that an editor would put in front, or none (sentence vector)
mark   the punctuation after a word, which is not shown (vectors of it and of the next)

A word's vector is the mean of its tokens', a sentence's the mean of its words'. ONNX Runtime runs
the encoder with the additions merged, numpy the heads; no torch is needed.
Letters: B windows, L tokens, S sentences, W words, D width, R rank.
Source of the low-rank additions: Hu et al. 2021 (LoRA), equation 3.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load
from tokenizers import Tokenizer

from stepline.errors import ModelError
from stepline.narration.windows import Window, pad_windows, sentence_windows, stretch_windows
from stepline.narration.words import SENTENCE_KINDS, WORD_MARKS
from stepline.numeric import softmax
from stepline.text.encoder import compile_transformer, load_encoder_weights
from stepline.text.encoder_config import read_encoder_config
from stepline.weights import find_weights

Array: TypeAlias = npt.NDArray[np.float32]

WEIGHTS_FILE: Final = "narration_tagger.safetensors"
METADATA_KEY: Final = "stepline"  # one, for the order of several is not fixed
FORMAT_VERSION: Final = "1"
ADDITION_SCALE: Final = 2.0  # of B A, as in training
BATCH_WINDOWS: Final = 16


@dataclass(frozen=True)
class SentenceReading:
    """What the tagger says of a sentence of W words.

    kinds: P of each of SENTENCE_KINDS, (8,). edits: P of each of WORD_EDITS a word, (W, 5). verbs: P of each of
    the tagger's front verbs, (V,).
    """

    kinds: Array
    edits: Array
    verbs: Array

    @property
    def step_probability(self) -> float:
        """P(the sentence tells a step)."""
        return float(self.kinds[SENTENCE_KINDS.index("step")])

    @property
    def is_warning(self) -> bool:
        """Whether a warning is likelier than a step."""
        return bool(
            self.kinds[SENTENCE_KINDS.index("warning")] > self.kinds[SENTENCE_KINDS.index("step")]
        )


class NarrationTagger:
    """Reads sentences and unpunctuated words; immutable once loaded, threads may share it."""

    def __init__(self, path: Path | None = None) -> None:
        """path: of a tagger that `stepline train writer` wrote; None is the one that is shipped.

        Raises ModelError when it cannot be read or MiniLM is missing.
        """
        folder = find_weights("minilm")
        config = read_encoder_config(folder)
        weights, self.front_verbs = read_tagger_file(path)
        encoder = load_encoder_weights(folder, config)
        merge_additions(encoder, weights)
        self._words = encoder.pop("embeddings.word_embeddings.weight")
        types = encoder.pop("embeddings.token_type_embeddings.weight")
        self._positions = encoder.pop("embeddings.position_embeddings.weight") + types[0]
        self._transform = compile_transformer(config, encoder)
        self._heads = {name: value for name, value in weights.items() if name.startswith("head.")}
        self._tokenizer = plain_tokenizer(folder)

    def read_sentences(self, sentences: Sequence[str]) -> list[SentenceReading]:
        """Return what each sentence of one narration is, in order, read with its neighbours."""
        readings: dict[int, SentenceReading] = {}
        windows = sentence_windows(sentences, self._tokenizer)
        for window, hidden in self._encode(windows):
            for span in window.spans:
                words = word_means(hidden, span.starts)  # (W, D)
                sentence = words.mean(axis=0, keepdims=True) if len(words) else hidden[:1]
                both = np.concatenate([words, np.repeat(sentence, len(words), axis=0)], axis=1)
                readings[span.number] = SentenceReading(
                    self._head("kind", sentence)[0],
                    self._head("edit", both),
                    self._head("verb", sentence)[0],
                )
        return [readings[number] for number in range(len(sentences))]

    def read_marks(self, words: Sequence[str]) -> Array:
        """Return P of each of WORD_MARKS after each word, (W, 4); marks that words carry are not
        looked at."""
        rows = []
        for window, hidden in self._encode(stretch_windows(words, self._tokenizer)):
            words_read = word_means(hidden, window.spans[0].starts)  # (W, D)
            following = np.concatenate([words_read[1:], np.zeros_like(words_read[:1])])
            rows.append(self._head("mark", np.concatenate([words_read, following], axis=1)))
        return np.concatenate(rows) if rows else np.zeros((0, len(WORD_MARKS)), np.float32)

    def _encode(self, windows: Sequence[Window]) -> list[tuple[Window, Array]]:
        """Return each window with its token vectors (L, D)."""
        encoded = []
        for begin in range(0, len(windows), BATCH_WINDOWS):
            batch = windows[begin : begin + BATCH_WINDOWS]
            ids, is_token = pad_windows(batch)
            inputs = self._words[ids] + self._positions[: ids.shape[1]]  # (B, L, D)
            hidden = self._transform(hidden=inputs, keep=is_token.astype(np.int32))
            encoded += list(zip(batch, hidden, strict=True))
        return encoded

    def _head(self, name: str, rows: Array) -> Array:
        logits = rows @ self._heads[f"head.{name}.weight"].T + self._heads[f"head.{name}.bias"]
        probabilities: Array = softmax(logits)
        return probabilities


def word_means(hidden: Array, starts: Sequence[int]) -> Array:
    """Return the mean of each word's token vectors, (W, D); zeros for a word that was not read."""
    total = np.concatenate([np.zeros_like(hidden[:1]), np.cumsum(hidden, axis=0)])  # (L + 1, D)
    edges = np.array(starts)
    counts = np.maximum(edges[1:] - edges[:-1], 1)[:, None]
    means: Array = (total[edges[1:]] - total[edges[:-1]]) / counts
    return means


def plain_tokenizer(folder: Path) -> Tokenizer:
    """Return MiniLM's tokenizer without its own padding and cuts."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def read_tagger_file(path: Path | None) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the weights as float32 and the front verbs. Raises ModelError for another file."""
    try:
        if path is None:
            content = resources.files("stepline.narration").joinpath(WEIGHTS_FILE).read_bytes()
        else:
            file = path / WEIGHTS_FILE if path.is_dir() else path
            content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        metadata = json.loads(header["__metadata__"][METADATA_KEY])
        tensors = load(content)
        front_verbs = tuple(metadata["front_verbs"])
        version = metadata["version"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        cure = "give a file that `stepline train writer` wrote"
        raise ModelError(
            f"{path or WEIGHTS_FILE}: no narration tagger ({error}); {cure}"
        ) from error
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: a tagger of version {version}, not {FORMAT_VERSION}; train again"
        )
    weights = {name: value.astype(np.float32) for name, value in tensors.items()}
    return weights, front_verbs


def merge_additions(encoder: dict[str, Any], weights: Mapping[str, Array]) -> None:
    """Add scale * B A to each matrix of the encoder that has one, in place. Raises ModelError."""
    for name in [name for name in weights if name.endswith(".down")]:
        target = f"{name.removesuffix('.down')}.weight"
        down = weights[name]  # A (R, D in)
        up = weights[name.removesuffix(".down") + ".up"]  # B (D out, R)
        addition = ADDITION_SCALE * (up @ down)
        if target not in encoder or encoder[target].shape != addition.shape:
            raise ModelError(f"the tagger's {name} fits no matrix of MiniLM; train it again")
        encoder[target] = encoder[target] + addition


@functools.cache
def load_tagger(path: Path | None = None) -> NarrationTagger:
    """Return the tagger, loaded once a process."""
    return NarrationTagger(path)
