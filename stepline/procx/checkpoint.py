"""ProcX on disk: one safetensors file with weights, settings and vocabulary, so that none of them goes alone."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from stepline.errors import ModelError
from stepline.procx.model import ProcX
from stepline.procx.settings import ModelSettings
from stepline.procx.vocabulary import MARKS, Vocabulary
from stepline.records import FeatureSequence
from stepline.storage import atomic_path
from stepline.training.run_folder import CHECKPOINT
from stepline.weights import sha256

KIND = "stepline.procx"
VERSION = 1  # of the names of the weights; a reader refuses any other
SHOWN = 3  # wrong weights that an error names
NAMES = ("best.safetensors", "procx.safetensors")  # what a folder is searched for, in this order
ANY = ("", "unknown", "precomputed")  # backbones of features that do not say whose they are: their owner answers


@dataclass(frozen=True)
class Trained:
    """What a network was trained on: the backbone of its features, and rows a second.

    unit: its feature rows had length 1. around: seconds before and after a step whose speech it reads, None for none.
    """

    backbone: str
    rate: float = 1.0
    unit: bool = False
    around: float | None = None


@dataclass(frozen=True)
class Loaded:
    """A network at rest with its vocabulary; path: its file, sha256: of that file."""

    model: ProcX
    vocabulary: Vocabulary
    trained: Trained
    path: Path
    sha256: str

    def check(self, features: FeatureSequence) -> None:
        """Raise ModelError where features are not of the kind that it was trained on."""
        self.check_space(features.backbone, features.rate)
        wanted, width = self.model.settings.features, features.values.shape[1]
        if width != wanted:
            given = f"{features.backbone} features are {width} wide"
            raise ModelError(f"{self.path}: trained on features {wanted} wide, {given}; {self._cure()}")

    def check_space(self, backbone: str, rate: float) -> None:
        """Raise ModelError where the backbone, or the rows a second, are not those of its training."""
        own = self.trained
        if backbone != own.backbone and backbone not in ANY and own.backbone not in ANY:
            kinds = f"trained on features of {own.backbone!r}, given are {backbone!r}"
            raise ModelError(f"{self.path}: {kinds}; {self._cure()}")
        if rate != own.rate:
            rates = f"trained at {own.rate:g} rows per second, given are {rate:g}"
            raise ModelError(f"{self.path}: {rates}; set vision.rate={own.rate:g}")

    def check_scale(self, *, unit: bool) -> None:
        """Raise ModelError where rows were scaled to length 1 for a network that takes them as they are."""
        if unit and not self.trained.unit and not self.model.settings.standardise:
            cure = "give ready features and vision.unit=false"
            raise ModelError(f"{self.path}: trained on feature rows as they are, not on rows of length 1; {cure}")

    def check_speech(self) -> None:
        """Raise ModelError where it never read what is said."""
        if self.trained.around is None:
            cure = "leave --speech out, or train one with data.speech"
            raise ModelError(f"{self.path}: was trained on pictures alone; {cure}")

    def _cure(self) -> str:
        return f"use the backbone that it was trained with ({self.trained.backbone}), or another network"


def write_model(model: ProcX, vocabulary: Vocabulary, path: Path, trained: Trained) -> None:
    """Write a network, float32, whole or not at all. Raises StoreError when the disk refuses."""
    weights = model.state_dict()
    tensors = {key: weights[key].detach().to("cpu", torch.float32).contiguous() for key in sorted(weights)}
    header = {
        "kind": KIND,
        "version": VERSION,
        "settings": model.settings.model_dump(mode="json"),
        "vocabulary": {"tokens": vocabulary.tokens, "lower": vocabulary.lower},
        "trained": asdict(trained),
    }
    with atomic_path(path) as partial:
        save_file(tensors, partial, metadata={"stepline": json.dumps(header, sort_keys=True)})


def find_model(path: Path) -> Path:
    """Return the file of a network: the path itself, or the first of `NAMES` in it. Raises ModelError."""
    if path.is_file():
        return path
    for name in NAMES:
        if (path / name).is_file():
            return path / name
    if (path / CHECKPOINT).is_file():
        raise ModelError(f"{path}: the run is not finished; run `stepline train procx` again to end it")
    seeds = sorted(found.parent for name in NAMES for found in path.glob(f"seed-*/{name}"))
    if seeds:
        raise ModelError(f"{path}: holds a network a seed; give one of them, such as {seeds[0]}")
    what = f"holds none of {', '.join(NAMES)}" if path.is_dir() else "no such file"
    raise ModelError(f"{path}: {what}; give a network that `stepline train procx` wrote")


def load_model(path: Path) -> Loaded:
    """Return the network in a file or a run's folder, ready to infer. Raises ModelError, naming what does not fit."""
    file = find_model(path)
    try:
        with safe_open(file, framework="pt") as opened:
            header = json.loads((opened.metadata() or {}).get("stepline", "{}"))
            if not isinstance(header, dict):
                raise ValueError("its header is none")
            if header.get("kind") != KIND or header.get("version") != VERSION:
                raise ValueError(f"kind {header.get('kind')!r}, version {header.get('version')!r}")
            settings = ModelSettings.model_validate_json(json.dumps(header["settings"]))
            vocabulary = _vocabulary(header["vocabulary"])
            trained = Trained(**header["trained"])
            weights = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, ValueError, ValidationError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        cure = "give one that `stepline train procx` wrote"
        raise ModelError(f"{file}: not a ProcX network of Stepline ({reason}); {cure}") from error
    _check(settings, len(vocabulary), weights, file)
    model = ProcX(settings, len(vocabulary))
    model.load_state_dict(weights)
    model.eval()
    return Loaded(model, vocabulary, trained, file, sha256(file))


def _vocabulary(tree: Mapping[str, Any]) -> Vocabulary:
    tokens = tuple(tree["tokens"])
    if tokens[: len(MARKS)] != MARKS or not all(isinstance(token, str) for token in tokens):
        raise ValueError("its vocabulary is none")
    return Vocabulary(tokens, bool(tree["lower"]))


def _check(settings: ModelSettings, words: int, weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise ModelError unless the weights are those of a network of these settings: names, shapes, finite."""
    with torch.device("meta"):
        wanted = {key: tuple(value.shape) for key, value in ProcX(settings, words).state_dict().items()}
    given = {key: tuple(value.shape) for key, value in weights.items()}
    faults = [f"{key} is missing" for key in wanted.keys() - given.keys()]
    faults += [f"{key} is unknown" for key in given.keys() - wanted.keys()]
    both = wanted.keys() & given.keys()
    faults += [f"{key} is {given[key]}, not {wanted[key]}" for key in both if given[key] != wanted[key]]
    faults += [f"{key} holds NaN or infinity" for key in both if not bool(weights[key].isfinite().all())]
    if faults:
        more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise ModelError(f"{path}: not these weights: {', '.join(sorted(faults)[:SHOWN])}{more}; give the right file")
