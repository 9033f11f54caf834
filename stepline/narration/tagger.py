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
from stepline.limits import parse_json
from stepline.narration.windows import Window, pad_windows, sentence_windows, stretch_windows
from stepline.narration.words import SENTENCE_KINDS, WORD_MARKS
from stepline.numeric import softmax
from stepline.text.encoder import WORDS, WordTable, compile_transformer, load_encoder_weights
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
        step = SENTENCE_KINDS.index("step")
        return float(self.kinds[step])

    @property
    def is_warning(self) -> bool:
        """Whether a warning is likelier than a step."""
        warning = SENTENCE_KINDS.index("warning")
        probability = float(self.kinds[warning])
        return probability > self.step_probability


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
        del encoder[WORDS]
        self._words = WordTable(folder, config)
        types = encoder.pop("embeddings.token_type_embeddings.weight")
        positions = encoder.pop("embeddings.position_embeddings.weight")
        self._positions = positions + types[0]
        self._transform = compile_transformer(config, encoder)
        self._heads: dict[str, Array] = {}
        for name, value in weights.items():
            if name.startswith("head."):
                self._heads[name] = value
        self._tokenizer = plain_tokenizer(folder)

    def read_sentences(self, sentences: Sequence[str]) -> list[SentenceReading]:
        """Return what each sentence of one narration is, in order, read with its neighbours."""
        readings: dict[int, SentenceReading] = {}
        windows = sentence_windows(sentences, self._tokenizer)
        for window, hidden in self._encode(windows):
            for span in window.spans:
                words = word_means(hidden, span.starts)  # (W, D)
                sentence = hidden[:1]
                if len(words):
                    sentence = words.mean(axis=0, keepdims=True)
                sentences_of_words = np.repeat(sentence, len(words), axis=0)
                both = np.hstack([words, sentences_of_words])
                kinds = self._head("kind", sentence)[0]
                edits = self._head("edit", both)
                verbs = self._head("verb", sentence)[0]
                reading = SentenceReading(kinds, edits, verbs)
                readings[span.number] = reading
        return [readings[number] for number in range(len(sentences))]

    def read_marks(self, words: Sequence[str]) -> Array:
        """Return P of each of WORD_MARKS after each word, (W, 4); marks that words carry are not
        looked at."""
        no_rows = np.zeros((0, len(WORD_MARKS)), np.float32)
        rows = [no_rows]
        windows = stretch_windows(words, self._tokenizer)
        for window, hidden in self._encode(windows):
            span = window.spans[0]
            vectors = word_means(hidden, span.starts)  # (W, D)
            end = np.zeros_like(vectors[:1])
            following = np.concatenate([vectors[1:], end])
            both = np.hstack([vectors, following])
            marks = self._head("mark", both)
            rows.append(marks)
        return np.concatenate(rows)

    def _encode(self, windows: Sequence[Window]) -> list[tuple[Window, Array]]:
        """Return each window with its token vectors (L, D)."""
        encoded = []
        for begin in range(0, len(windows), BATCH_WINDOWS):
            batch = windows[begin : begin + BATCH_WINDOWS]
            ids, is_token = pad_windows(batch)
            length = ids.shape[1]
            positions = self._positions[:length]
            inputs = self._words[ids] + positions  # (B, L, D)
            keep = is_token.astype(np.int32)
            hidden = self._transform(hidden=inputs, keep=keep)
            encoded += list(zip(batch, hidden, strict=True))
        return encoded

    def _head(self, name: str, rows: Array) -> Array:
        weight = self._heads[f"head.{name}.weight"]
        bias = self._heads[f"head.{name}.bias"]
        logits = rows @ weight.T + bias
        probabilities: Array = softmax(logits)
        return probabilities


def word_means(hidden: Array, starts: Sequence[int]) -> Array:
    """Return the mean of each word's token vectors, (W, D); zeros for a word that was not read."""
    zero = np.zeros_like(hidden[:1])
    sums = np.cumsum(hidden, axis=0)
    total = np.concatenate([zero, sums])  # (L + 1, D)
    edges = np.array(starts)
    word_sums = np.diff(total[edges], axis=0)
    counts = np.diff(edges)
    counts = np.maximum(counts, 1)
    means: Array = word_sums / counts[:, None]
    return means


def plain_tokenizer(folder: Path) -> Tokenizer:
    """Return MiniLM's tokenizer without its own padding and cuts."""
    file = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def read_tagger_file(path: Path | None) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the weights as float32 and the front verbs. Raises ModelError for another file."""
    try:
        if path is None:
            package = resources.files("stepline.narration")
            content = package.joinpath(WEIGHTS_FILE).read_bytes()
        elif path.is_dir():
            content = (path / WEIGHTS_FILE).read_bytes()
        else:
            content = path.read_bytes()
        prefix = content[:8]
        length = int.from_bytes(prefix, "little")
        end = 8 + length
        header = parse_json(content[8:end])
        entries = header["__metadata__"]
        metadata = parse_json(entries[METADATA_KEY])
        tensors = load(content)
        front_verbs = tuple(metadata["front_verbs"])
        version = metadata["version"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        cure = "give a file that `stepline train writer` wrote"
        name = path or WEIGHTS_FILE
        raise ModelError(f"{name}: no narration tagger ({error}); {cure}") from error
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: a tagger of version {version}, not {FORMAT_VERSION}; train again"
        )
    weights = {}
    for name, tensor in tensors.items():
        weights[name] = tensor.astype(np.float32)
    return weights, front_verbs


def merge_additions(encoder: dict[str, Any], weights: Mapping[str, Array]) -> None:
    """Add scale * B A to each matrix of the encoder that has one, in place. Raises ModelError."""
    for name, down in weights.items():  # A (R, D in)
        if not name.endswith(".down"):
            continue
        stem = name.removesuffix(".down")
        target = f"{stem}.weight"
        up = weights[f"{stem}.up"]  # B (D out, R)
        addition = ADDITION_SCALE * (up @ down)
        matrix = encoder.get(target)
        if matrix is None or matrix.shape != addition.shape:
            raise ModelError(f"the tagger's {name} fits no matrix of MiniLM; train it again")
        encoder[target] = matrix + addition


@functools.cache
def load_tagger(path: Path | None = None) -> NarrationTagger:
    """Return the tagger, loaded once a process."""
    return NarrationTagger(path)
