"""InternVideo-MM as a backbone: a row of features is a clip of 8 frames, in one space with texts.

It reads the user's own checkpoint, InternVideo-MM-L-14.ckpt or -B-16.ckpt, and the merges of CLIP's
tokenizer, bpe_simple_vocab_16e6.txt.gz. Networks that were released for InternVideo's features then
work on the user's own videos. Source: Wang et al. 2022 (InternVideo).
"""

import gzip
import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.errors import ModelError, SettingsError, first_line
from stepline.networks.device import current_device
from stepline.networks.state_dict import check_weights, read_tensors
from stepline.records import Matrix
from stepline.vision.encode import Clips, StillClipEncoder, check_clips, square_clips
from stepline.vision.internvideo_network import InternVideoNetwork, network_sizes
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CLIP_FRAMES = 8  # at one row per second that is 8 frames/s, the rate of the released features
PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)  # of CLIP's training images, by colour
PIXEL_DEVIATION = (0.26862954, 0.26130258, 0.27577711)
TOWER_PREFIX = "clip."  # of the names of both towers' weights
TOWER_NAMES = ("visual.", "transformer.")  # parts that must have no unknown weights

MERGES_FILE = "bpe_simple_vocab_16e6.txt.gz"
TEXT_START = "<|startoftext|>"
TEXT_END = "<|endoftext|>"
WORD_END = "</w>"
PIECE_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
# bytes with the character of the same number in the file of merges. The rest have 256 and above.
PLAIN_BYTES = (*range(33, 127), *range(161, 173), *range(174, 256))


