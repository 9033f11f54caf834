"""What the main job is asked: the settings of every stage, one video, and what decides the result."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from stepline.asr.settings import AsrSettings
from stepline.errors import SettingsError
from stepline.media.settings import MediaSettings
from stepline.nasva.network_settings import NasvaSettings
from stepline.procx.settings import DescribeSettings
from stepline.settings import Settings
from stepline.vision.settings import VisionSettings
from stepline.weights import sha256
from stepline.writing.settings import WritingSettings
from stepline.wys2.settings import JudgeSettings


class StepsSettings(Settings):
    """Every setting of the main job, one section a package."""

    media: MediaSettings = MediaSettings()
    asr: AsrSettings = AsrSettings()
    writing: WritingSettings = WritingSettings()
    vision: VisionSettings = VisionSettings()
    nasva: NasvaSettings = NasvaSettings()
    judge: JudgeSettings = JudgeSettings()
    procx: DescribeSettings = DescribeSettings()


@dataclass(frozen=True)
class Request:
    """One video and what the user gives with it.

    id: keys the outputs. captions: a file that stands for recognition. texts: the user's own lines to ground,
    instead of steps written from the speech.
    """

    path: Path
    id: str
    captions: Path | None = None
    texts: tuple[str, ...] = ()


def fingerprint(request: Request, settings: StepsSettings) -> dict[str, JsonValue]:
    """Return everything that decides the result beside the video's own bytes, as plain values."""
    inputs: dict[str, JsonValue] = {
        "captions": _digest(request.captions),
        "texts": list(request.texts),
        "features": _features(request, settings.vision),
        "aligner": _aligner(settings.nasva.aligner.path),
        "detector": _detector(settings.judge.detector),
        "describer": _describer(settings.procx.path),
    }
    return {**settings.model_dump(mode="json"), "inputs": inputs}


def _features(request: Request, vision: VisionSettings) -> JsonValue:
    """Return the sha256 of the ready features that stand for a backbone, those of the video and of the texts."""
    if vision.backbone != "precomputed" or vision.path is None:
        return None
    from stepline.vision.precomputed import find_precomputed

    video = find_precomputed(vision.path, request.id) if vision.path.is_dir() else vision.path
    return [_digest(video), _digest(vision.texts)]


def _aligner(path: Path | None) -> JsonValue:
    """Return the sha256 of the trained network and of its calibration. Raises ModelError where there is no network."""
    if path is None:
        return None
    from stepline.nasva.calibration import calibration_path
    from stepline.nasva.checkpoint import find_aligner

    file = find_aligner(path)
    return [_digest(file), _digest(calibration_path(file))]


def _detector(path: Path | None) -> JsonValue:
    """Return the sha256 of the trained detector and of its calibration."""
    if path is None:
        return None
    from stepline.wys2.predict import calibration_path, find_detector

    file = find_detector(path)
    return [_digest(file), _digest(calibration_path(file))]


def _describer(path: Path | None) -> JsonValue:
    """Return the sha256 of the network that describes. Raises ModelError where there is none."""
    if path is None:
        return None
    from stepline.procx.checkpoint import find_model

    return _digest(find_model(path))


def _digest(file: Path | None) -> str | None:
    """Return the sha256 of a file that the user gave; None where it is not there, which its reader will tell."""
    if file is None or not file.is_file():
        return None
    try:
        return sha256(file)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror}); give a file that can") from error
