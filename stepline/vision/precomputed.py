"""Features that somebody else extracted: the released ones of InternVideo, CLIP and S3D, or a user's own.

<sub>/<id>.pth.tar   (T, 768) half tensor, 1 row/s    InternVideo and CLIP features of HTM
<id>.mp4.npy         (T, 1024) float, 1 row/s         HowTo100M's S3D features; also .webm.npy
<id>.pth             {"vid", "start", "end", "text", "features": (K, 768)}   their text features
.npy .npz .safetensors .pt                            a user's own, and what `store.write_features` wrote
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import ModelError, SettingsError, ShapeError, StoreError
from stepline.features.files import read_arrays
from stepline.records import FeatureSequence, Matrix
from stepline.vision.backbone import Pictures
from stepline.vision.settings import VisionSettings

SUFFIXES = (".safetensors", ".npy", ".mp4.npy", ".webm.npy", ".npz", ".pth.tar", ".pth", ".pt")
VALUES = ("values", "features")  # the names under which a file of several arrays may keep the features


@dataclass(frozen=True)
class TextFeatures:
    """Texts and their vectors: values (K, D) float32, as extracted (not normalised)."""

    texts: tuple[str, ...]
    values: Matrix


class PrecomputedBackbone:
    """Ready features in place of a network; pictures cannot be encoded, texts only if their features are given."""

    name = "precomputed"

    def __init__(self, path: Path, *, rate: float, texts: Path | None, unit: bool = True) -> None:
        """unit: whether all rows are scaled to length 1."""
        self._path = path
        self._unit = unit
        self._rate = rate
        self._texts = texts

    @cached_property
    def dim(self) -> int:
        """Width D, read from the text features."""
        return int(self._text_features.values.shape[1])

    def features(self, video_id: str) -> FeatureSequence:
        """Return the features of one video. Raises StoreError or ShapeError, which say what is wrong."""
        path = self._path if self._path.is_file() else find_precomputed(self._path, video_id)
        width = self.dim if self._texts is not None else None
        return read_precomputed(path, rate=self._rate, width=width, unit=self._unit)

    def encode_images(self, pictures: Pictures) -> Matrix:
        """Raise ModelError: there is no network behind ready features."""
        raise ModelError(f"vision.backbone=precomputed cannot encode {len(pictures)} pictures; use conse or clip")

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return (K, D), looked up by the exact text. Raises StoreError for a text without features."""
        known = {text: row for row, text in enumerate(self._text_features.texts)}
        if missing := [text for text in texts if text not in known]:
            raise StoreError(
                f"{self._texts}: no features for {missing[0]!r} ({len(missing)} of {len(texts)} texts missing); "
                "extract them with the encoder that made the video features"
            )
        values: Matrix = self._text_features.values[[known[text] for text in texts]]
        return _unit(values) if self._unit else values

    @cached_property
    def _text_features(self) -> TextFeatures:
        if self._texts is None:
            raise SettingsError("vision.texts is not set; ready features need the features of the texts beside them")
        return read_text_features(self._texts)


def load_precomputed(settings: VisionSettings) -> PrecomputedBackbone:
    """Return the features that `settings.path` and `settings.texts` name; files are read when they are asked for."""
    if settings.path is None or not settings.path.exists():
        raise SettingsError(f"vision.path {settings.path}: give a feature file, or a folder of <video id>.npy files")
    return PrecomputedBackbone(settings.path, rate=settings.rate, texts=settings.texts, unit=settings.unit)


def find_precomputed(folder: Path, video_id: str) -> Path:
    """Return the feature file of a video: in the folder, else in one of the folders in it."""
    if not video_id or Path(video_id).name != video_id:
        raise StoreError(f"video id {video_id!r}: not a file name; rename the video")
    for place in (folder, *sorted(child for child in folder.iterdir() if child.is_dir())):
        for suffix in SUFFIXES:
            if (path := place / f"{video_id}{suffix}").is_file():
                return path
    raise StoreError(f"{folder}: no features for video {video_id!r}; expected {video_id} + one of {' '.join(SUFFIXES)}")


def read_precomputed(path: Path, *, rate: float = 1.0, width: int | None = None, unit: bool = True) -> FeatureSequence:
    """Return the features in a file, as float32 unit rows (a row of zeros stays zero); as they are without `unit`.

    rate: rows per second, for files that do not say it; Stepline's own do. width: what D must be, if known.
    Raises StoreError when the file cannot be read, ShapeError when what it holds is no (T, D) of finite numbers.
    """
    content, metadata = read_arrays(path)
    values = _matrix(path, _pick(path, content))
    if width is not None and values.shape[1] != width:
        raise ShapeError(f"{path}: {values.shape[1]} wide, the texts' features {width}; use one encoder for both")
    rows = _unit(values) if unit else values
    return FeatureSequence(rows, _rate(path, metadata, rate), metadata.get("backbone", PrecomputedBackbone.name))


def read_text_features(path: Path) -> TextFeatures:
    """Return the texts and their features: "text" and "features" of a .pth dict, .npz or .safetensors (metadata)."""
    content, _ = read_arrays(path)
    if not isinstance(content, Mapping) or "text" not in content:
        raise StoreError(f"{path}: no 'text' beside the features; give {{'text': [...], 'features': (K, D)}}")
    texts = tuple(str(text) for text in np.atleast_1d(content["text"]))
    values = _matrix(path, _pick(path, {key: value for key, value in content.items() if key in VALUES}))
    if len(texts) != len(values):
        raise ShapeError(f"{path}: {len(texts)} texts but {len(values)} rows of features; extract them again")
    return TextFeatures(texts, values)


def _pick(path: Path, content: Any) -> Any:
    """Return the one array that holds the features."""
    if not isinstance(content, Mapping):
        return content
    named = [name for name in VALUES if name in content] or list(content)
    if len(named) != 1:
        raise StoreError(f"{path}: holds {', '.join(map(str, content)) or 'nothing'}; name one array 'features'")
    return content[named[0]]


def _matrix(path: Path, array: Any) -> Matrix:
    """Return the array as (T, D) float32, or raise ShapeError."""
    if not isinstance(array, np.ndarray):
        raise ShapeError(f"{path}: holds a {type(array).__name__}, not an array of features (T, D)")
    if array.ndim != 2 or 0 in array.shape or not np.issubdtype(array.dtype, np.floating):
        raise ShapeError(f"{path}: features must be (T, D) of float numbers, not {array.shape} {array.dtype}")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite and is refused below
        values: Matrix = array.astype(np.float32)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(1))[0])
        raise ShapeError(f"{path}: row {row} holds NaN or infinity; extract the features again")
    return values


def _rate(path: Path, metadata: Mapping[str, str], rate: float) -> float:
    try:
        return float(metadata.get("rate", rate))
    except ValueError as error:
        raise StoreError(f"{path}: rate {metadata['rate']!r} is no number; write the features again") from error


def _unit(values: Matrix) -> Matrix:
    length = np.linalg.norm(values, axis=1, keepdims=True)
    unit: Matrix = values / np.where(length > 0, length, np.float32(1))
    return unit
