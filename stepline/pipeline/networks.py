"""The trained networks that the settings name: each is found, checked and read before minutes of other work.

The sha256 of their files is part of the fingerprint, which says what a result was made from.
"""

import contextlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import JsonValue

from stepline.errors import SettingsError
from stepline.features.files import find_feature_file
from stepline.files.digests import file_digest, sha256
from stepline.models.procx.settings import DescribeSettings
from stepline.models.wys2.settings import JudgeSettings
from stepline.networks.device import Device, current_device
from stepline.pipeline.request import Request, StepsSettings
from stepline.plugins import Kind, plugin_identities
from stepline.speech.settings import AsrSettings
from stepline.speech.whisper import Models
from stepline.vision import Backbone, PrecomputedBackbone, load_backbone
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from stepline.models.nasva.checkpoint import LoadedAligner
    from stepline.models.procx.checkpoint import LoadedProcx as LoadedDescriber
    from stepline.models.training.network import LoadedNetwork
    from stepline.models.wys2.predict import LoadedDetector

N = TypeVar("N", bound="LoadedNetwork")

DEFAULT_BACKBONE = "conse"

MINILM_WIDTH = 384  # of MiniLM's vectors, and so of ConSE's rows


@dataclass(frozen=True)
class Networks:
    """The trained networks that the settings name. A field is None if the settings name no network.

    Attributes:
        backbone: sees the pictures. Also None for the default one, which every video loads while its
            speech is recognised.
        aligner: finds when steps are shown (NaSVA).
        detector: decides whether the picture shows what is said (WYS2).
        describer: finds and describes steps without speech (ProcX).
        recognisers: Whisper models that videos share. None: each video loads and frees its models.
        backbone_files: files and folders of the backbone. Empty for the default one.
    """

    backbone: "Backbone | None" = None
    aligner: "LoadedAligner | None" = None
    detector: "LoadedDetector | None" = None
    describer: "LoadedDescriber | None" = None
    recognisers: "Models | None" = field(default=None, compare=False)
    backbone_files: tuple[Path, ...] = ()

    @property
    def on_features(self) -> "tuple[LoadedNetwork, ...]":
        """The networks that read the rows of the backbone."""
        detector = self.detector
        if detector is not None and detector.network.settings.video == "s3d":
            detector = None  # it decodes the frames itself
        networks = (self.aligner, detector, self.describer)
        return tuple(network for network in networks if network is not None)

    @cached_property
    def digests(self) -> dict[str, JsonValue]:
        """The sha256 of each network's files, as the settings of a record hold them."""
        from stepline.models.nasva.calibration import calibration_path

        digests: dict[str, JsonValue] = {}
        for name, network in (("aligner", self.aligner), ("detector", self.detector)):
            digests[name] = None
            if network is not None:
                # A calibration next to a network changes its scores, so its digest counts as well.
                digests[name] = [network.sha256, _file_digest(calibration_path(network.path))]
        digests["describer"] = None if self.describer is None else self.describer.sha256
        if self.backbone_files:
            digests["backbone"] = [file_digest(path) for path in self.backbone_files]
        return digests


@lru_cache(maxsize=1)
def shared_recognisers(settings: AsrSettings, device: Device) -> Models:  # noqa: ARG001
    """Return a cache of Whisper's models that several videos share.

    It is emptied when the settings or the device change.
    """
    return {}


def load_networks(settings: StepsSettings, *, several: bool = False) -> Networks:
    """Load every trained network that the settings name.

    Args:
        settings: settings of all stages of finding steps.
        several: whether several videos share the networks. Then they also share Whisper models.

    Raises ModelError if a network cannot be read. Raises ModelError or SettingsError if it was
    trained on other features than the settings make.
    """
    # Cheap checks come first: a wrong server ends the run before networks are read.
    check_vlm(settings.vision, ask=True)
    vision = settings.vision
    backbone = None
    backbone_files: tuple[Path, ...] = ()
    if vision.backbone not in ("none", DEFAULT_BACKBONE):
        backbone = load_backbone(vision)
        # Ready features are a file per video, which `fingerprint` names.
        if vision.backbone != "precomputed":
            backbone_files = tuple(filter(None, (vision.path, vision.dictionary)))
    networks = Networks(
        backbone,
        load_aligner(settings),
        load_judge_detector(settings.judge, vision),
        load_describer(settings.procx, vision),
        shared_recognisers(settings.asr, current_device()) if several else None,
        backbone_files,
    )
    width = _row_width(vision, backbone)
    for network in networks.on_features:
        network.check_width(vision.backbone, width)
    if networks.aligner is not None and width is not None:
        texts = width if backbone is None else backbone.encode_texts(["a"]).shape[1]
        networks.aligner.check_text_width(texts)
    return networks


def _row_width(vision: VisionSettings, backbone: "Backbone | None") -> int | None:
    """Return the width of the feature rows that the settings make. None if it is not known yet."""
    if vision.backbone == "precomputed":
        return None  # `check_ready_features` reads the rows of the video
    if backbone is not None:
        return backbone.dim
    return MINILM_WIDTH if vision.text_model == "minilm" else None


