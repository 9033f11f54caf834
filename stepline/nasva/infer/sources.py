"""Where a benchmark's features and text vectors come from: a feature store, a folder of files, or an encoder."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from stepline.errors import ModelError, StoreError
from stepline.features import FeatureStore
from stepline.models import WEIGHTS
from stepline.nasva.infer.load import Loaded
from stepline.records import FeatureSequence, Matrix
from stepline.vision.precomputed import TextFeatures, find_precomputed, read_precomputed, read_text_features

MINILM = 384  # width of its vectors


class Features:
    """The features of videos by id, rows as they are. Raises StoreError where the folder is not there."""

    def __init__(self, folder: Path, rate: float = 1.0) -> None:
        """folder: a feature store, or files of one video each. rate: rows per second of files that do not say it."""
        self._folder, self._rate = folder, rate
        self._store = _store(folder)

    def read(self, video: str) -> FeatureSequence:
        """Return the features of a video. Raises StoreError or ShapeError, which say what is wrong."""
        if self._store is not None:
            return self._store.read(video)
        return read_precomputed(find_precomputed(self._folder, video), rate=self._rate, unit=False)


class Vectors:
    """The vectors of a video's texts, from a store, a folder, one file of many texts, or the network's own encoder."""

    def __init__(self, path: Path | None, loaded: Loaded) -> None:
        """path: None for the encoder of the texts that the network was trained on. Raises ModelError without one."""
        self._path, self._loaded = path, loaded
        self._store = _store(path) if path is not None and not path.is_file() else None
        if path is None:
            self._encoder = _encoder(loaded)

    def encoder(self, video: str) -> str | None:
        """Return whose the vectors of a video's texts are; None where files do not say it, or the network made them."""
        return self._store[video].backbone if self._store is not None and video in self._store else None

    def read(self, video: str, texts: Sequence[str]) -> Matrix:
        """Return (K, C) vectors of the texts. Raises StoreError where one has none."""
        if self._path is None:
            from stepline.text import embed

            return embed(texts, model=self._encoder)
        given = self._whole if self._path.is_file() else self._of(video)
        if given.texts == tuple(texts):  # also where two texts are worded alike
            return given.values
        row = {text: number for number, text in enumerate(given.texts)}
        absent = [text for text in texts if text not in row]
        if absent:
            counts = f"{len(absent)} of {len(texts)} texts have no vector"
            raise StoreError(f"{self._path}: {counts}, first {absent[0]!r}; extract them with the same encoder")
        return np.ascontiguousarray(given.values[[row[text] for text in texts]])

    @cached_property
    def _whole(self) -> TextFeatures:
        return read_text_features(Path(str(self._path)))

    def _of(self, video: str) -> TextFeatures:
        if self._store is None:
            return read_text_features(find_precomputed(Path(str(self._path)), video))
        lines = self._store.lines(video)
        if lines is None:
            raise StoreError(f"{self._path}: {video} holds no texts beside its vectors; import text features")
        return TextFeatures(lines.texts, self._store.matrix(video))


def _store(folder: Path) -> FeatureStore | None:
    """Return the store in a folder, None where it holds loose files. Raises StoreError where it is no folder."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder of features; give a feature store, or files of one video each")
    return FeatureStore(folder) if any(folder.glob("shard-*.parquet")) else None


def _encoder(loaded: Loaded) -> str:
    """Return the text encoder that a network was trained on, as `embed` takes it."""
    width = loaded.aligner.settings.text_width
    if loaded.space is None and width == MINILM:
        return "minilm"
    if loaded.space is None or not _made_here(loaded.space.text):
        whose = f"of {loaded.space.text!r}" if loaded.space else "of an encoder that it does not name"
        raise ModelError(f"{loaded.path}: its texts are vectors {width} wide {whose}; give --texts, their features")
    return loaded.space.text


def _made_here(encoder: str) -> bool:
    """Tell whether `embed` takes it: "clip", "internvideo" and the like name vectors that only their files hold."""
    return encoder in WEIGHTS or Path(encoder).is_dir()
