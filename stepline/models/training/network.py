"""One specification for the file of every trained network (NaSVA's aligner, ProcX, WYS2's
detector), and the checks of its inputs.

    NETWORK = NetworkFileFormat(kind="stepline.nasva.aligner", ..., parse=_parse, build=_build)
    NETWORK.write(path, network, {"space": ...})        # the settings are added to the header
    header, network = NETWORK.load(path)                # in evaluation mode

A network is one safetensors file. Its metadata hold a JSON object under "stepline": kind, version,
settings, and what a system adds (the feature space, a vocabulary). Weights are read as tensors and
never unpickled. Every fault of a file is a ModelError of one line: another kind or version, a
damaged file, weights of other names or shapes, NaN.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from safetensors import SafetensorError, safe_open

from stepline.errors import ModelError, first_line
from stepline.files.atomic_files import atomic_path
from stepline.limits import parse_json
from stepline.models.training.settings import CHECKPOINT_FILE
from stepline.networks.device import current_device
from stepline.networks.state_dict import describe_wrong_weights
from stepline.records import FeatureSequence
from stepline.settings import Settings, without_removed_settings

if TYPE_CHECKING:
    from torch import Tensor, nn

H = TypeVar("H")  # what a header holds
N = TypeVar("N", bound="nn.Module")
T = TypeVar("T", bound=Settings)

Header = dict[str, Any]
Weights: TypeAlias = "Mapping[str, Tensor]"

# backbones of features that do not say whose they are: their owner answers
UNKNOWN_SOURCES = ("", "unknown", "precomputed")


@dataclass(frozen=True)
class NetworkFileFormat(Generic[H, N]):
    """The file format of one kind of trained network.

    Attributes:
        kind: name of the kind in the header. Files of another kind are refused.
        version: version of the weights' names, in the header. Files of another version are refused.
            None: files have no version.
        title: name of the network in error messages, such as "a ProcX network".
        command: command that writes such files, for error messages.
        file_names: file names to look for in a folder, in this order. The last one is that of the
            final network.
        parse: turns the JSON header into the argument of `build`. If it raises an error, the file is
            refused.
        build: makes a network with fresh weights from the parsed header.
        removed_weights: prefixes of names of weights that only earlier versions had. These weights
            are not read.
    """

    kind: str
    version: int | None
    title: str
    command: str
    file_names: tuple[str, ...]
    parse: Callable[[Header], H]
    build: Callable[[H], N]
    removed_weights: tuple[str, ...] = ()

    def write(self, path: Path, network: N, header: Header) -> None:
        """Write a network as float32 weights. A killed process leaves the old file or the new one,
        never a part. Raises StoreError when the disk refuses.

        Args:
            path: the file.
            network: the network.
            header: entries of the header besides kind, version and settings.
        """
        from safetensors.torch import save_file

        weights = network.state_dict()
        # Sorted, so that the same network gives the same bytes.
        tensors = {}
        for key in sorted(weights):
            weight = weights[key].detach().cpu()
            if weight.is_floating_point():
                weight = weight.float()
            tensors[key] = weight.contiguous()
        whole: Header = {"kind": self.kind, "settings": network.settings.model_dump(mode="json")}
        if self.version is not None:
            whole["version"] = self.version
        metadata = {"stepline": json.dumps(whole | header, sort_keys=True)}
        with atomic_path(path) as partial:
            save_file(tensors, partial, metadata=metadata)

    def find_file(self, path: Path) -> Path:
        """Return the file of a network: the path itself, the first of `file_names` in a folder, or
        the only network in it.

        Raises ModelError if there is no network, or if the training run in the folder is not
        finished.
        """
        if path.is_file():
            return path
        for name in self.file_names:
            if (path / name).is_file():
                return path / name
        if (path / CHECKPOINT_FILE).is_file():
            raise ModelError(f"{path}: the run is not finished; run {self.command} again to end it")
        # A single network under any other name is taken too.
        fault = "no such file"
        if path.is_dir():
            fault = f"holds none of {', '.join(self.file_names)}"
            others = sorted(path.glob("*.safetensors"))
            if len(others) == 1:
                return others[0]
        raise ModelError(
            f"{path}: {fault}; give the .safetensors file of a network that {self.command} wrote"
        )

    def load(self, path: Path) -> tuple[H, N]:
        """Return the parsed header and the network of a file, on the process's device, in
        evaluation mode. Raises ModelError, naming what does not fit."""
        try:
            with safe_open(path, framework="pt") as file:
                header = self._parse_header(file)
                weights = read_tensors(file)
        except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
            raise ModelError(
                f"{path}: not {self.title} of Stepline ({first_line(error)}); give one that "
                f"{self.command} wrote"
            ) from error
        for name in [name for name in weights if name.startswith(self.removed_weights)]:
            del weights[name]
        # Checked before the network takes memory.
        check_network_weights(lambda: self.build(header), weights, path)
        network = self.build(header)
        network.load_state_dict(weights)
        network.to(current_device().name).eval()
        return header, network

    def _parse_header(self, file: Any) -> H:
        header: Header = parse_json((file.metadata() or {}).get("stepline", "{}"))
        if not isinstance(header, dict):
            raise ValueError("its header is not an object")
        if header.get("kind") != self.kind or header.get("version") != self.version:
            raise ValueError(f"kind {header.get('kind')!r}, version {header.get('version')!r}")
        return self.parse(header)


def parse_settings(settings: type[T], tree: Mapping[str, Any]) -> T:
    """Return settings of a class from their JSON values in a header. They are validated like those
    of a settings file."""
    return settings.model_validate_json(json.dumps(without_removed_settings(tree)))


def read_tensors(file: Any) -> dict[str, Any]:
    """Return the tensors of an open safetensors file by name."""
    return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)


def check_network_weights(build: "Callable[[], nn.Module]", weights: Weights, path: Path) -> None:
    """Raise ModelError unless weights have the names and shapes of the network that `build` makes,
    and finite values.

    Args:
        build: makes the network. Only the shapes of its weights are used.
        weights: tensors by name.
        path: file of the weights, for the message.
    """
    import torch

    with torch.device("meta"):  # shapes only: a network that is refused takes no memory
        shapes = {key: tuple(value.shape) for key, value in build().state_dict().items()}
    arrays = {key: weight.float().numpy() for key, weight in weights.items()}
    if faults := describe_wrong_weights(arrays, shapes):
        raise ModelError(f"{path}: not these weights: {faults}; give the right file")


@dataclass(frozen=True)
class FeatureSpace:
    """The features that a network was trained on: which networks made them, and how often.

    Attributes:
        video: name of the backbone of the video features, such as "s3d". "": not known.
        text: name of the text encoder for `text.embed`, such as "minilm", or a backbone with its own
            text encoder, such as "clip". "": not known.
        rate: video feature rows per second. None: not known.
    """

    video: str = ""
    text: str = ""
    rate: float | None = 1.0


@dataclass(frozen=True)
class LoadedNetwork:
    """A network from a file, with checks of the features that it is given. Each check raises
    ModelError.

    Attributes:
        path: the network's file.
        sha256: SHA-256 of the file, in hexadecimal.
        space: the features that the network was trained on.
        width: width of the video feature rows that the network takes.
        accepts_normalized_rows: True if feature rows may be scaled to length 1.
    """

    path: Path
    sha256: str
    space: FeatureSpace
    width: int
    accepts_normalized_rows: bool

    def check_features(self, features: FeatureSequence, text_encoder: str = "") -> None:
        """Check that features have the network's width, backbone and rate, and that texts have its
        encoder.

        Args:
            features: feature rows of a video.
            text_encoder: name of the encoder of the text vectors. "": not known, which passes.
        """
        self.check_width(features.backbone, features.values.shape[1])
        self.check_space(features.backbone, text_encoder, rate=features.rate)

    def check_width(self, backbone: str, width: int | None) -> None:
        """Check that feature rows have the network's width.

        Args:
            backbone: name of the backbone of the rows, for the message.
            width: width of the rows. None: not known, which passes.
        """
        if width not in (None, self.width):
            raise ModelError(
                f"{self.path}: trained on features {self.width} wide, {backbone} features are {width} "
                f"wide; {self._cure}"
            )

    def check_space(self, backbone: str, text_encoder: str = "", *, rate: float) -> None:
        """Check that features come from the network's backbone, text encoder and rate.

        Args:
            backbone: name of the backbone of the video features. An unknown one passes.
            text_encoder: name of the encoder of the text vectors. An unknown one passes.
            rate: feature rows per second.
        """
        space = self.space
        pairs = (("features", space.video, backbone), ("texts", space.text, text_encoder))
        for what, own, given in pairs:
            if own != given and {own, given}.isdisjoint(UNKNOWN_SOURCES):
                raise ModelError(
                    f"{self.path}: trained on {what} of {own!r}, given are {given!r}; {self._cure}"
                )
        if space.rate is not None and space.rate != rate:
            raise ModelError(
                f"{self.path}: trained at {space.rate:g} rows per second, given are {rate:g}; set "
                f"vision.rate={space.rate:g}"
            )

    def check_row_scale(self, *, unit: bool) -> None:
        """Check that the network accepts the scale of feature rows. unit: True if the rows are
        scaled to length 1."""
        if unit and not self.accepts_normalized_rows:
            raise ModelError(
                f"{self.path}: trained on feature rows as they are, not on rows of length 1; set "
                "vision.unit=false, with internvideo or ready features"
            )

    @property
    def _cure(self) -> str:
        names = ", texts ".join(name for name in (self.space.video, self.space.text) if name)
        own = f" ({names})" if names else ""
        return f"use the backbone that it was trained with{own}, or another network"
