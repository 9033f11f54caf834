"""InternVideo-MM as a backbone: a row of features is a clip of 8 pictures, in one space with
texts.

It reads the user's own checkpoint, InternVideo-MM-L-14.ckpt or -B-16.ckpt, and with it the words of
CLIP's tokenizer, bpe_simple_vocab_16e6.txt.gz. With it a network that was released for
InternVideo's features answers a video of the user's own. Source: Wang et al. 2022 (InternVideo).
"""

import gzip
import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.errors import ModelError, SettingsError, first_line
from stepline.networks.device import current_device
from stepline.networks.state_dict import check_weights, read_tensors
from stepline.records import Matrix
from stepline.vision.encode import Clips, Images, check_clips, square_clips, still_clips
from stepline.vision.internvideo_network import InternVideoNetwork, network_sizes
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CLIP_FRAMES = 8  # at one row per second that is 8 frames/s, the rate of the released features
KEPT_SIDE = 224 / 256  # of a picture's shorter side: pictures are cut to 224 after a resize to 256
PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)  # of CLIP's training pictures, by colour
PIXEL_SPREAD = (0.26862954, 0.26130258, 0.27577711)
TOWER_PREFIX = "clip."  # begins the names of the two towers' weights
TOWER_NAMES = ("visual.", "transformer.")  # of whose weights none may be left over

MERGES_FILE = "bpe_simple_vocab_16e6.txt.gz"
TEXT_START = "<|startoftext|>"
TEXT_END = "<|endoftext|>"
WORD_END = "</w>"
PIECE_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
# bytes that stand for themselves in the file of merges. The rest are moved up to 256 and above.
PLAIN_BYTES = (*range(33, 127), *range(161, 173), *range(174, 256))


def byte_characters() -> list[str]:
    """Return the character of each of the 256 bytes, in the order of CLIP's tokens."""
    count = 256 - len(PLAIN_BYTES)
    moved = range(256, 256 + count)
    return [chr(code) for code in (*PLAIN_BYTES, *moved)]


