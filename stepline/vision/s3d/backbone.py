"""S3D-G as a backbone: a row of features is what a clip of 16 frames shows, beside words in one space."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.errors import SettingsError, ShapeError
from stepline.records import Matrix
from stepline.vision.backbone import Clips, Pictures, check_pictures
from stepline.vision.s3d.folded import FoldedS3D
from stepline.vision.s3d.network import JOINT
from stepline.vision.s3d.weights import read_s3d
from stepline.vision.s3d.words import Dictionary, Tokenisation, Words, read_dictionary
from stepline.vision.settings import VisionSettings

SIDE = 224  # px of a clip, a square from the middle of the picture; as HowTo100M's features were made
FRAMES = 16  # a clip; at one row a second that is 16 frames/s, the rate of those features
DICTIONARY = "s3d_dict.npy"


class S3DBackbone:
    """Clips and texts as unit vectors of 512 numbers. Differs from its makers' score, which keeps the lengths."""

    name = "s3d"
    dim = JOINT
    clip_frames = FRAMES

    def __init__(self, video: FoldedS3D, words: Words, dictionary: Dictionary, form: Tokenisation) -> None:
        """form: how texts are cut into words, as `Dictionary.tokens` says."""
        self._video, self._words = video, words
        self._dictionary, self._form = dictionary, form

    def encode_clips(self, clips: Clips) -> Matrix:
        """Return (B, 512) unit rows for uint8 RGB clips (B, T, H, W, 3) with an even number of frames."""
        if clips.ndim != 5 or clips.shape[1] % 2 or not clips.shape[1]:
            raise ShapeError(f"clips must be (B, T, H, W, 3) with an even T above 0, not {clips.shape}")
        check_pictures(clips.reshape(-1, *clips.shape[2:]))
        if not len(clips):
            return np.empty((0, JOINT), dtype=np.float32)
        return _unit(self._video(prepare(torch.from_numpy(np.ascontiguousarray(clips)))))

    def encode_images(self, pictures: Pictures) -> Matrix:
        """Return (B, 512) unit rows of clips in which each picture stands still."""
        check_pictures(pictures)
        shape = (len(pictures), FRAMES, *pictures.shape[1:])
        return self.encode_clips(np.broadcast_to(pictures[:, None], shape))

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return (K, 512) unit rows; words that the dictionary lacks do not count."""
        if not texts:
            return np.empty((0, JOINT), dtype=np.float32)
        with torch.inference_mode():
            return _unit(self._words(self._dictionary.tokens(texts, self._form), self._form))


def prepare(clips: Tensor) -> Tensor:
    """Return the network's input (B, 3, T, 224, 224) in [0, 1] for uint8 clips (B, T, H, W, 3).

    The middle square; neither mean nor spread is taken off, as in training.
    """
    b, t, h, w, _ = clips.shape
    side = min(h, w)
    top, left = (h - side) // 2, (w - side) // 2
    square = clips[:, :, top : top + side, left : left + side].reshape(b * t, side, side, 3).permute(0, 3, 1, 2)
    if side != SIDE:
        square = F.interpolate(square, (SIDE, SIDE), mode="bilinear", antialias=True)
    return (square.float() / 255).view(b, t, 3, SIDE, SIDE).transpose(1, 2)


def load_s3d(settings: VisionSettings) -> S3DBackbone:
    """Return S3D with the weights in `settings.path` and the dictionary beside them, or in `settings.dictionary`.

    Raises SettingsError without a path, ModelError when a file is missing, damaged or of another network.
    """
    if settings.path is None:
        raise SettingsError("vision.backbone=s3d needs vision.path=s3d_howto100m.pth, with s3d_dict.npy beside it")
    dictionary = read_dictionary(settings.dictionary or _beside(settings.path))
    video, words = read_s3d(settings.path, dictionary.size)
    return S3DBackbone(FoldedS3D(video), words, dictionary, settings.tokens)


def _beside(weights: Path) -> Path:
    return weights.parent / DICTIONARY


def _unit(vectors: Tensor) -> Matrix:
    unit: Matrix = F.normalize(vectors, dim=1).numpy()
    return unit
