"""Steps that ProcX describes from the pictures of a video, or from a file of features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.errors import SettingsError
from stepline.features.files import read_feature_file
from stepline.models.procx.settings import DescribeSettings
from stepline.networks.device import one_torch_thread
from stepline.pipeline.networks import Networks, describe_inputs, load_describer
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import FeatureSequence, Record, Rejected, Step, Transcript, Video

if TYPE_CHECKING:
    from stepline.models.procx.checkpoint import LoadedProcx as LoadedDescriber

DESCRIBED_BY_NETWORK = (
    "speech gives no step; a trained network describes the steps from the pictures"
)
DESCRIBED_BY_VLM = "no one speaks; a vision-language model describes the steps from the pictures"


@dataclass(frozen=True)
class Descriptions:
    """Steps that a network described from the pictures.

    Attributes:
        steps: descriptions that become the steps, because speech gives none.
        captions: descriptions in addition to the steps that speech gives.
        dropped: descriptions that were left out, each with the reason.
        notes: warnings that the record will contain.
        network: {"network": sha256 of the network's file, "speech": False}, for the record. None if no
            network was used.
    """

    steps: tuple[Step, ...] = ()
    captions: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    network: JsonValue = None


def describe_by_network(
    describer: "LoadedDescriber | None",
    features: FeatureSequence | None,
    written: Sequence[Step],
    settings: DescribeSettings,
    duration: float,
) -> Descriptions:
    """Return what a ProcX network describes in the pictures: the steps of the video if speech gives none,
    else captions next to the spoken steps.

    They are empty without network or features, and with spoken steps if `when` is "speechless".

    Args:
        describer: the network, or None.
        features: (T rows, D) features of the pictures over time, or None.
        written: the steps that were written from the speech.
        settings: when and how the network describes.
        duration: duration of the video in seconds.

    Raises ModelError if the backbone of the features
    is not the one for which the network was trained.
    """
    if describer is None or features is None or (written and settings.when == "speechless"):
        return Descriptions()
    from stepline.models.procx.inference import describe

    # what the network says
    describer.check_features(features)
    with one_torch_thread():
        description = describe(
            describer.model, describer.vocabulary, features, settings, duration=duration
        )

    # next to steps that speech names, they are captions
    network: JsonValue = {"network": describer.sha256, "speech": False}
    if written:
        return Descriptions(
            captions=description.steps, dropped=description.dropped, network=network
        )
    notes = () if settings.when == "alone" else (DESCRIBED_BY_NETWORK,)
    return Descriptions(
        steps=description.steps, dropped=description.dropped, notes=notes, network=network
    )


def describe_features(request: Request, settings: StepsSettings) -> Record:
    """Return a record with the steps that a network describes from a file of video features.

    Rows are scaled to length 1 only for a network that was trained on such rows.

    Args:
        request: its path is the file of features.
        settings: settings of all stages. They name the network.

    Raises ModelError if the network was trained on another kind of features. Raises StoreError or
    ShapeError if the features cannot be read.
    """
    # The network, and settings that suit it: rows are scaled as it learned them.
    vision = settings.vision.model_copy(
        update={"backbone": "precomputed", "path": request.path, "unit": False}
    )
    describer = load_describer(settings.procx, vision)
    if describer is None:
        raise SettingsError(
            "procx.path is not set; give a network that `stepline train procx` wrote, with --describe"
        )
    vision = vision.model_copy(update={"unit": describer.training_features.unit})
    settings = settings.model_copy(update={"vision": vision})

    # what it reads
    features = read_feature_file(request.path, rate=settings.vision.rate, unit=settings.vision.unit)

    # what it describes
    descriptions = describe_by_network(describer, features, (), settings.procx, features.duration)
    video = Video(
        id=request.id, path=str(request.path.absolute()), duration=round(features.duration, 3)
    )
    return Record(
        id=request.id,
        video=video,
        transcript=Transcript(),
        steps=descriptions.steps,
        dropped=descriptions.dropped,
        settings=describe_inputs(request, settings, Networks(describer=describer)),
        models={"vision": features.backbone, "describer": descriptions.network},
    )
