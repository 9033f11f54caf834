"""The visual features of a video: backbone features, motion, cuts, text on screen."""

import contextlib
import logging
import math
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING

import numpy as np

from stepline.media import (
    Frame,
    KeyFrame,
    KeyFrameReader,
    MediaInfo,
    MediaReader,
    SparseKeyFramesError,
)
from stepline.networks.device import current_device
from stepline.pipeline.part import crop_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.processes import trim_memory
from stepline.progress import Progress, read_ahead, with_progress
from stepline.records import FeatureSequence
from stepline.text import load_encoder
from stepline.vision import (
    Activity,
    ActivityMeter,
    Backbone,
    KeyFrameMeter,
    PrecomputedBackbone,
    ScreenText,
    VideoEncoder,
    frames_per_row,
    load_backbone,
)
from stepline.vision.conse import ConSEBackbone, load_classifier
from stepline.vision.on_screen_text import load_text_networks, start_text_meter
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from stepline.grounding.screens import ScreenReading


log = logging.getLogger(__name__)
NO_PICTURE = "no picture in it can be seen, so nothing counts as shown"
PREFETCHED_FRAMES = 4  # of pictures, decoded while others are looked at
# an odd number puts one frame on the middle of a feature row. The others measure motion
FRAMES_PER_ROW = 3


@dataclass(frozen=True)
class VisualFeatures:
    """All that was extracted from the frames of a video.

    Attributes:
        features: (T rows, D) features of the backbone. None if there is no video stream or no
            backbone.
        activity: motion per second, and the times of cuts. None if they were not measured.
        backbone: the network that made the features. None if none was used.
        end: the last second of the video that was decoded.
        warnings: warnings that the record will contain.
        on_screen: lines of text in the frames, with their seconds.
        screen: the text and changes of the screen. None if the video is not a screen recording.
    """

    features: FeatureSequence | None = None
    activity: "Activity | None" = None
    backbone: "Backbone | None" = None
    end: float = 0.0
    warnings: tuple[str, ...] = ()
    on_screen: "tuple[ScreenText, ...]" = ()
    screen: "ScreenReading | None" = None

    @property
    def cuts(self) -> tuple[float, ...]:
        """Times of cuts in seconds, () where unknown."""
        return () if self.activity is None else self.activity.cuts


@dataclass(frozen=True)
class VisualOptions:
    """Options of visual feature extraction.

    Attributes:
        backbone: a loaded network that several videos share. None: the network is loaded.
        key_frames: whether key frames are enough, where the file has enough of them.
        measures_motion: whether motion, cuts and text are measured.
        reads_screen: whether a screen recording is read. Its frames are decoded again for that.
        progress: called with the stage's name, the second reached and the duration in s.
        stop_event: event that ends the extraction when it is set. None: the extraction runs to the
            end.
        prefetched_frames: number of frames that another thread decodes in advance.
    """

    backbone: "Backbone | None" = None
    key_frames: bool = False
    measures_motion: bool = True
    reads_screen: bool = False
    progress: Progress | None = None
    stop_event: Event | None = None
    prefetched_frames: int = 0


def load_text_encoder(extraction: "Future[VisualFeatures]") -> None:
    """Load the text encoder of the backbone that made the features, after `extraction` has ended.

    If the encoder cannot be read, the later stage that needs it reports the error.
    """
    if extraction.exception() is not None:
        return
    backbone = extraction.result().backbone
    if isinstance(backbone, ConSEBackbone):
        load_encoder(backbone.text_model)


def free_picture_networks() -> None:
    """Free the networks of the default backbone and of text, which one video has used."""
    load_classifier.cache_clear()
    load_text_networks.cache_clear()
    trim_memory()


class MotionMeter:
    """Measures motion and cuts, and reads the text, on the frames of a video.

    Its rate does not depend on how many frames the backbone takes.

    Attributes:
        activity: measures motion and cuts.
        screen: measures how still and flat the frames are, which separates screen recordings from
            films.
        text: reads the text. None: it is not read.
        warnings: why text is not read, if its weights are missing.
    """

    def __init__(self, vision: VisionSettings) -> None:
        from stepline.grounding.screens import ScreenMeter

        self._frame_rate = vision.rate * FRAMES_PER_ROW
        self._next_frame = 0  # number, at that rate, of the next frame that is measured
        self.activity = ActivityMeter(rate=vision.rate)
        self.screen = ScreenMeter()
        self.text, self.warnings = start_text_meter(vision)

    def add(self, frame: Frame) -> None:
        """Add the next frame of the video."""
        # A backbone may ask for more frames than motion needs. The others are skipped here.
        if frame.time * self._frame_rate >= self._next_frame:
            self.activity.add(frame)
            self.screen.add_frame(frame)
            self._next_frame = math.floor(frame.time * self._frame_rate) + 1
        if self.text is not None:
            self.text.add_frame(frame)