def read_tokenizer(path: Path, token_count: int) -> "Tokenizer":
    """Return CLIP's tokenizer.

    Args:
        path: bpe_simple_vocab_16e6.txt or .gz: a line with its version, then one merge per line.
        token_count: number of tokens that the network knows.

    Raises ModelError for another file, or one with too few merges.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    cure = f"give CLIP's {MERGES_FILE} as vision.dictionary, or put it next to the weights"
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        lines = content.decode("utf-8").split("\n")[1:]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: no file of merges ({first_line(error)}); {cure}") from error

    # the merges that the network knows
    other_codes = range(256, 512 - len(PLAIN_BYTES))
    characters = [chr(code) for code in (*PLAIN_BYTES, *other_codes)]
    pieces = [*characters, *(character + WORD_END for character in characters)]
    count = token_count - len(pieces) - 2
    merges: list[Any] = [tuple(line.split()) for line in lines[: max(0, count)]]
    are_pairs = all(len(merge) == 2 for merge in merges)
    if count < 0 or len(merges) < count or not are_pairs:
        raise ModelError(f"{path}: not {count} merges, which the weights ask for; {cure}")
    tokens = [*pieces, *map("".join, merges), TEXT_START, TEXT_END]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix=WORD_END))
    split = pre_tokenizers.Split(Regex(PIECE_PATTERN), "removed", invert=True)
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    return tokenizer


def text_tokens(texts: Sequence[str], tokenizer: "Tokenizer", length: int) -> Tensor:
    """Return the token numbers of K texts, (K, length): start token, text, end token, then 0.

    A text that is too long is truncated.

    Args:
        texts: the K texts.
        tokenizer: CLIP's tokenizer.
        length: number of tokens per text that the network reads.
    """
    start = tokenizer.token_to_id(TEXT_START)
    end = tokenizer.token_to_id(TEXT_END)
    rows = torch.zeros((len(texts), length), dtype=torch.int64)
    for row, text in zip(rows, texts, strict=True):
        # As CLIP's code cleans a text: HTML entities twice, then white space and case.
        plain = html.unescape(html.unescape(text))
        plain = re.sub(r"\s+", " ", plain).strip().lower()
        numbers = [start, *tokenizer.encode(plain).ids[: length - 2], end]
        row[: len(numbers)] = torch.tensor(numbers)
    return rows


def read_internvideo(path: Path) -> InternVideoNetwork:
    """Return the video and text encoder in a checkpoint, in evaluation mode.

    Other weights in the file, such as those of a decoder, are ignored. Raises ModelError, with the
    name of the wrong weight, for any other file.
    """
    name = "InternVideo-MM"
    cure = "give InternVideo-MM-L-14.ckpt, saved again with its state_dict alone if it holds more"
    arrays = {
        key.removeprefix(TOWER_PREFIX): values
        for key, values in read_tensors(path, name, cure).items()
        if key.startswith(TOWER_PREFIX)
    }
    try:
        sizes = network_sizes({key: values.shape for key, values in arrays.items()})
    except ModelError as error:
        raise ModelError(f"{path}: {error}; {cure}") from error
    # Without memory, since names and shapes are compared first.
    with torch.device("meta"):
        network = InternVideoNetwork(sizes)
    shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    arrays = {
        key: values
        for key, values in arrays.items()
        if key in shapes or key.startswith(TOWER_NAMES)
    }
    check_weights(path, name, arrays, shapes, cure)
    weights = {key: torch.from_numpy(values) for key, values in arrays.items()}
    network.load_state_dict(weights, assign=True)
    network.eval()
    return network


class InternVideoBackbone(StillClipEncoder):
    """InternVideo-MM: video clips and texts as vectors of one space."""

    name = "internvideo"
    clip_frames = CLIP_FRAMES

    def __init__(
        self, network: InternVideoNetwork, tokenizer: "Tokenizer", *, batch: int, unit: bool
    ) -> None:
        """Wrap a loaded network.

        Args:
            network: video and text encoder.
            tokenizer: CLIP's tokenizer.
            batch: number of texts that are encoded together.
            unit: whether vectors are scaled to length 1. Otherwise they are the network's output,
                as in the released features.
        """
        self._device = current_device()
        self._network = network.to(self._device.name)
        self._tokenizer = tokenizer
        self._batch = batch
        self._unit = unit
        self.dim = network.sizes.joint_width

    def encode_clips(self, clips: Clips) -> Matrix:
        """Return vectors (B, D) of uint8 RGB clips (B, T, H, W, 3) of T frames."""
        check_clips(clips)
        if not len(clips):
            return np.empty((0, self.dim), dtype=np.float32)
        pixels = torch.from_numpy(np.ascontiguousarray(clips))
        inputs = prepare(pixels, self._network.sizes.side).to(self._device.name)
        with torch.inference_mode(), self._device.autocast():
            return self._rows(self._network.encode_clips(inputs))

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return vectors (K, D) of K texts. A text over the network's limit is truncated."""
        rows = [np.empty((0, self.dim), dtype=np.float32)]
        for start in range(0, len(texts), self._batch):
            batch = texts[start : start + self._batch]
            tokens = text_tokens(batch, self._tokenizer, self._network.sizes.max_tokens)
            with torch.inference_mode(), self._device.autocast():
                vectors = self._network.encode_texts(tokens.to(self._device.name))
                rows.append(self._rows(vectors))
        return np.concatenate(rows)

    def _rows(self, vectors: Tensor) -> Matrix:
        vectors = vectors.float()
        return np.asarray((F.normalize(vectors, dim=1) if self._unit else vectors).cpu())


def prepare(clips: Tensor, side: int) -> Tensor:
    """Return the network's input (B, 3, T, side, side) for uint8 clips (B, T, H, W, 3).

    It is the central square of the shorter side, resized (NaSVA, supplement 6.1) and normalised by
    CLIP's mean and standard deviation.

    side: pixels per side of the input.
    """
    mean = torch.tensor(PIXEL_MEAN).view(3, 1, 1, 1)
    deviation = torch.tensor(PIXEL_DEVIATION).view(3, 1, 1, 1)
    return (square_clips(clips, min(clips.shape[2:4]), side) / 255 - mean) / deviation


def load_internvideo(settings: VisionSettings) -> InternVideoBackbone:
    """Return InternVideo-MM with the weights in `settings.path`.

    The merges of its tokenizer are in `settings.dictionary`, by default in a file next to the
    weights. Raises SettingsError without a path. Raises ModelError if a file is missing, damaged or
    of another network.
    """
    if settings.path is None:
        raise SettingsError(
            "vision.backbone=internvideo needs vision.path=InternVideo-MM-L-14.ckpt, with "
            f"{MERGES_FILE} next to it"
        )
    network = read_internvideo(settings.path)
    merges = settings.dictionary or settings.path.parent / MERGES_FILE
    tokenizer = read_tokenizer(merges, network.sizes.vocabulary)
    return InternVideoBackbone(network, tokenizer, batch=settings.batch, unit=settings.unit)
