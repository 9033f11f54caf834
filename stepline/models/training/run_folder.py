"""A training run as one folder: what it is, what it left out, its checkpoint and its log. Every
trainer uses it.

run.json           settings and sources (another run does not go on in this folder), counts, versions
omitted.jsonl      what is no sample, each with its reason
last.safetensors   the network and the optimizer after the last saved step, from which a killed run goes on
log.jsonl          loss, learning rate and held-out score, a line a step
"""

import json
import logging
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError, StoreError, first_line
from stepline.files.atomic_files import atomic_path, check_own_file, write_atomic
from stepline.limits import parse_json
from stepline.models.training.network import parse_settings, read_tensors
from stepline.models.training.settings import NO_EFFECT_ON_RESULT, TrainSettings
from stepline.settings import Settings, with_constants

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Settings)

RUN_FILE = "run.json"
OMITTED_FILE = "omitted.jsonl"
LOG_FILE = "log.jsonl"
VERSIONED_PACKAGES = ("stepline", "torch", "numpy", "safetensors", "accelerate", "tokenizers")
ADAMW_STATE = ("exp_avg", "exp_avg_sq", "step")  # of each weight


def claim_run_folder(
    folder: Path,
    run: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    *,
    file: str = RUN_FILE,
) -> None:
    """Write into `file` what a run is (plain values), so that no other run goes on in its folder.

    facts: what is also written and may change from one start to the next, such as versions and
    counts.
    Raises SettingsError when the folder holds another run, StoreError when its file cannot be read.
    """
    path = folder / file
    # As JSON has it, since tuples and paths of a fresh run would differ from what was read.
    identity = json.loads(json.dumps(run, default=str))
    if path.exists():
        try:
            before = with_constants(parse_json(path.read_text(encoding="utf-8")))
            now = with_constants(identity)
            same = all(before.get(name) == value for name, value in now.items())
        except (OSError, ValueError, AttributeError) as error:
            raise StoreError(
                f"{path}: cannot be read ({error}); remove it, or give another --out"
            ) from error
        if not same:
            raise SettingsError(
                f"{path}: another run, with other settings or sources; give another --out"
            )
    text = json.dumps(identity | dict(facts or {}), indent=2) + "\n"
    # a run that is done is left untouched
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomic(path, text)


