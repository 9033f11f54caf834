"""A trained network on disk: one safetensors file that carries its settings, so that neither goes
alone.

The file's metadata hold one JSON object under "stepline": kind, version, settings, and what a
system adds (whose features the network takes, its vocabulary). Weights are read as tensors and
never unpickled. What is wrong with a file is a ModelError of one line. That is another kind or
version, a broken file, weights of other names or shapes, or NaN.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from stepline.errors import ModelError, first_line
from stepline.files.atomic_files import atomic_path
from stepline.limits import parse_json
from stepline.models.training.settings import CHECKPOINT_FILE
from stepline.networks.device import current_device
from stepline.records import FeatureSequence

if TYPE_CHECKING:
    from torch import Tensor, nn

H = TypeVar("H")
N = TypeVar("N", bound="nn.Module")

Header: TypeAlias = dict[str, Any]
Weights: TypeAlias = "Mapping[str, Tensor]"

MAX_NAMED_FAULTS = 3  # wrong weights that an error names
# backbones of features that do not say whose they are: their owner answers
UNKNOWN_SOURCES = ("", "unknown", "precomputed")


@dataclass(frozen=True)
class NetworkFile:
    """How the networks of one system are stored on disk.

    kind, version: what the header says. A reader refuses any other. version counts changes of the
    weights' names, and is None where files never had one.
    title, writer: what errors call such a network, and what writes it.
    names: the files that a folder is searched for, in this order.
    """

    kind: str
    version: int | None
    title: str
    writer: str
    names: tuple[str, ...]

    def write(self, path: Path, weights: Weights, header: Header) -> None:
        """Write weights, float32, and the header, whole or not at all. Raises StoreError when the
        disk refuses."""
        from safetensors.torch import save_file

        # Sorted, so that the same network gives the same bytes.
        tensors = {}
        for key in sorted(weights):
            weight = weights[key].detach().cpu()
            if weight.is_floating_point():
                weight = weight.float()
            tensors[key] = weight.contiguous()
        whole: Header = {"kind": self.kind}
        if self.version is not None:
            whole["version"] = self.version
        metadata = {"stepline": json.dumps(whole | header, sort_keys=True)}
        with atomic_path(path) as partial:
            save_file(tensors, partial, metadata=metadata)

    def find(self, path: Path) -> Path:
        """Return the file of a network: the path itself, the first of `names` in a folder, or the
        only network there.

        Raises ModelError where there is no network, or the run in the folder is not finished.
        """
        # The file itself, or one of the names that the trainer writes.
        if path.is_file():
            return path
        for name in self.names:
            if (path / name).is_file():
                return path / name
        # No network, and why: a run under way, or one network per seed.
        if (path / CHECKPOINT_FILE).is_file():
            raise ModelError(f"{path}: the run is not finished; run {self.writer} again to end it")
        seeds = sorted(file.parent for name in self.names for file in path.glob(f"seed-*/{name}"))
        if seeds:
            raise ModelError(
                f"{path}: holds one network per seed; give one of them, such as {seeds[0]}"
            )
        # A single network under any other name is taken too.
        fault = "no such file"
        if path.is_dir():
            fault = f"holds none of {', '.join(self.names)}"
            others = sorted(path.glob("*.safetensors"))
            if len(others) == 1:
                return others[0]
        raise ModelError(
            f"{path}: {fault}; give the .safetensors file of a network that {self.writer} wrote"
        )

    def read_header(self, path: Path, parse: Callable[[Header], H]) -> H:
        """Return what `parse` makes of the header of a file. Raises ModelError where it is not of
        this kind."""
        with self._opened(path, "np") as file:
            return parse(self._header(file))

    def read(self, path: Path, parse: Callable[[Header], H]) -> "tuple[H, dict[str, Tensor]]":
        """Return what `parse` makes of the header, and the weights as they are. Raises
        ModelError."""
        with self._opened(path) as file:
            header = parse(self._header(file))
            return header, read_tensors(file)

    def read_arrays(
        self, path: Path, parse: Callable[[Header], H]
    ) -> tuple[H, dict[str, npt.NDArray[np.float32]]]:
        """Return what `read` does, the weights as arrays of numpy: without torch."""
        with self._opened(path, "np") as file:
            header = parse(self._header(file))
            return header, read_tensors(file)

    def load(
        self, path: Path, parse: Callable[[Header], H], build: Callable[[H], N]
    ) -> tuple[H, N]:
        """Return what `parse` makes of the header, and the network that `build` makes of that,
        ready to infer.

        It is on the process's device. Raises ModelError, naming what does not fit.
        """
        header, weights = self.read(path, parse)
        # Checked before the network takes memory.
        check_weights(lambda: build(header), weights, path)
        network = build(header)
        network.load_state_dict(weights)
        network.to(current_device().name).eval()
        return header, network

    @contextmanager
    def _opened(self, path: Path, framework: Literal["pt", "np"] = "pt") -> Iterator[Any]:
        """Yield an open file. What is wrong with it while it is read becomes a ModelError."""
        try:
            with safe_open(path, framework=framework) as file:
                yield file
        except (
            OSError,
            SafetensorError,
            ValueError,
            ValidationError,
            TypeError,
            KeyError,
        ) as error:
            reason = first_line(error)
            cure = f"give one that {self.writer} wrote"
            raise ModelError(f"{path}: not {self.title} of Stepline ({reason}); {cure}") from error

    def _header(self, file: Any) -> Header:
        header: Header = parse_json((file.metadata() or {}).get("stepline", "{}"))
        if not isinstance(header, dict):
            raise ValueError("its header is not an object")
        if header.get("kind") != self.kind or header.get("version") != self.version:
            raise ValueError(f"kind {header.get('kind')!r}, version {header.get('version')!r}")
        return header


def read_tensors(file: Any) -> dict[str, Any]:
    """Return the tensors of an open safetensors file."""
    return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)


def check_weights(build: "Callable[[], nn.Module]", weights: Weights, path: Path) -> None:
    """Raise ModelError unless the weights are those of the network that `build` makes: names,
    shapes, finite."""
    import torch

    with torch.device("meta"):  # shapes alone: no memory is taken for a network that is refused
        expected = {key: tuple(value.shape) for key, value in build().state_dict().items()}
    # Names and shapes, then numbers.
    faults = [f"{key} is missing" for key in expected.keys() - weights.keys()]
    for key, weight in weights.items():
        shape = tuple(weight.shape)
        if key not in expected:
            faults.append(f"{key} is unknown")
        elif shape != expected[key]:
            faults.append(f"{key} is {shape}, not {expected[key]}")
        if key in expected and not bool(weight.isfinite().all()):
            faults.append(f"{key} holds NaN or infinity")
    if faults:
        # An error names a few, and says how many more there are.
        names = ", ".join(sorted(faults)[:MAX_NAMED_FAULTS])
        unnamed = len(faults) - MAX_NAMED_FAULTS
        if unnamed > 0:
            names += f" and {unnamed} more"
        raise ModelError(f"{path}: not these weights: {names}; give the right file")


@dataclass(frozen=True)
class TrainedOn:
    """What a network in a file was trained on, as errors name it: `cure` says what else to give.

    Each check raises ModelError where what is given is of another space than the network's.
    """

    path: Path
    cure: str

    def check_width(self, width: int, features: FeatureSequence) -> None:
        """Check the width of the feature rows."""
        other = features.values.shape[1]
        if other != width:
            own = f"trained on features {width} wide"
            raise ModelError(
                f"{self.path}: {own}, {features.backbone} features are {other} wide; {self.cure}"
            )

    def check_source(self, what: str, trained: str, source: str) -> None:
        """Check the backbone of features, or the encoder of texts. One that does not say its name
        fits all."""
        if trained != source and trained not in UNKNOWN_SOURCES and source not in UNKNOWN_SOURCES:
            raise ModelError(
                f"{self.path}: trained on {what} of {trained!r}, given are {source!r}; {self.cure}"
            )

    def check_rate(self, trained: float, rate: float) -> None:
        """Check the feature rows per second."""
        if trained != rate:
            rates = f"trained at {trained:g} rows per second, given are {rate:g}"
            raise ModelError(f"{self.path}: {rates}; set vision.rate={trained:g}")

    def check_scale(self, *, unit: bool, any_length: bool) -> None:
        """Check that rows of length 1 (`unit`) are given only to a network that takes rows of any
        length."""
        if unit and not any_length:
            cure = "set vision.unit=false, with internvideo or ready features"
            raise ModelError(
                f"{self.path}: trained on feature rows as they are, not on rows of length 1; {cure}"
            )
