"""What the file holds, and what its pictures show."""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from stepline import media, pipeline
from stepline.curate.stage import Work
from stepline.curate.stages.parts import Array, Looked, Probed, pack, to_bytes, unpack
from stepline.models import sha256
from stepline.records import FeatureSequence
from stepline.request import Request

if TYPE_CHECKING:
    from stepline.vision import Backbone, VisionSettings


def probe(work: Work) -> bytes:
    """Return what the video holds; of an item without a file, what its source tells."""
    if work.media is None:
        return to_bytes(Probed(duration=work.item.duration or 0.0, picture=False, sound=False))
    info = media.probe(work.media, work.recipe.steps.media)
    return to_bytes(
        Probed(
            duration=info.duration,
            picture=info.has_picture,
            sound=info.has_sound,
            width=info.width,
            height=info.height,
            digest=sha256(work.media),
            warnings=info.warnings,
        )
    )


def encode(work: Work) -> bytes:
    """Return features (T, D), motion and shots of the video's pictures; ready features stand for a backbone."""
    if work.features is not None:
        from stepline.vision import read_precomputed

        vision = work.recipe.steps.vision
        found = read_precomputed(work.features, rate=vision.rate, unit=vision.unit)
        named = found.backbone if found.backbone != "precomputed" else vision.backbone
        return packed(pipeline.Seen(FeatureSequence(found.values, found.rate, named), end=found.duration))
    if work.media is None:
        return packed(pipeline.Seen(warnings=(pipeline.NO_PICTURE,)))
    settings = work.recipe.steps
    info = media.probe(work.media, settings.media)
    return packed(pipeline.see(Request(work.media, work.item.id), info, settings))


def packed(seen: pipeline.Seen) -> bytes:
    """Return what was seen as a cell: halves, as a feature store keeps them."""
    arrays: dict[str, Array] = {}
    backbone, rate, cuts = None, 1.0, None
    if seen.features is not None:
        arrays["features"] = seen.features.values.astype(np.float16)
        backbone, rate = seen.features.backbone, seen.features.rate
    if seen.activity is not None:
        arrays |= {"motion": seen.activity.motion, "peaks": seen.activity.peaks}
        arrays["looks"] = seen.activity.looks.astype(np.float16)
        cuts, rate = tuple(float(cut) for cut in seen.activity.cuts), seen.activity.rate
    return pack(Looked(backbone=backbone, rate=rate, cuts=cuts, end=seen.end, warnings=seen.warnings), arrays)


def unpacked(data: bytes, vision: "VisionSettings | None" = None) -> pipeline.Seen:
    """Return what was seen from a cell; vision: with the backbone of these settings, to encode texts with."""
    from stepline.vision import Activity

    looked, arrays = unpack(Looked, data)
    features, activity = None, None
    if "features" in arrays and looked.backbone is not None:
        features = FeatureSequence(arrays["features"].astype(np.float32), looked.rate, looked.backbone)
    if looked.cuts is not None:
        motion, peaks, looks = (arrays[name].astype(np.float32) for name in ("motion", "peaks", "looks"))
        activity = Activity(motion, looked.cuts, looked.rate, peaks, looks)
    backbone = held_backbone(vision) if vision is not None and features is not None else None
    return pipeline.Seen(features, activity, backbone, looked.end, looked.warnings)


@lru_cache(maxsize=1)
def held_backbone(vision: "VisionSettings") -> "Backbone":
    """Return the backbone of the settings, which the process keeps."""
    from stepline.vision import load_backbone

    return load_backbone(vision)
