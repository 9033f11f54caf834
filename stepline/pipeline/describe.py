"""Steps told from the pictures, where speech tells none: puts features, speech and the trained network together.

What ready features show, as a record: `stepline describe` without a video.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.errors import SettingsError
from stepline.pipeline.request import Request, StepsSettings, fingerprint
from stepline.procx.settings import DescribeSettings
from stepline.records import Dropped, FeatureSequence, Record, Step, Transcript, Video
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from stepline.procx.checkpoint import LoadedProcx

SEEN_ALONE = "speech tells no step; the steps are told from the pictures, by a trained network"


@dataclass(frozen=True)
class Descriptions:
    """What the pictures tell. steps: those of the record; captions: beside steps that speech tells.

    told: which network spoke, None where none did.
    """

    steps: tuple[Step, ...] = ()
    captions: tuple[Step, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    told: JsonValue = None


def load_describer(settings: DescribeSettings, vision: VisionSettings) -> "LoadedProcx | None":
    """Return the network that the settings name, if any; before the minutes of work that a wrong one costs."""
    if settings.path is None:
        if settings.when == "alone":
            raise SettingsError("procx.path is not set; give a network that `stepline train procx` wrote")
        return None
    from stepline.procx.checkpoint import load_model

    loaded = load_model(settings.path)
    if vision.backbone == "none":
        raise SettingsError(f"{settings.path}: a network that describes needs pictures; take out vision.backbone=none")
    loaded.check_space(vision.backbone, vision.rate)
    loaded.check_scale(unit=vision.backbone != "precomputed" or vision.unit)
    if settings.speech:
        loaded.check_speech()
    return loaded


def described(
    loaded: "LoadedProcx | None",
    features: FeatureSequence | None,
    transcript: Transcript,
    written: Sequence[Step],
    settings: DescribeSettings,
    duration: float,
) -> Descriptions:
    """Return what the pictures of a video tell; nothing where there is no network, no picture, or no need.

    written: the steps that speech tells. Raises ModelError where the features are not the network's.
    """
    if loaded is None or features is None or (written and settings.when == "speechless"):
        return Descriptions()
    from stepline.procx.inference import describe

    loaded.check(features)
    around = loaded.trained.around or 0.0
    found = describe(
        loaded.model, loaded.vocabulary, features, settings, duration=duration, said=transcript.sentences, around=around
    )
    told: JsonValue = {"network": loaded.sha256, "speech": settings.speech}
    if written:
        return Descriptions(captions=found.steps, dropped=found.dropped, told=told)
    notes = () if settings.when == "alone" else (SEEN_ALONE,)
    return Descriptions(found.steps, dropped=found.dropped, notes=notes, told=told)


def are_features(source: Path) -> bool:
    """Tell whether a file is named as one of ready features is."""
    from stepline.vision.precomputed import SUFFIXES

    return source.name.lower().endswith(SUFFIXES)


def describe_features(request: Request, settings: StepsSettings) -> Record:
    """Return a record with the steps that a file of ready features shows; captions stand for what is said.

    Rows are scaled to length 1 only for a network that learned from such. Raises ModelError where they are not the
    network's, StoreError or ShapeError where they cannot be read.
    """
    from stepline.vision import read_precomputed

    vision = settings.vision.model_copy(update={"backbone": "precomputed", "path": request.path, "unit": False})
    loaded = load_describer(settings.procx, vision)
    if loaded is None:
        raise SettingsError("procx.path is not set; give a network that `stepline train procx` wrote, with --model")
    settings = settings.model_copy(update={"vision": vision.model_copy(update={"unit": loaded.trained.unit})})
    features = read_precomputed(request.path, rate=settings.vision.rate, unit=settings.vision.unit)
    transcript = _spoken(request, settings)
    found = described(loaded, features, transcript, (), settings.procx, features.duration)
    return Record(
        id=request.id,
        video=Video(id=request.id, path=str(request.path.absolute()), duration=round(features.duration, 3)),
        transcript=transcript,
        steps=found.steps,
        dropped=found.dropped,
        settings=fingerprint(request, settings),
        models={"vision": features.backbone, "describer": found.told},
    )


def _spoken(request: Request, settings: StepsSettings) -> Transcript:
    """Return what captions say; features have no sound."""
    if request.captions is None or not settings.procx.speech:
        return Transcript()
    from stepline.asr import read_captions

    return read_captions(request.captions, video_id=request.id, settings=settings.asr).transcript
