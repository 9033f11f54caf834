"""Which backbone gave the features and text vectors that a network takes, and whether a video's are the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import SettingsError
from stepline.records import Matrix

if TYPE_CHECKING:
    from stepline.vision import Backbone

WITH_PICTURES = ("conse", "clip", "s3d")  # text encoders that belong to a backbone; all others know texts alone


def check_same(path: Path, trained: tuple[str, str], backbone: str) -> None:
    """Raise SettingsError where a video's features are of another backbone than a network was trained on.

    trained: names of what gave its features and its text vectors, "" where it does not say.
    """
    video, text = trained
    if video and video != backbone:
        raise SettingsError(
            f"{path}: trained on features of {video!r}, these are of {backbone!r}; set vision.backbone to {video}, "
            "or give another network"
        )
    kind = _kind(text)
    if kind in WITH_PICTURES and kind != backbone:
        raise SettingsError(f"{path}: trained on text vectors of {kind!r}; set vision.backbone to {kind}")


def encode_texts(name: str, backbone: "Backbone", texts: Sequence[str]) -> Matrix:
    """Return the vectors (N, D) of texts by the encoder of that name: the backbone's own, or one of texts alone."""
    if not name or _kind(name) in WITH_PICTURES:
        return backbone.encode_texts(texts)
    from stepline.text import embed

    return embed(texts, model=name)


def _kind(name: str) -> str:
    """Return the encoder's name without the folder of its weights."""
    return name.partition(":")[0]
