"""What a process that does the main job on several videos and its parent say to each other."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepline.networks.device import ComputeType
from stepline.pipeline.batch import VideoResult
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import StepsSettings

LOGGER_NAMES = ("", "faster_whisper")  # whose levels a worker has from the process that started it


@dataclass(frozen=True)
class VideoWorkerSetup:
    """What the main job does with every video.

    request_parts: what goes to `VideoSource.open`. device, compute: as of `set_device`.
    log_levels: of `LOGGER_NAMES`.
    """

    settings: StepsSettings
    output: OutputOptions
    request_parts: Mapping[str, Any]
    device: str = "auto"
    compute: ComputeType = "auto"
    log_levels: tuple[int, ...] = (logging.WARNING, logging.ERROR)


@dataclass(frozen=True)
class VideoWorkerReady:
    """A worker has started and loaded the networks that the settings name."""


@dataclass(frozen=True)
class VideoOutcome:
    """What became of a video: its result, or the error that ended it.

    label: what messages call the video.
    """

    label: str
    result: VideoResult | None = None
    error: Exception | None = None
