"""What ready features show, as a record: `stepline describe` without a video."""

from pathlib import Path

from stepline.describing import described, load_describer
from stepline.errors import SettingsError
from stepline.records import Record, Transcript, Video
from stepline.request import Request, StepsSettings, fingerprint


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
