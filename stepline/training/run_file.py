"""What a training run is, as one JSON file in its folder: another run does not go on there."""

import json
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stepline.errors import SettingsError, StoreError
from stepline.settings import Settings
from stepline.store import write_atomic
from stepline.training_settings import WITHOUT_EFFECT

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
