"""Encoders with planted flaws: pictures and texts that share only a part of what they mean.

Letters: T seconds, K texts, P windows, L dimensions of a meaning, C width of the features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lab.simulate.narration import SAID_WORD, TEXT_STYLES, Lines, Style
from lab.simulate.scene import NO_INDEX, Scene
from lab.simulate.settings import BackboneSettings
from lab.simulate.tasks import WORLD_NUMBER, Domain, Purpose, random_stream, unit_rows
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
        settings = self.settings
        width = settings.width
        values = scene.action @ self.action + scene.object @ self.object  # (T, C)
        seconds = len(values)

        # what a whole video and what one showing add
        windows = int(scene.window.max()) + 1
        values += settings.video * _directions(1, width, rng)
        showings = settings.instance * _directions(windows, width, rng)
        nothing_shown = np.zeros((1, width), np.float32)  # the last row, which NO_INDEX takes
        values += np.concatenate((showings, nothing_shown))[scene.window]

        # what each second adds
        values += difficulty * settings.white * _noise(seconds, width, rng)
        walk = _autoregressive_walk(seconds, width, settings.walk_memory, rng)
        values += difficulty * settings.walk * walk
        return unit_rows(values)

    def encode_texts(
        self, lines: Lines, domain: Domain, rng: np.random.Generator, noise: float = 0.0
    ) -> Matrix:
        """Return the texts' vectors (K, C) as unit rows. `noise` is added to that of their
        style."""
        text = self.texts[lines.style]
        has_action = (lines.action != NO_INDEX) & (lines.said_action == SAID_WORD)
        has_object = (lines.object != NO_INDEX) & (lines.said_object == SAID_WORD)
        has_chat = lines.chat != NO_INDEX
        actions = domain.actions[lines.action] * has_action[:, None]  # (K, L)
        objects = domain.objects[lines.object] * has_object[:, None]
        values = actions @ text.action  # (K, C)
        values += objects @ text.object
        values += self.chat[lines.chat] * has_chat[:, None]
        noise_norm = float(np.hypot(text.noise, noise))
        values += text.bias + noise_norm * _noise(len(lines), self.settings.width, rng)
        return unit_rows(values)


def make_encoder(name: str, settings: BackboneSettings, domain: Domain, chats: int) -> Encoder:
    """Return the backbone of that name in a world. Its maps depend on the world's seed and on the
    name."""
    rng = random_stream(domain.seed, WORLD_NUMBER, Purpose.BACKBONE, name)
    size = domain.actions.shape[1]
    frame = _orthonormal(4 * size, settings.width, rng)
    action, object, other_action, other_object = np.split(frame, 4)
    parts = (
        (settings.action_shared, action, other_action),
        (settings.object_shared, object, other_object),
    )
    shared_maps = _orthonormal_pair(size, settings.width, rng)
    texts = {style: _text_map(style, parts, shared_maps, settings, rng) for style in TEXT_STYLES}
    chat = CHAT_NORM * _directions(chats, settings.width, rng)
    return Encoder(name, settings, action, object, texts, chat)


def _text_map(
    style: Style,
    parts: Sequence[Part],
    shared_maps: tuple[Matrix, Matrix],
    settings: BackboneSettings,
    rng: np.random.Generator,
) -> TextMap:
    """Return a style's map of actions and of objects.

    cosine * picture + sqrt(1 - cosine^2) * other, where `other` is the same for all styles but for
    what their distortion turns away. Written steps and articles turn a part of it alike. So styles
    differ in what they have not in common with the pictures: a model must learn each, while plain
    cosine finds no style easier.
    """
    styles = {"narration": settings.narration, "step": settings.step, "recipe": settings.recipe}
    own = styles[style]
    common = 0.0 if style == "narration" else settings.style_shared
    size = len(shared_maps[0])
    own_maps = _orthonormal_pair(size, settings.width, rng)
    maps = []
    for part, shared_map, own_map in zip(parts, shared_maps, own_maps, strict=True):
        cosine, picture, other = part
        distortion = _blend(np.sqrt(common), shared_map, own_map)
        turned = _blend(own.distortion, distortion, other)
        maps.append(_blend(cosine, picture, turned))
    bias = settings.style_bias * _directions(1, settings.width, rng)[0]
    return TextMap(maps[0], maps[1], bias, own.noise)


def _blend(weight: float, first: Matrix, second: Matrix) -> Matrix:
    """Return a map that keeps lengths where the two are at right angles. Its cosine with `first` is
    `weight`."""
    second_weight = np.sqrt(1 - weight**2)
    blend: Matrix = (weight * first + second_weight * second).astype(np.float32)
    return blend


def _orthonormal_pair(size: int, width: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    first, second = np.split(_orthonormal(2 * size, width, rng), 2)
    return first, second


def _orthonormal(rows: int, width: int, rng: np.random.Generator) -> Matrix:
    """Return (rows, width) with rows at right angles, so that a map keeps lengths."""
    basis, _ = np.linalg.qr(rng.standard_normal((width, rows)))
    transposed: Matrix = basis.T.astype(np.float32)
    return transposed


def _directions(count: int, width: int, rng: np.random.Generator) -> Matrix:
    return unit_rows(rng.standard_normal((count, width)))


def _noise(rows: int, width: int, rng: np.random.Generator) -> Matrix:
    """Return white noise whose rows have norm 1 on average."""
    values = rng.standard_normal((rows, width), dtype=np.float32)
    noise: Matrix = values / np.float32(np.sqrt(width))
    return noise


def _autoregressive_walk(rows: int, width: int, memory: float, rng: np.random.Generator) -> Matrix:
    """Return a stationary AR(1) walk whose rows have norm 1 on average."""
    walk = _noise(rows, width, rng)
    innovation = np.float32(np.sqrt(1 - memory**2))
    walk[1:] *= innovation
    for row in range(1, rows):
        walk[row] += np.float32(memory) * walk[row - 1]
    return walk
