"""What a training run is, as one JSON file in its folder: another run does not go on there.

A run on disk: all that the next step needs, in one file that is written whole or not at all.

What a run tells on disk: JSON lines, one a step.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError, StoreError
from stepline.settings import Settings
from stepline.storage import atomic_path, write_atomic
from stepline.training.settings import WITHOUT_EFFECT, TrainSettings

log = logging.getLogger(__name__)

RUN = "run.json"
PACKAGES = ("stepline", "torch", "numpy", "safetensors", "accelerate", "tokenizers")


def claim_run(folder: Path, run: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """Write what a run is (plain values), the versions on which it depends, and what is told of it besides.

    Raises SettingsError when the folder holds another run.
    """
    path, plain = folder / RUN, json.loads(json.dumps(run, default=str))
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read ({error}); remove it, or give another --out") from error
        if any(known.get(name) != value for name, value in plain.items()):
            raise SettingsError(f"{path}: another run, with other settings or sources; give another --out")
    write_atomic(path, json.dumps(plain | {"versions": versions(), **told}, indent=2) + "\n")


def lasting(settings: Settings) -> dict[str, Any]:
    """Return the settings of a run on which its outcome depends, as plain values."""
    tree = settings.model_dump(mode="json")
    return tree | {"train": {name: value for name, value in tree["train"].items() if name not in WITHOUT_EFFECT}}


def versions() -> dict[str, str]:
    """Return the versions on which a run depends."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


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


LOG = "log.jsonl"


class Log:
    """JSON lines, one a step; those after the checkpoint go, since their steps are taken again.

    Raises StoreError, with the cure, when the disk is full.
    """

    def __init__(self, path: Path, done: int) -> None:
        if path.exists():
            kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:done]
            with atomic_path(path) as partial:
                partial.write_text("".join(kept), encoding="utf-8")
        self._path = path
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with suppress(OSError) if kind is not None else self._refused():
            self._file.close()

    def write(self, line: Mapping[str, float]) -> None:
        """Add a step."""
        with self._refused():
            self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Hand the lines to the disk, so that a checkpoint never knows of steps that the log does not."""
        with self._refused():
            self._file.flush()
            os.fsync(self._file.fileno())

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cure = "free some space and give the same command again"
            raise StoreError(f"{self._path}: cannot be written ({error.strerror or error}); {cure}") from error