def extract_features(
    request: Request,
    info: MediaInfo,
    settings: StepsSettings,
    options: VisualOptions = VisualOptions(),
) -> VisualFeatures:
    """Extract the visual features of a video.

    Args:
        request: the video, or a part of it.
        info: streams and duration of the video file.
        settings: settings of all stages. Only `media` and `vision` are used.
        options: what is measured, and by which network.

    Returns empty features without a picture or a backbone. If the settings name a file of features,
    these are returned instead of a network's.
    """
    vision = settings.vision
    if not info.has_picture:
        return VisualFeatures(warnings=() if request.is_captions_only else (NO_PICTURE,))
    if vision.backbone == "none":
        return VisualFeatures()

    # what looks at the frames
    backbone = options.backbone or load_backbone(vision)
    ready = None
    if isinstance(backbone, PrecomputedBackbone):
        ready = crop_features(backbone.features(request.id), request.part)
    if options.key_frames and ready is None:
        try:
            return _extract_from_key_frames(request, info, settings, options, backbone)
        except SparseKeyFramesError as reason:
            log.info("%s: every second is looked at", reason)
    encoder = VideoEncoder(
        backbone, rate=vision.rate, batch=current_device().scale_batch_size(vision.batch)
    )
    motion = MotionMeter(vision) if options.measures_motion else None
    reader = MediaReader(
        request.path,
        # One decoding serves both, so the rate is the higher of the two.
        frame_rate=vision.rate * max(FRAMES_PER_ROW, frames_per_row(backbone)),
        frame_size=vision.frame_size,
        sound=False,
        settings=settings.media,
        part=request.part,
    )

    # every frame, once, decoded in advance by another thread if that is wanted
    ahead = options.prefetched_frames
    # the CPU decodes about a batch while a GPU encodes one
    if current_device().device_type != "cpu":
        ahead = current_device().scale_batch_size(PREFETCHED_FRAMES * FRAMES_PER_ROW)
    stream = read_ahead(reader, ahead) if ahead else iter(reader)
    with contextlib.closing(stream):
        for frame in with_progress(
            stream, Frame, "looking", info.duration, options.progress, options.stop_event
        ):
            if motion is not None:
                motion.add(frame)
            if ready is None:
                encoder.add(frame)
    features = ready or encoder.finish()

    # what came of it
    warnings = [*reader.warnings]
    if encoder.repeated:
        warnings.append(
            f"{len(encoder.repeated)} seconds have no picture; the one before is used for them"
        )
    visual = VisualFeatures(features, backbone=backbone, end=reader.end, warnings=(*warnings,))
    # Without motion, only rows were asked for.
    if motion is None:
        return visual
    activity = motion.activity.finish()
    on_screen = motion.text.finish() if motion.text is not None else ()
    warnings += motion.warnings
    screen = None
    if options.reads_screen:
        from stepline.pipeline.screen import read_screen_recording

        screen = read_screen_recording(request, info, settings, motion.screen.finish())
    return replace(
        visual, activity=activity, on_screen=on_screen, screen=screen, warnings=(*warnings,)
    )


def _extract_from_key_frames(
    request: Request,
    info: MediaInfo,
    settings: StepsSettings,
    options: VisualOptions,
    backbone: Backbone,
) -> VisualFeatures:
    """Extract the visual features of a video from its key frames, each of which holds until the next.

    The arguments are those of `extract_features`, with the loaded backbone. Raises SparseKeyFramesError
    if the key frames are too few.
    """
    from stepline.grounding.screens.changes import ScreenMeter, median_statistics
    from stepline.pipeline.screen import read_screen_recording

    vision = settings.vision
    first_rows: list[int] = []  # of each key frame
    values = []
    activity = KeyFrameMeter(rate=vision.rate)
    text, warnings = start_text_meter(vision)
    pairs = []
    reader = KeyFrameReader(
        request.path, frame_size=vision.frame_size, settings=settings.media, part=request.part
    )
    with contextlib.closing(read_ahead(reader, PREFETCHED_FRAMES)) as stream:
        for key in with_progress(
            stream, KeyFrame, "looking", info.duration, options.progress, options.stop_event
        ):
            activity.add_key(key)
            if text is not None:
                text.add_key(key)
            first_rows.append(int(key.time * vision.rate))
            values.append(backbone.encode_images(key.image[None])[0])
            if key.later is not None:
                pair = ScreenMeter()
                pair.add_frame(Frame(key.time, key.image))
                pair.add_frame(Frame(key.time, key.later))
                pairs.append(pair.finish())
    screen = None
    if options.reads_screen:
        screen = read_screen_recording(request, info, settings, median_statistics(pairs))
    # the features of a key frame hold until the next
    seconds = math.ceil(key.end * vision.rate)
    last = np.searchsorted(first_rows, np.arange(seconds), side="right") - 1
    return VisualFeatures(
        FeatureSequence(np.stack(values)[np.maximum(last, 0)], vision.rate, backbone.name),
        activity.finish(),
        backbone,
        reader.end,
        warnings,
        text.finish() if text is not None else (),
        screen,
    )
