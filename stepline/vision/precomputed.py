"""Precomputed features as a backbone: released ones of InternVideo, CLIP or S3D, or the user's."""

from collections.abc import Sequence
from functools import cached_property

from stepline.errors import ModelError, SettingsError, StoreError
from stepline.features.files import (
    PRECOMPUTED_BACKBONE,
    TextFeatures,
    find_feature_file,
    read_feature_file,
    read_text_features,
)
from stepline.numeric import unit_rows
from stepline.records import FeatureSequence, Matrix
from stepline.vision.encode import Images
from stepline.vision.settings import VisionSettings


class PrecomputedBackbone:
    """Precomputed features of videos and texts, used instead of a network.

    Images cannot be encoded. Texts can be encoded if a file gives their features.
    """

    name = PRECOMPUTED_BACKBONE

    def __init__(self, settings: VisionSettings) -> None:
        """Set the files, which are read when they are needed.

        settings: `path` is a feature file, or a folder with a file <video id>.npy per video. `texts`
            is the file of the text features. Raises SettingsError if nothing exists at `path`.
        """
        if settings.path is None or not settings.path.exists():
            raise SettingsError(
                f"vision.path {settings.path}: give a feature file, or a folder of <video id>.npy files"
            )
        self._path = settings.path
        self._settings = settings

    @cached_property
    def dim(self) -> int:
        """Width D of the text features."""
        return int(self._text_features.values.shape[1])

    def features(self, video_id: str) -> FeatureSequence:
        """Return the features of a video.

        Raises StoreError if the file is missing or damaged, ShapeError if its array has a wrong
        shape.
        """
        path = self._path if self._path.is_file() else find_feature_file(self._path, video_id)
        settings = self._settings
        width = self.dim if settings.texts is not None else None
        return read_feature_file(path, rate=settings.rate, width=width, unit=settings.unit)

    def encode_images(self, images: Images) -> Matrix:
        """Raise ModelError, since precomputed features have no network."""
        raise ModelError(
            f"vision.backbone=precomputed cannot encode {len(images)} pictures; use conse or clip"
        )

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return the features of K texts, (K, D), looked up by the exact text.

        Raises StoreError for a text without features.
        """
        numbers = {text: row for row, text in enumerate(self._text_features.texts)}
        missing = [text for text in texts if text not in numbers]
        if missing:
            raise StoreError(
                f"{self._settings.texts}: no features for {missing[0]!r} ({len(missing)} of "
                f"{len(texts)} texts missing); extract them with the encoder that made the video "
                "features"
            )
        values: Matrix = self._text_features.values[[numbers[text] for text in texts]]
        return unit_rows(values) if self._settings.unit else values

    @cached_property
    def _text_features(self) -> TextFeatures:
        if self._settings.texts is None:
            raise SettingsError(
                "vision.texts is not set; ready features also need the features of the texts"
            )
        return read_text_features(self._settings.texts)
