"""The grounding network on disk: one safetensors file that carries its settings, so that neither goes alone."""

import json
from collections.abc import Mapping
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
VERSION = 1   # of the names of the weights; a reader refuses any other
SHOWN = 3   # wrong keys that an error names


def write_aligner(model: Aligner, path: Path) -> None:
    """Write a network, float32. Raises StoreError when the disk refuses."""
    write_weights(model.settings, model.state_dict(), path)


def write_weights(settings: ModelSettings, weights: Mapping[str, Tensor], path: Path) -> None:
    """Write the weights of a network and its settings in one file, whole or not at all."""
    tensors = {key: weights[key].detach().to("cpu", torch.float32).contiguous() for key in sorted(weights)}
    header = {"kind": KIND, "version": VERSION, "settings": settings.model_dump(mode="json")}
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
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("stepline", "{}"))
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
        return _settings(header), weights
    except (OSError, SafetensorError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: not a grounding network of Stepline ({reason}); give one that it wrote") from error


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
