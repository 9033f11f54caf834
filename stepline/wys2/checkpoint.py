"""The detector on disk: one safetensors file that carries its settings and says which features it was trained on."""

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from stepline.errors import ModelError
from stepline.store import atomic_path
from stepline.wys2.model import Detector
from stepline.wys2.settings import DetectorSettings

KIND = "stepline.wys2.detector"
VERSION = 1  # of the names of the weights; a reader refuses any other
SHOWN = 3  # wrong names that an error tells


def write_detector(detector: Detector, path: Path, *, video: str = "", text: str = "") -> None:
    """Write a detector; video, text: the backbones whose features and text vectors it takes, where known."""
    settings = detector.settings.model_dump(mode="json")
    header = {"kind": KIND, "version": VERSION, "settings": settings, "video": video, "text": text}
    weights = {name: value.detach().cpu().contiguous() for name, value in detector.state_dict().items()}
    with atomic_path(path) as partial:
        save_file(weights, partial, metadata={"stepline": json.dumps(header, sort_keys=True)})


def read_detector(path: Path) -> Detector:
    """Return the detector that a file holds, ready to judge. Raises ModelError, naming what does not fit."""
    header, weights = _read(path)
    try:
        settings = DetectorSettings.model_validate_json(json.dumps(header["settings"]))
    except (ValidationError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: its settings are of another version ({reason}); train it again") from error
    detector = Detector(settings)
    wanted = {name: tuple(value.shape) for name, value in detector.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in weights.items()}
    faults = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))
    faults += sorted(name for name, value in weights.items() if not bool(value.isfinite().all()))
    if faults:
        told = f"{len(faults)} weights are missing, unknown, misshapen or NaN ({', '.join(faults[:SHOWN])})"
        raise ModelError(f"{path}: {told}; train it again")
    detector.load_state_dict(weights)
    detector.eval()
    return detector


def trained_on(path: Path) -> tuple[str, str]:
    """Return the names of the backbones whose features and text vectors a detector takes; "" where it does not say."""
    header, _ = _read(path)
    return str(header.get("video", "")), str(header.get("text", ""))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("stepline", "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"{path}: not a detector that can be read ({error}); give one that Stepline wrote") from error
    if header.get("kind") != KIND or header.get("version") != VERSION:
        told = f"kind {header.get('kind')!r}, version {header.get('version')!r}"
        raise ModelError(f"{path}: no WYS2 detector of Stepline ({told}); give one that `stepline train wys2` wrote")
    return header, weights
