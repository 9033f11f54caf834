"""A run on disk: all that the next step needs, in one file that is written whole or not at all."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError
from stepline.store import atomic_path
from stepline.training_settings import WITHOUT_EFFECT, TrainSettings

log = logging.getLogger(__name__)

CHECKPOINT = "last.safetensors"
MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # what AdamW keeps of each weight


@dataclass(frozen=True)
class Point:
    """How far a run is: steps done, and the best that was measured on what it is not trained on."""

    step: int = 0
    best: float | None = None


def save(
    model: nn.Module, optimizer: torch.optim.AdamW, settings: TrainSettings, path: Path, point: Point, samples: int
) -> None:
    """Write a checkpoint."""
    tensors = {f"model.{key}": value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": state[name].cpu().contiguous() for name in MOMENTS}
    header = {"step": point.step, "best": point.best, "samples": samples, "settings": _lasting(settings)}
    with atomic_path(path) as partial:
        save_file(tensors, partial, metadata={"stepline": json.dumps(header, sort_keys=True)})
    log.info("%s: checkpoint after step %d", path, point.step)


def resume(model: nn.Module, optimizer: torch.optim.AdamW, settings: TrainSettings, path: Path, samples: int) -> Point:
    """Take up a checkpoint where there is one, and return how far it is.

    Raises SettingsError when it is of another run, ModelError when it is damaged or of another network.
    """
    if not path.exists():
        return Point()
    header, tensors = _read(path)
    if header["settings"] != _lasting(settings) or header["samples"] != samples:
        raise SettingsError(f"{path}: another run, with other settings or samples; give another --out, or remove it")
    try:
        model.load_state_dict(_under(tensors, "model."))
        saved = optimizer.state_dict()
        count = sum(len(group["params"]) for group in saved["param_groups"])
        state = {number: _under(tensors, f"optimizer.{number}.") for number in range(count)}
        optimizer.load_state_dict({**saved, "state": {number: part for number, part in state.items() if part}})
    except (RuntimeError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: a checkpoint of another network ({reason}); give another --out") from error
    log.info("%s: resumed after step %d", path, header["step"])
    return Point(int(header["step"]), header["best"])


def _lasting(settings: TrainSettings) -> dict[str, Any]:
    """Return the settings on which the outcome depends."""
    return settings.model_dump(mode="json", exclude=set(WITHOUT_EFFECT))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["stepline"])
            return header, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: not a checkpoint that can be read ({error}); remove it to start again") from error


def _under(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}
