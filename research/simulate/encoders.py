"""Encoders with planted flaws: pictures and texts that share only a part of what they mean.

Letters: T seconds, K texts, P windows, L dimensions of a meaning, C width of the features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from research.simulate.narration import SAID, STYLES, Lines, Style
from research.simulate.scene import NONE, Scene
from research.simulate.settings import BackboneSettings
from research.simulate.tasks import WORLD, Domain, Purpose, random_stream, unit_rows
from stepline.records import Matrix

# cosine of a meaning's text and picture, its map to pictures, to others
Part: TypeAlias = tuple[float, Matrix, Matrix]

CHAT_NORM = 1.4  # of a chat sentence's meaning: that of an action and an object together


@dataclass(frozen=True)
class TextMap:
    """How one style is encoded: action, object (L, C), bias (C,), norm of the noise."""

    action: Matrix
    object: Matrix
    bias: Matrix
    noise: float


@dataclass(frozen=True)
class Encoder:
    """A backbone: action, object (L, C) for pictures, a map for each style of text, chat (N, C)."""

    name: str
    settings: BackboneSettings
    action: Matrix
    object: Matrix
    texts: dict[Style, TextMap]
    chat: Matrix

    def encode_pictures(self, scene: Scene, difficulty: float, rng: np.random.Generator) -> Matrix:
        """Return the video's features (T, C) as unit rows."""
        own, width = self.settings, self.settings.width
        values = scene.action @ self.action + scene.object @ self.object  # (T, C)
        windows = int(scene.window.max()) + 1
        values += own.video * _directions(1, width, rng)
        instance = np.concatenate(
            (own.instance * _directions(windows, width, rng), np.zeros((1, width), np.float32))
        )
        values += instance[scene.window]  # NONE takes the last row
        values += difficulty * own.white * _noise(len(values), width, rng)
        values += (
            difficulty * own.walk * _autoregressive_walk(len(values), width, own.walk_memory, rng)
        )
        return unit_rows(values)

    def encode_texts(
        self, lines: Lines, domain: Domain, rng: np.random.Generator, noise: float = 0.0
    ) -> Matrix:
        """Return the texts' vectors (K, C) as unit rows. `noise` is added to that of their
        style."""
        text = self.texts[lines.style]
        action = (lines.action != NONE) & (lines.said_action == SAID)
        object = (lines.object != NONE) & (lines.said_object == SAID)
        values = (domain.actions[lines.action] * action[:, None]) @ text.action  # (K, C)
        values += (domain.objects[lines.object] * object[:, None]) @ text.object
        values += self.chat[lines.chat] * (lines.chat != NONE)[:, None]
        values += text.bias + float(np.hypot(text.noise, noise)) * _noise(
            len(lines), self.settings.width, rng
        )
        return unit_rows(values)


def make_encoder(name: str, settings: BackboneSettings, domain: Domain, chats: int) -> Encoder:
    """Return the backbone of that name in a world. Its maps depend on the world's seed and on the
    name."""
    rng = random_stream(domain.seed, WORLD, Purpose.BACKBONE, name)
    size = domain.actions.shape[1]
    frame = _orthonormal(4 * size, settings.width, rng)
    action, object, other_action, other_object = np.split(frame, 4)
    parts = (
        (settings.action_shared, action, other_action),
        (settings.object_shared, object, other_object),
    )
    written = _orthonormal_pair(size, settings.width, rng)
    texts = {style: _text_map(style, parts, written, settings, rng) for style in STYLES}
    return Encoder(
        name, settings, action, object, texts, CHAT_NORM * _directions(chats, settings.width, rng)
    )


def _text_map(
    style: Style,
    parts: Sequence[Part],
    written: tuple[Matrix, Matrix],
    settings: BackboneSettings,
    rng: np.random.Generator,
) -> TextMap:
    """Return a style's map of actions and of objects.

    cosine * picture + sqrt(1 - cosine^2) * other, where `other` is the same for all styles but for
    what their distortion turns away. Written steps and articles turn a part of it alike. So styles
    differ in what they have not in common with the pictures: a model must learn each, while plain
    cosine finds no style easier.
    """
    own = {"narration": settings.narration, "step": settings.step, "recipe": settings.recipe}[style]
    common = 0.0 if style == "narration" else settings.style_shared
    size, maps = len(written[0]), []
    for (cosine, picture, other), joint, alone in zip(
        parts, written, _orthonormal_pair(size, settings.width, rng), strict=True
    ):
        turned = _blend(own.distortion, _blend(np.sqrt(common), joint, alone), other)
        maps.append(_blend(cosine, picture, turned))
    bias = settings.style_bias * _directions(1, settings.width, rng)[0]
    return TextMap(maps[0], maps[1], bias, own.noise)


def _blend(weight: float, first: Matrix, second: Matrix) -> Matrix:
    """Return a map that keeps lengths where the two are at right angles. Its cosine with `first` is
    `weight`."""
    blend: Matrix = (weight * first + np.sqrt(1 - weight**2) * second).astype(np.float32)
    return blend


def _orthonormal_pair(size: int, width: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    first, second = np.split(_orthonormal(2 * size, width, rng), 2)
    return first, second


def _orthonormal(rows: int, width: int, rng: np.random.Generator) -> Matrix:
    """Return (rows, width) with rows at right angles, so that a map keeps lengths."""
    basis: Matrix = np.linalg.qr(rng.standard_normal((width, rows)))[0].T.astype(np.float32)
    return basis


def _directions(count: int, width: int, rng: np.random.Generator) -> Matrix:
    return unit_rows(rng.standard_normal((count, width)))


def _noise(rows: int, width: int, rng: np.random.Generator) -> Matrix:
    """Return white noise whose rows have norm 1 on average."""
    noise: Matrix = rng.standard_normal((rows, width), dtype=np.float32) / np.float32(
        np.sqrt(width)
    )
    return noise


def _autoregressive_walk(rows: int, width: int, memory: float, rng: np.random.Generator) -> Matrix:
    """Return a stationary AR(1) walk whose rows have norm 1 on average."""
    walk = _noise(rows, width, rng)
    walk[1:] *= np.float32(np.sqrt(1 - memory**2))
    for row in range(1, rows):
        walk[row] += np.float32(memory) * walk[row - 1]
    return walk
