"""Frames to features, one row per second, in a space shared with texts.

backbone = load_backbone(VisionSettings())
encoder = VideoEncoder(backbone, rate=1.0)                            # add(frame) in their order
features = encoder.finish()
fit = backbone.encode_texts(["cut the banana"]) @ features.values.T   # (K, T) cosines
"""

from collections.abc import Callable

from stepline.errors import SettingsError
from stepline.plugins import load_plugin
from stepline.vision.clip import load_clip
from stepline.vision.conse import load_conse
from stepline.vision.encode import Backbone, VideoEncoder, frames_per_row
from stepline.vision.motion import Activity, ActivityMeter, KeyFrameMeter
from stepline.vision.on_screen_text import ScreenText
from stepline.vision.precomputed import PrecomputedBackbone
from stepline.vision.settings import VisionSettings

__all__ = [
    "BACKBONES",
    "Activity",
    "ActivityMeter",
    "Backbone",
    "KeyFrameMeter",
    "PrecomputedBackbone",
    "ScreenText",
    "VideoEncoder",
    "VisionSettings",
    "frames_per_row",
    "load_backbone",
]


def _load_with_torch(settings: VisionSettings) -> Backbone:
    if settings.backbone == "internvideo":
        from stepline.vision.internvideo import load_internvideo

        return load_internvideo(settings)
    from stepline.vision.s3d import load_s3d

    return load_s3d(settings)


# Loaders by the names in `plugins.BUILT_IN_NAMES`, which settings and commands read without networks.
BACKBONES: dict[str, Callable[[VisionSettings], Backbone]] = {
    "conse": load_conse,
    "clip": load_clip,
    **dict.fromkeys(("internvideo", "s3d", "s3d-mixed5c"), _load_with_torch),
    "precomputed": PrecomputedBackbone,
}


def load_backbone(settings: VisionSettings) -> Backbone:
    """Return the image-text network (backbone) that the settings name.

    Raises ModelError if its weights are missing or damaged, SettingsError for "none", which has no
    network.
    """
    if settings.backbone == "none":
        raise SettingsError(
            "vision.backbone=none switches vision off; name one of " + ", ".join(BACKBONES)
        )
    if settings.backbone in BACKBONES:
        return BACKBONES[settings.backbone](settings)
    backbone: Backbone = load_plugin("backbones", settings.backbone)(settings)
    return backbone