def read_tokenizer(path: Path, words: int) -> "Tokenizer":
    """Return CLIP's tokenizer with as many tokens as a network knows.

    path: bpe_simple_vocab_16e6.txt, packed or not: a line that names its version, then one merge of
    two pieces per line. Raises ModelError for another file, or one with too few merges.
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
    characters = byte_characters()
    pieces = [*characters, *(character + WORD_END for character in characters)]
    count = words - len(pieces) - 2
    pairs = [line.split() for line in lines[: max(0, count)]]
    are_pairs = all(len(pair) == 2 for pair in pairs)
    if count < 0 or len(pairs) < count or not are_pairs:
        raise ModelError(f"{path}: not {count} merges, which the weights ask for; {cure}")
    merges = []
    for first, second in pairs:
        merges.append((first, second))
        pieces.append(first + second)

    # the tokenizer
    tokens = [*pieces, TEXT_START, TEXT_END]
    vocabulary = {piece: number for number, piece in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix=WORD_END))
    split = pre_tokenizers.Split(Regex(PIECE_PATTERN), "removed", invert=True)
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    return tokenizer


def text_tokens(texts: Sequence[str], tokenizer: "Tokenizer", length: int) -> Tensor:
    """Return (K, length) tokens: start, the text's, end, then 0. A longer text is cut before its
    end token."""
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
    """Return both towers of a checkpoint at rest.

    Raises ModelError, naming what does not fit, for any other file. Weights of the checkpoint that
    neither tower has, such as those of its decoder, are left aside.
    """
    name = "InternVideo-MM"
    cure = "give InternVideo-MM-L-14.ckpt, saved again with its state_dict alone if it holds more"
    # The weights of the two towers, whose shapes say the sizes of the network.
    checkpoint_keys = {}
    for key, values in read_tensors(path, name, cure).items():
        if key.startswith(TOWER_PREFIX):
            checkpoint_keys[key.removeprefix(TOWER_PREFIX)] = values
    try:
        sizes = network_sizes({key: values.shape for key, values in checkpoint_keys.items()})
    except ModelError as error:
        raise ModelError(f"{path}: {error}; {cure}") from error
    # Without memory, since names and shapes are compared first.
    with torch.device("meta"):
        network = InternVideoNetwork(sizes)
    shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    # None of a tower's weights may be left over, those of other parts may.
    for key in list(checkpoint_keys):
        if key not in shapes and not key.startswith(TOWER_NAMES):
            del checkpoint_keys[key]
    check_weights(path, name, checkpoint_keys, shapes, cure)
    weights = {key: torch.from_numpy(values) for key, values in checkpoint_keys.items()}
    network.load_state_dict(weights, assign=True)
    network.eval()
    return network


class InternVideoBackbone:
    """Clips and texts as vectors of one space.

    unit: rows have length 1. Otherwise they have the lengths that the network gives, as in the
    released features.
    """

    name = "internvideo"
    clip_frames = CLIP_FRAMES

    def __init__(
        self, network: InternVideoNetwork, tokenizer: "Tokenizer", *, batch: int, unit: bool
    ) -> None:
        """batch: how many texts are encoded together."""
        self._device = current_device()
        self._network = network.to(self._device.name)
        self._tokenizer = tokenizer
        self._batch = batch
        self._unit = unit
        self.dim = network.sizes.joint

    def encode_clips(self, clips: Clips) -> Matrix:
        """Return (B, D) rows for uint8 RGB clips (B, T, H, W, 3)."""
        check_clips(clips)
        if not len(clips):
            return np.empty((0, self.dim), dtype=np.float32)
        pixels = torch.from_numpy(np.ascontiguousarray(clips))
        inputs = prepare(pixels, self._network.sizes.side)
        inputs = inputs.to(self._device.name)
        with torch.inference_mode(), self._device.autocast():
            return self._rows(self._network.encode_clips(inputs))

    def encode_images(self, pictures: Images) -> Matrix:
        """Return (B, D) rows of clips in which each picture is still."""
        return self.encode_clips(still_clips(pictures, CLIP_FRAMES))

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return (K, D) rows. A text longer than the network's limit is cut there."""
        rows = [np.empty((0, self.dim), dtype=np.float32)]
        length = self._network.sizes.max_tokens
        for start in range(0, len(texts), self._batch):
            batch = texts[start : start + self._batch]
            tokens = text_tokens(batch, self._tokenizer, length)
            tokens = tokens.to(self._device.name)
            with torch.inference_mode(), self._device.autocast():
                vectors = self._network.encode_texts(tokens)
                rows.append(self._rows(vectors))
        return np.concatenate(rows)

    def _rows(self, vectors: Tensor) -> Matrix:
        vectors = vectors.float()
        if self._unit:
            vectors = F.normalize(vectors, dim=1)
        rows: Matrix = vectors.cpu().numpy()
        return rows


def prepare(clips: Tensor, side: int) -> Tensor:
    """Return the network's input (B, 3, T, side, side) for uint8 clips (B, T, H, W, 3).

    The middle square of 7/8 of the shorter side, less CLIP's mean and over its spread.
    """
    square = max(1, round(min(clips.shape[2:4]) * KEPT_SIDE))
    mean = torch.tensor(PIXEL_MEAN).view(3, 1, 1, 1)
    spread = torch.tensor(PIXEL_SPREAD).view(3, 1, 1, 1)
    return (square_clips(clips, square, side) / 255 - mean) / spread


def load_internvideo(settings: VisionSettings) -> InternVideoBackbone:
    """Return InternVideo-MM with the weights in `settings.path` and the merges next to them, or in
    `settings.dictionary`.

    Raises SettingsError without a path, ModelError when a file is missing, damaged or of another
    network.
    """
    if settings.path is None:
        needed_files = f"vision.path=InternVideo-MM-L-14.ckpt, with {MERGES_FILE} next to it"
        raise SettingsError(f"vision.backbone=internvideo needs {needed_files}")
    network = read_internvideo(settings.path)
    merges = settings.dictionary or settings.path.parent / MERGES_FILE
    tokenizer = read_tokenizer(merges, network.sizes.words)
    return InternVideoBackbone(network, tokenizer, batch=settings.batch, unit=settings.unit)