def check_ready_features(request: Request, settings: StepsSettings, networks: Networks) -> None:
    """Raise an error if the ready features of a video or of its lines are missing or do not fit.

    With any other backbone nothing is checked.
    """
    if settings.vision.backbone != "precomputed":
        return

    backbone = networks.backbone
    if not isinstance(backbone, PrecomputedBackbone):
        return
    features = backbone.features(request.id)
    for network in networks.on_features:
        network.check_features(features)
    if settings.procx.when == "alone":
        return
    if not request.texts:
        raise SettingsError(
            "vision.backbone=precomputed: no vectors of steps that are written from the speech; "
            "give your lines with --texts, and their vectors as vision.texts"
        )
    backbone.encode_texts(request.texts)


def check_vlm(vision: VisionSettings, *, ask: bool = False) -> None:
    """Raise an error if the vision-language model of the settings cannot be used.

    Args:
        vision: settings of the vision stage.
        ask: whether a server is shown two test pictures, unless it answered that before.
    """
    vlm = vision.vlm
    if not vlm.named:
        return
    from stepline.grounding.vision_language.questions import VisionRequests
    from stepline.llm.availability import check_available
    from stepline.llm.servers import open_server

    # Questions are about whole seconds, and a row has to be one.
    if vision.rate != 1.0:
        raise SettingsError(
            f"vision.rate={vision.rate}: vision.vlm needs one row per second; set it to 1"
        )
    if vlm.gguf is not None:
        check_available(vlm)
        return
    with contextlib.closing(open_server(vlm)) as server:
        if ask and not vlm.dry_run:
            VisionRequests.start(server, vlm).try_pictures()


def load_aligner(settings: StepsSettings) -> "LoadedAligner | None":
    """Return the network that finds when steps are shown. None if the settings name none."""
    path, vision = settings.nasva.aligner.path, settings.vision
    if path is None:
        if vision.backbone == "s3d-mixed5c" and settings.procx.when != "alone":
            raise SettingsError(
                f"vision.backbone={vision.backbone}: its rows share no space with texts; use s3d, "
                "or give a network that was trained on them"
            )
        return None
    from stepline.models.nasva.checkpoint import load_aligner

    return _require_features(load_aligner(path), vision, vision.text_space)


def _require_features(network: N, vision: VisionSettings, *text_space: str) -> N:
    """Return the network, if it was trained on the features that the settings make.

    Args:
        network: the network.
        vision: settings of the backbone that makes the features.
        text_space: name of the text encoder whose vectors the network takes. Not given for a
            network that takes no texts.

    Raises ModelError or SettingsError for a network of other features.
    """
    if vision.backbone == "none":
        raise SettingsError(
            f"{network.path}: a trained network needs pictures; take out vision.backbone=none"
        )
    network.check_space(vision.backbone, *text_space, rate=vision.rate)
    network.check_row_scale(unit=vision.unit_rows)
    return network


def load_judge_detector(settings: JudgeSettings, vision: VisionSettings) -> "LoadedDetector | None":
    """Return the detector of visual narrations. None if the settings name none."""
    if settings.detector is None:
        return None
    from stepline.models.wys2.predict import check_backbone, load_detector

    network = load_detector(settings.detector)
    check_backbone(network, vision.backbone)
    return network


def load_describer(settings: DescribeSettings, vision: VisionSettings) -> "LoadedDescriber | None":
    """Return the network that describes steps.

    None if the settings name none and none is needed.
    """
    if settings.path is None:
        if settings.when == "alone":
            raise SettingsError(
                "procx.path is not set; give a network that `stepline train procx` wrote"
            )
        return None
    from stepline.models.procx.checkpoint import load_model

    return _require_features(load_model(settings.path), vision)


def describe_inputs(
    request: Request, settings: StepsSettings, networks: Networks
) -> dict[str, JsonValue]:
    """Return all inputs that decide a result, except the video's bytes, as JSON values."""
    # files that decide the result, by their digests
    vision = settings.vision
    features: JsonValue = None
    if vision.backbone == "precomputed" and vision.path is not None:
        video = vision.path
        if vision.path.is_dir():
            video = find_feature_file(vision.path, request.id)
        features = [_file_digest(video), _file_digest(vision.texts)]
    # What the user gave: files by their digest, the rest as it is.
    inputs: dict[str, JsonValue] = {
        "captions": _file_digest(request.captions),
        "texts": [*request.texts],
        "features": features,
        **vision.crop,
    }
    if request.part is not None:
        inputs["part"] = [request.part.start, request.part.end]
    if request.graph is not None:
        inputs["graph"] = request.graph.model_dump(mode="json")
    if request.title is not None:
        inputs["title"] = request.title
    # A plugin's code decides the result as well.
    named: dict[Kind, str] = {
        "recognisers": settings.asr.recogniser,
        "writers": settings.writing.writer,
    }
    plugins = plugin_identities({**named, "backbones": vision.backbone})
    identities: dict[str, JsonValue] = {"plugins": {**plugins}} if plugins else {}
    # how a video came decides nothing
    made_from = settings.model_dump(mode="json", exclude={"links"})
    return {**made_from, "inputs": {**inputs, **identities, **networks.digests}}


def _file_digest(file: Path | None) -> str | None:
    """Return the sha256 of a user's file. None if there is none, which another step refuses."""
    if file is None or not file.is_file():
        return None
    try:
        return sha256(file)
    except OSError as error:
        raise SettingsError(
            f"{file}: cannot be read ({error.strerror}); give a file that can"
        ) from error
