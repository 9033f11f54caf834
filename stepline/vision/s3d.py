"""S3D-G as a backbone: a row of features is a clip of 16 frames, in one space with texts.

This file has the text tower with its words, reads the released weights, and joins both towers. The
weights are antoine77340/S3D_HowTo100M, by path: every name and shape is checked, no code is run.
Letters: B clips, T frames, H and W pixels, K texts, N words per text.
Source: Miech et al. 2020 (MIL-NCE). Its released code and TAN's differ in how they tokenise.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError, first_line
from stepline.files.atomic_files import atomic_path, write_atomic
from stepline.networks.device import current_device
from stepline.networks.state_dict import check_weights, read_tensors
from stepline.records import Matrix
from stepline.vision.encode import Clips, StillClipEncoder, check_clips, square_clips
from stepline.vision.s3d_network import JOINT_WIDTH, POOLED_WIDTH, S3D
from stepline.vision.settings import VisionSettings

Tokenisation = Literal["released", "tan"]

EMBEDDING_WIDTH = 300
HIDDEN_WIDTH = 2048
PADDING_TOKEN = 0  # words count from 1
MAX_WORDS: dict[Tokenisation, int] = {"released": 16, "tan": 32}  # of a text
WORD_PATTERN = re.compile(r"[\w']+")


class WordDictionary:
    """The words that S3D's text encoder knows, from `s3d_dict.npy`.

    The word at index i has token number i + 1.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._tokens = {word: index + 1 for index, word in enumerate(words)}
        self.size = len(words) + 1  # with padding

    def tokens(self, texts: Sequence[str], form: Tokenisation = "released") -> Tensor:
        """Return the token numbers of K texts, (K, N), padded with 0.

        form: "released" takes the first 16 known words and drops the others. "tan" takes the first
        32 words, with 0 for an unknown word.
        """
        length = MAX_WORDS[form]
        rows = []
        for text in texts:
            words = WORD_PATTERN.findall(text.lower())
            if form == "released":
                words = [word for word in words if word in self._tokens]
            tokens = [self._tokens.get(word, PADDING_TOKEN) for word in words[:length]]
            rows.append(tokens + [PADDING_TOKEN] * (length - len(tokens)))
        return torch.tensor(rows, dtype=torch.int64).view(-1, length)


class TextTower(nn.Module):  # type: ignore[misc]
    """S3D's text encoder: word embeddings, linear, ReLU, maximum over the words, linear.

    It is frozen when WYS2 trains.
    """

    def __init__(self, size: int) -> None:
        """Create the layers. size: number of different tokens, including padding."""
        super().__init__()
        self.word_embd = nn.Embedding(size, EMBEDDING_WIDTH)
        self.fc1 = nn.Linear(EMBEDDING_WIDTH, HIDDEN_WIDTH)
        self.fc2 = nn.Linear(HIDDEN_WIDTH, JOINT_WIDTH)

    def forward(self, tokens: Tensor, form: Tokenisation = "released") -> Tensor:
        """Return the vectors (K, 512) of K texts, not normalised.

        Args:
            tokens: (K, N) token numbers.
            form: with "released", padding counts in the maximum like a word, so the number of words
                matters a little. With "tan", they do not count where a text has a known word.
        """
        vectors = self.word_embd(tokens)
        hidden = torch.relu(self.fc1(vectors))  # (K, N, 2048)
        if form == "tan":
            # >= 0 after the ReLU, so that 0 never wins
            known = tokens != PADDING_TOKEN  # (K, N)
            hidden = hidden * (known | ~known.any(1, keepdim=True))[:, :, None]
        return self.fc2(hidden.amax(1))  # (K, 512)


def read_dictionary(path: Path) -> WordDictionary:
    """Return the words in s3d_dict.npy.

    Raises ModelError unless the file is a NumPy array of distinct words.
    """
    try:
        words = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path}: not S3D's dictionary ({first_line(error)}); give s3d_dict.npy"
        ) from error
    words = np.asarray(words)
    if words.ndim != 1 or words.dtype.kind != "U" or not len(words):
        raise ModelError(f"{path}: holds no list of words; give s3d_dict.npy")
    if len(set(words.tolist())) != len(words):
        raise ModelError(f"{path}: holds a word twice; give s3d_dict.npy as it was released")
    return WordDictionary(words.tolist())


TEXT_TOWER = "text_module"  # prefix of the names of the text tower's weights
WORD_VECTORS = f"{TEXT_TOWER}.word_embd.weight"
COUNTER_SUFFIX = ".num_batches_tracked"  # only for training, and older files lack it
CURE = "give s3d_howto100m.pth"


def read_s3d(path: Path, dictionary_size: int) -> tuple[S3D, TextTower]:
    """Return S3D's video and text encoder, in evaluation mode.

    Args:
        path: file of the released weights.
        dictionary_size: number of different tokens, including padding.

    Raises ModelError, with the name of the wrong weight, for any other file.
    """
    arrays = read_tensors(path, "S3D", CURE)
    with torch.device("meta"):
        video = S3D()
        words = TextTower(dictionary_size)
    video.add_module(TEXT_TOWER, words)  # as released: one network
    shapes = {name: tuple(value.shape) for name, value in video.state_dict().items()}
    for name in shapes:
        if name.endswith(COUNTER_SUFFIX):
            arrays.setdefault(name, np.zeros((), np.int64))
    # The weights may be of another dictionary.
    vectors = arrays.get(WORD_VECTORS, np.zeros(0))
    if vectors.ndim == 2 and len(vectors) != dictionary_size:
        raise ModelError(
            f"{path}: not S3D's weights: {len(vectors) - 1} word vectors for a dictionary of "
            f"{dictionary_size - 1} words; {CURE}"
        )
    check_weights(path, "S3D", arrays, shapes, CURE)
    weights = {name: torch.from_numpy(value) for name, value in arrays.items()}
    # The tensors of the file become the weights, since those on `meta` have no memory.
    video.load_state_dict(weights, assign=True)
    delattr(video, TEXT_TOWER)
    return video.eval(), words.eval()