def write_omitted(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write what is not a sample, a JSON line each."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomic(folder / OMITTED_FILE, "".join(lines))


def settings_that_matter(settings: Settings) -> dict[str, Any]:
    """Return the settings of a run on which its outcome depends, as plain values."""
    return settings.model_dump(mode="json", exclude={"train": set(NO_EFFECT_ON_RESULT)})


def versions() -> dict[str, str]:
    """Return the versions on which a run depends."""
    numbers = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in VERSIONED_PACKAGES:
        with suppress(PackageNotFoundError):
            numbers[package] = version(package)
    return numbers


def settings_to_train_on(own: T, options: T, changeable: Collection[str], path: Path) -> T:
    """Return the settings of a network in a file that is trained on, with the options for
    `changeable` (dotted names).

    Raises SettingsError where an option that someone set is not what the network has.
    """
    tree = own.model_dump(mode="json")
    for name, value in _settings_set(options).items():
        *sections, field = name.split(".")
        part: Any = own
        branch = tree
        for section in sections:
            part = getattr(part, section)
            branch = branch[section]
        if value == getattr(part, field):
            continue
        if name not in changeable:
            cure = "it is the network's own; leave it out, or leave --start out"
            raise SettingsError(f"model.{name}={value}, {path} has {getattr(part, field)}; {cure}")
        branch[field] = value
    return parse_settings(type(own), tree)


def _settings_set(settings: Settings, prefix: str = "") -> dict[str, Any]:
    """Return the settings that someone set, by their dotted names."""
    values: dict[str, Any] = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            values |= _settings_set(value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = value
    return values


def _settings_of_checkpoint(settings: TrainSettings) -> dict[str, Any]:
    return settings.model_dump(mode="json", exclude=set(NO_EFFECT_ON_RESULT))


@dataclass(frozen=True)
class TrainingState:
    """How far a run is: steps done, the best score on held-out samples, and the scores since it."""

    step: int = 0
    best: float | None = None
    scores_since_best: int = 0

    def scored(self, score: float) -> "TrainingState":
        """Return the state after another held-out score. NaN is never the best."""
        if math.isfinite(score) and (self.best is None or score > self.best):
            return replace(self, best=score, scores_since_best=0)
        return replace(self, scores_since_best=self.scores_since_best + 1)

    def at_plateau(self, patience: int) -> bool:
        """Return whether `patience` scores in a row were not better than the best. It is False with
        0."""
        return 0 < patience <= self.scores_since_best


def save_checkpoint(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    settings: TrainSettings,
    path: Path,
    state: TrainingState,
    samples: int,
) -> None:
    """Write the checkpoint: the weights, AdamW's moments and how far the run is."""
    # Weights and moments share one file, each with a prefix of its own.
    tensors = {}
    for key, value in model.state_dict().items():
        tensors[f"model.{key}"] = value.detach().cpu().contiguous()
    for number, moments in optimizer.state_dict()["state"].items():
        for name in ADAMW_STATE:
            tensors[f"optimizer.{number}.{name}"] = moments[name].cpu().contiguous()
    header = {
        "step": state.step,
        "best": state.best,
        "scores_since_best": state.scores_since_best,
        "samples": samples,
        "settings": _settings_of_checkpoint(settings),
    }
    with atomic_path(path) as partial:
        save_file(tensors, partial, metadata={"stepline": json.dumps(header, sort_keys=True)})
    log.info("%s: checkpoint after step %d", path, state.step)


def resume_checkpoint(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    settings: TrainSettings,
    path: Path,
    samples: int,
) -> TrainingState:
    """Load the checkpoint, where there is one, into network and optimizer, and return how far the
    run is.

    Raises SettingsError when it is of another run, ModelError when it is damaged or of another
    network.
    """
    if not path.exists():
        return TrainingState()
    try:
        with safe_open(path, framework="pt") as file:
            header = parse_json((file.metadata() or {})["stepline"])
            tensors = read_tensors(file)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ModelError(
            f"{path}: not a checkpoint that can be read ({error}); remove it to start again"
        ) from error
    # Other settings or samples would make another run of the steps that are left.
    own = (_settings_of_checkpoint(settings), samples)
    if (header["settings"], header["samples"]) != own:
        raise SettingsError(
            f"{path}: another run, with other settings or samples; give another --out, or remove it"
        )
    try:
        model.load_state_dict(_without_prefix(tensors, "model."))
        # The optimizer's groups are today's, and only the moments come from disk.
        fresh = optimizer.state_dict()
        count = sum(len(group["params"]) for group in fresh["param_groups"])
        moments = {
            number: _without_prefix(tensors, f"optimizer.{number}.") for number in range(count)
        }
        state = {number: own for number, own in moments.items() if own}
        optimizer.load_state_dict(fresh | {"state": state})
    except (RuntimeError, ValueError, KeyError) as error:
        raise ModelError(
            f"{path}: a checkpoint of another network ({first_line(error)}); give another --out"
        ) from error
    log.info("%s: resumed after step %d", path, header["step"])
    return TrainingState(int(header["step"]), header["best"], header.get("scores_since_best", 0))


def _without_prefix(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {key.removeprefix(start): tensors[key] for key in tensors if key.startswith(start)}


class StepLog:
    """JSON lines, one per step. Those after the checkpoint go, since their steps are taken again.

    Raises StoreError, with the cure, when the disk is full.
    """

    def __init__(self, path: Path, steps: int) -> None:
        """steps: those of the checkpoint."""
        check_own_file(path)
        if path.exists():
            # A killed run may have logged steps that its checkpoint has not.
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[:steps]
            with atomic_path(path) as partial:
                partial.write_text("".join(lines), encoding="utf-8")
        self._path = path
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> "StepLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with suppress(OSError) if kind is not None else self._refused():
            self._file.close()

    def write(self, line: Mapping[str, float]) -> None:
        """Add a step."""
        with self._refused():
            self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Hand the lines to the disk, so that a checkpoint never knows of steps that the log does
        not."""
        with self._refused():
            self._file.flush()
            os.fsync(self._file.fileno())

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cure = "free some space and give the same command again"
            raise StoreError(
                f"{self._path}: cannot be written ({error.strerror or error}); {cure}"
            ) from error
