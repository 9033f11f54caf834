"""What the picture of a video shows: feature rows, motion and cuts, and what small detectors see."""

import contextlib
import math
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from stepline.device import current_device
from stepline.pipeline.part import features_within
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import Progress, read_ahead, with_progress
from stepline.records import FeatureSequence

if TYPE_CHECKING:
    from stepline.media import MediaInfo, Thumbnails
    from stepline.vision import Activity, Backbone, PictureCues


NO_PICTURE = "no picture in it can be seen, so nothing counts as shown"
FRAMES_AHEAD = 4  # of pictures, decoded while others are looked at
# an odd number puts one frame on the middle of a feature row; the others measure motion
FRAMES_A_ROW = 3


@dataclass(frozen=True)
class VisualFeatures:
    """What the picture shows: features (T, D), motion and cuts, the backbone that saw it, the last
    second decoded.

    cues: what small detectors see beside it. All None where there is no picture to use.
    """

    features: FeatureSequence | None = None
    activity: "Activity | None" = None
    backbone: "Backbone | None" = None
    end: float = 0.0
    warnings: tuple[str, ...] = ()
    cues: "PictureCues | None" = None


def _load_text_encoder(looking: "Future[VisualFeatures]") -> None:
    """Load what embeds texts for the backbone that saw the pictures; where it cannot be read, its
    first user tells."""
    from stepline.text import load_encoder
    from stepline.vision.conse import ConSEBackbone

    if looking.exception() is None and isinstance(
        backbone := looking.result().backbone, ConSEBackbone
    ):
        load_encoder(backbone.text_model)


def extract_features(
    request: Request,
    info: "MediaInfo",
    settings: StepsSettings,
    *,
    backbone: "Backbone | None" = None,
    motion: bool = True,
    progress: Progress | None = None,
    stop: Event | None = None,
    thumbnails: "Thumbnails | None" = None,
    ahead: int = 0,
) -> VisualFeatures:
    """Return the features of a video's picture, row by row, with motion and cuts; empty without a
    picture or backbone.

    backbone: that of the settings, where several videos share it. motion: whether motion and cuts
    are measured.
    thumbnails: as `MediaReader` takes them. ahead: pictures that another thread decodes beforehand;
    for a GPU more. Ready features, where the settings name some, stand for what a network would
    see.
    """
    vision = settings.vision
    if not info.has_picture:
        return VisualFeatures(warnings=(NO_PICTURE,))
    if vision.backbone == "none":
        return VisualFeatures()
    from stepline.media import Frame, MediaReader
    from stepline.vision import (
        ActivityMeter,
        PrecomputedBackbone,
        VideoEncoder,
        frames_per_row,
        load_backbone,
    )
    from stepline.vision.cues import start_cues

    backbone = backbone or load_backbone(vision)
    ready = backbone.features(request.id) if isinstance(backbone, PrecomputedBackbone) else None
    ready = features_within(ready, request.part) if ready is not None else None
    encoder = VideoEncoder(backbone, rate=vision.rate, batch=current_device().batch(vision.batch))
    meter = ActivityMeter(rate=vision.rate, cut_ratio=vision.cut_ratio, cut_floor=vision.cut_floor)
    cues, unseen = start_cues(vision) if motion else (None, ())
    rate, measured = vision.rate * max(FRAMES_A_ROW, frames_per_row(backbone)), 0
    reader = MediaReader(
        request.path,
        frame_rate=rate,
        frame_size=vision.frame_size,
        sound=False,
        settings=settings.media,
        part=request.part,
        thumbnails=thumbnails,
    )
    if current_device().kind != "cpu":  # the CPU decodes about a batch while the GPU encodes one
        ahead = current_device().batch(FRAMES_AHEAD * FRAMES_A_ROW)
    with contextlib.closing(read_ahead(reader, ahead) if ahead else iter(reader)) as frames:
        for frame in with_progress(frames, Frame, "looking", info.duration, progress, stop):
            # Motion is measured at one pace, however many frames the backbone takes.
            if motion and frame.time * vision.rate * FRAMES_A_ROW >= measured:
                meter.add(frame)
                measured = math.floor(frame.time * vision.rate * FRAMES_A_ROW) + 1
            if cues is not None:
                cues.add(frame)
            if ready is None:
                encoder.add(frame)
    features = ready or encoder.finish()
    repeated = f"{len(encoder.repeated)} seconds have no picture; the one before stands for them"
    warnings = (*reader.warnings, *([repeated] if encoder.repeated else []), *unseen)
    activity = meter.finish() if motion else None
    return VisualFeatures(
        features, activity, backbone, reader.end, warnings, cues.finish() if cues else None
    )