def write_s3d(video: S3D, released: Path, path: Path) -> None:
    """Write a trained video encoder to a file that `vision.path` accepts.

    Args:
        video: the trained video encoder.
        released: file of the weights from which it was trained. Their text encoder and dictionary
            are copied.
        path: path of the file to write.
    """
    weights = {
        name: torch.from_numpy(value)
        for name, value in read_tensors(released, "S3D", CURE).items()
        if name.startswith(TEXT_TOWER)
    }
    weights |= {name: value.detach().cpu() for name, value in video.state_dict().items()}
    with atomic_path(path) as partial:
        torch.save(weights, partial)
    write_atomic(path.parent / DICTIONARY_FILE, (released.parent / DICTIONARY_FILE).read_bytes())


CLIP_SIDE = 224  # px
CROP_FRACTION = 224 / 256  # of a frame's shorter side: frames are cropped to 224 of 256 px
CLIP_FRAMES = 16  # at one row per second that is 16 frames/s, the rate of those features
DICTIONARY_FILE = "s3d_dict.npy"


class S3DBackbone(StillClipEncoder):
    """S3D: video clips and texts as unit vectors of width 512.

    The authors' score does not normalise the vectors.
    """

    clip_frames = CLIP_FRAMES

    def __init__(
        self,
        video: S3D,
        words: TextTower,
        dictionary: WordDictionary,
        form: Tokenisation,
        *,
        pooled: bool = False,
    ) -> None:
        """Combine the video and text encoder.

        Args:
            video: video encoder.
            words: text encoder.
            dictionary: words of the text encoder.
            form: tokenisation of texts, see `WordDictionary.tokens`.
            pooled: whether the vector of a clip is the 1024 pooled numbers before the joint layer,
                not normalised. HowTo100M's released features are such vectors. No text has a vector
                in their space.
        """
        self._video = video
        self._words = words
        self._dictionary = dictionary
        self._form = form
        self._pooled = pooled
        self._device = current_device()
        self.name = "s3d"
        self.dim = JOINT_WIDTH
        if pooled:
            self.name = "s3d-mixed5c"
            self.dim = POOLED_WIDTH

    def encode_clips(self, clips: Clips) -> Matrix:
        """Return unit vectors (B, 512) of uint8 RGB clips (B, T, H, W, 3) of T frames, T even.

        With `pooled`, they are vectors (B, 1024) that are not normalised.
        """
        check_clips(clips, even=True)
        if not len(clips):
            return np.empty((0, self.dim), dtype=np.float32)
        # resized on the CPU, from uint8, so that every device sees the same clip
        pixels = torch.from_numpy(np.ascontiguousarray(clips))
        inputs = prepare(pixels).to(self._device.name)
        with torch.inference_mode(), self._device.autocast():
            if self._pooled:
                return np.asarray(self._video.pooled(inputs).float().cpu())
            return _normalized_rows(self._video(inputs))

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors (K, 512) of K texts. Words not in the dictionary do not count."""
        if not texts:
            return np.empty((0, JOINT_WIDTH), dtype=np.float32)
        tokens = self._dictionary.tokens(texts, self._form)
        tokens = tokens.to(self._device.name)  # (K, N)
        with torch.inference_mode(), self._device.autocast():
            return _normalized_rows(self._words(tokens, self._form))


def prepare(clips: Tensor) -> Tensor:
    """Return the network's input (B, 3, T, 224, 224) in [0, 1] for uint8 clips (B, T, H, W, 3).

    It is the central square with 7/8 of the shorter side, resized (NaSVA, supplement 6.1). There is
    no other normalisation, as in training.
    """
    crop_side = max(1, round(min(clips.shape[2:4]) * CROP_FRACTION))
    return square_clips(clips, crop_side, CLIP_SIDE) / 255


def load_s3d(settings: VisionSettings) -> S3DBackbone:
    """Return S3D with the weights in `settings.path`.

    Its dictionary is in `settings.dictionary`, by default in a file next to the weights. Raises
    SettingsError without a path. Raises ModelError if a file is missing, damaged or of another
    network.
    """
    if settings.path is None:
        raise SettingsError(
            f"vision.backbone={settings.backbone} needs vision.path=s3d_howto100m.pth, with "
            "s3d_dict.npy next to it"
        )
    dictionary = read_dictionary(settings.dictionary or settings.path.parent / DICTIONARY_FILE)
    video, words = read_s3d(settings.path, dictionary.size)
    device = current_device().name
    return S3DBackbone(
        video.to(device),
        words.to(device),
        dictionary,
        settings.tokens,
        pooled=settings.backbone == "s3d-mixed5c",
    )


def _normalized_rows(vectors: Tensor) -> Matrix:
    return np.asarray(F.normalize(vectors.float(), dim=1).cpu())
