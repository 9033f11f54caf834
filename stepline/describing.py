"""Steps told from the pictures, where speech tells none: puts features, speech and the trained network together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.errors import SettingsError
from stepline.procx.describe_settings import DescribeSettings
from stepline.records import Dropped, FeatureSequence, Step, Transcript
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from stepline.procx.checkpoint import Loaded

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


def load_describer(settings: DescribeSettings, vision: VisionSettings) -> "Loaded | None":
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
    loaded: "Loaded | None",
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
    from stepline.procx.describe import describe

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
