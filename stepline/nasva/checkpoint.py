"""The grounding network on disk: one safetensors file that carries its settings, so that neither goes alone."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from stepline.errors import ModelError
from stepline.nasva.model import Aligner
from stepline.nasva.model_settings import ModelSettings
from stepline.store import atomic_path

KIND = "stepline.nasva.aligner"
VERSION = 1  # of the names of the weights; a reader refuses any other
SHOWN = 3  # wrong keys that an error names


@dataclass(frozen=True)
class Space:
    """Whose features a network was trained on: video, the label of a FeatureSequence; text, the encoder of the texts.

    text is a name that `text.embed` takes ("minilm"), or the backbone's own where it encodes texts itself ("clip").
    rate: feature rows per second.
    """

    video: str
    text: str
    rate: float = 1.0


def write_aligner(model: Aligner, path: Path, space: Space | None = None) -> None:
    """Write a network, float32. Raises StoreError when the disk refuses."""
    write_weights(model.settings, model.state_dict(), path, space)


def write_weights(
    settings: ModelSettings, weights: Mapping[str, Tensor], path: Path, space: Space | None = None
) -> None:
    """Write the weights of a network, its settings and its space in one file, whole or not at all."""
    tensors = {key: weights[key].detach().to("cpu", torch.float32).contiguous() for key in sorted(weights)}
    header: dict[str, Any] = {"kind": KIND, "version": VERSION, "settings": settings.model_dump(mode="json")}
    if space is not None:
        header["space"] = asdict(space)
    with atomic_path(path) as partial:
        save_file(tensors, partial, metadata={"stepline": json.dumps(header, sort_keys=True)})


def read_aligner(path: Path) -> Aligner:
    """Return the network that a file holds, ready to infer. Raises ModelError, naming what does not fit."""
    settings, weights = read_weights(path)
    check_weights(settings, weights, path)
    model = Aligner(settings)
    model.load_state_dict(weights)
    model.eval()
    return model


def read_weights(path: Path) -> tuple[ModelSettings, dict[str, Tensor]]:
    """Return the settings and weights of a file, as they are. Raises ModelError for any other file."""
    with _opened(path) as file:
        settings = _settings(_header(file))
        return settings, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)


def read_space(path: Path) -> Space | None:
    """Return whose features the network in a file was trained on, None where it does not say. Raises ModelError."""
    with _opened(path) as file:
        header = _header(file)
        _settings(header)
        return Space(**header["space"]) if "space" in header else None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield an open file; what is wrong with it while it is read becomes a ModelError."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError, ValueError, ValidationError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: not a grounding network of Stepline ({reason}); give one that it wrote") from error


def _header(file: Any) -> dict[str, Any]:
    header: dict[str, Any] = json.loads((file.metadata() or {}).get("stepline", "{}"))
    return header


def _settings(header: dict[str, Any]) -> ModelSettings:
    if header.get("kind") != KIND or header.get("version") != VERSION:
        raise ValueError(f"kind {header.get('kind')!r}, version {header.get('version')!r}")
    return ModelSettings.model_validate_json(json.dumps(header["settings"]))


def check_weights(settings: ModelSettings, weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise ModelError unless the weights are those of a network of these settings: names, shapes, finite."""
    with torch.device("meta"):
        wanted = {key: tuple(value.shape) for key, value in Aligner(settings).state_dict().items()}
    given = {key: tuple(value.shape) for key, value in weights.items()}
    faults = [f"{key} is missing" for key in wanted.keys() - given.keys()]
    faults += [f"{key} is unknown" for key in given.keys() - wanted.keys()]
    both = wanted.keys() & given.keys()
    faults += [f"{key} is {given[key]}, not {wanted[key]}" for key in both if given[key] != wanted[key]]
    faults += [f"{key} holds NaN or infinity" for key in both if not bool(weights[key].isfinite().all())]
    if faults:
        more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise ModelError(f"{path}: not these weights: {', '.join(sorted(faults)[:SHOWN])}{more}; give the right file")
