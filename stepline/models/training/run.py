"""A training run as one folder, for every network: claim the folder, train, keep the best network,
write the final one.

    run = TrainingRun(folder, NETWORK, {"settings": ...}, write_network)
    network = run_training(run, lambda keep_best: train_network(build, task, settings, folder))

The files of the folder:

run.json           settings and sources, which another run may not replace; counts and versions
omitted.jsonl      a line per sample that was left out, with the reason
last.safetensors   checkpoint: network and optimizer after the last saved step
log.jsonl          loss, learning rate and held-out score, a line per step

A run that was stopped continues when the same command starts again. Under torchrun the first
process writes.
"""

import json
import logging
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError, StoreError, first_line
from stepline.files.atomic_files import atomic_path, check_plain_file, write_atomic
from stepline.limits import parse_json
from stepline.models.training.distributed import is_first, wait_for_all
from stepline.models.training.network import NetworkFileFormat, parse_settings, read_tensors
from stepline.models.training.settings import NO_EFFECT_ON_RESULT, TrainSettings
from stepline.settings import Settings, without_removed_settings

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
SettingsT = TypeVar("SettingsT", bound=Settings)

KeepBest = Callable[[nn.Module], None]  # writes the best network so far

RUN_FILE = "run.json"
OMITTED_FILE = "omitted.jsonl"
LOG_FILE = "log.jsonl"
VERSIONED_PACKAGES = ("stepline", "torch", "numpy", "safetensors", "accelerate", "tokenizers")
ADAMW_STATE = ("exp_avg", "exp_avg_sq", "step")  # AdamW's tensors of each weight


@dataclass(frozen=True)
class TrainingRun(Generic[ResultT]):
    """What a training run is, and how its networks are written.

    Attributes:
        folder: folder of all files of the run.
        spec: file format of the network. Its first file name is for the best network, its last
            one for the final network.
        identity: settings and sources as JSON values. A folder with another identity is refused.
        write: writes a network to a file, given the network and the path.
        facts: further JSON values of run.json, which may change when the run is resumed, such as
            versions and counts.
        omitted: rows of omitted.jsonl. None: the run has no such file.
    """

    folder: Path
    spec: NetworkFileFormat[Any, Any]
    identity: Mapping[str, Any]
    write: Callable[[ResultT, Path], None]
    facts: Mapping[str, Any] = field(default_factory=dict)
    omitted: Iterable[Mapping[str, Any]] | None = None


def run_training(run: TrainingRun[ResultT], train: Callable[[KeepBest], ResultT]) -> ResultT:
    """Claim the folder of a run, train, write the final network, and return what `train` returns.

    Args:
        run: the run.
        train: trains the network and returns it. Its argument is a function that writes the best
            network so far.

    Raises SettingsError when the folder holds another run.
    """
    # The folder is claimed before any work, by one process.
    if is_first():
        claim_run_folder(run.folder, run.identity, run.facts)
        if run.omitted is not None:
            write_omitted(run.folder, run.omitted)

    def keep_best(network: nn.Module) -> None:
        run.write(network, run.folder / run.spec.file_names[0])

    result = train(keep_best)
    # The other processes wait, so that none of them reads a half-written network.
    if is_first():
        run.write(result, run.folder / run.spec.file_names[-1])
    wait_for_all()
    return result


def claim_run_folder(
    folder: Path, identity: Mapping[str, Any], facts: Mapping[str, Any] | None
) -> None:
    """Write settings and sources of a run to run.json, so that no other run uses its folder.

    Args:
        folder: folder of the run.
        identity: JSON values, such as settings and sources, that must equal those of a run.json
            that exists.
        facts: further values of run.json, which may change when the run is resumed.

    Raises SettingsError when the folder holds another run, StoreError when run.json cannot be read.
    """
    path = folder / RUN_FILE
    # As JSON has it, since tuples and paths of a fresh run would differ from what was read.
    new = json.loads(json.dumps(identity, default=str))
    if path.exists():
        try:
            stored = without_removed_settings(parse_json(path.read_text(encoding="utf-8")))
            same = all(stored.get(name) == value for name, value in new.items())
        except (OSError, ValueError, AttributeError) as error:
            raise StoreError(
                f"{path}: cannot be read ({error}); remove it, or give another --out"
            ) from error
        if not same:
            raise SettingsError(
                f"{path}: another run, with other settings or sources; give another --out"
            )
    text = json.dumps(new | dict(facts or {}), indent=2) + "\n"
    # The file of a finished run is left untouched.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomic(path, text)


def write_omitted(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the samples that were left out to omitted.jsonl, a JSON line per sample."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomic(folder / OMITTED_FILE, "".join(lines))


def result_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of a run as JSON values, without those that do not change its result
    (`NO_EFFECT_ON_RESULT`)."""
    return settings.model_dump(mode="json", exclude={"train": set(NO_EFFECT_ON_RESULT)})


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a run depends on, by name."""
    numbers = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in VERSIONED_PACKAGES:
        with suppress(PackageNotFoundError):
            numbers[package] = version(package)
    return numbers


def fine_tuning_settings(
    stored: SettingsT, options: SettingsT, changeable: Collection[str], path: Path
) -> SettingsT:
    """Return the settings of a network that is fine-tuned: its own, with the user's changeable ones.

    Args:
        stored: settings in the network's file.
        options: settings of the new run. Only those that the user set count.
        changeable: dotted names of the settings that may differ, such as dropout rates.
        path: the network's file, for messages.

    Raises SettingsError where the user set any other setting to another value.
    """
    tree = stored.model_dump(mode="json")

    def update(branch: dict[str, Any], values: Mapping[str, Any], prefix: str) -> None:
        for key, value in values.items():
            name = prefix + key
            if isinstance(value, dict):
                update(branch[key], value, f"{name}.")
            elif name in changeable:
                branch[key] = value
            elif value != branch[key]:
                raise SettingsError(
                    f"model.{name}={value}, {path} has {branch[key]}; it is the network's own; "
                    "leave it out, or leave --start out"
                )

    update(tree, options.model_dump(mode="json", exclude_unset=True), "")
    return parse_settings(type(stored), tree)


@dataclass(frozen=True)
class TrainingState:
    """Progress of a run.

    Attributes:
        step: number of steps taken.
        best: best held-out score. None: there is none.
        scores_since_best: number of held-out scores since the best one.
    """

    step: int = 0
    best: float | None = None
    scores_since_best: int = 0

    def with_score(self, score: float) -> "TrainingState":
        """Return the state after another held-out score. NaN is never the best."""
        if math.isfinite(score) and (self.best is None or score > self.best):
            return replace(self, best=score, scores_since_best=0)
        return replace(self, scores_since_best=self.scores_since_best + 1)

    def is_at_plateau(self, patience: int) -> bool:
        """Return whether the last `patience` held-out scores did not beat the best one. With a
        patience of 0 the result is False."""
        return 0 < patience <= self.scores_since_best


def _dump_checkpoint_settings(settings: TrainSettings) -> dict[str, Any]:
    return settings.model_dump(mode="json", exclude=set(NO_EFFECT_ON_RESULT))


def save_checkpoint(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    settings: TrainSettings,
    path: Path,
    state: TrainingState,
    samples: int,
) -> None:
    """Write a checkpoint: weights, AdamW's moments and the progress of the run.

    Args:
        model: the network.
        optimizer: the network's optimizer.
        settings: settings of the run, which a resumed run must have too.
        path: file of the checkpoint.
        state: progress of the run.
        samples: number of training samples, which a resumed run must have too.
    """
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
        "settings": _dump_checkpoint_settings(settings),
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
    """Load a checkpoint into network and optimizer and return the progress of its run.

    Without a file, return the progress of a fresh run.

    Args:
        model: network that gets the stored weights.
        optimizer: optimizer that gets the stored moments.
        settings: settings of the run. They must be those of the checkpoint.
        path: file of the checkpoint.
        samples: number of training samples. It must be that of the checkpoint.

    Raises SettingsError if the checkpoint is of another run, ModelError if it is damaged or of
    another network.
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
    # With other settings or samples the steps that are left would be those of another run.
    if (header["settings"], header["samples"]) != (_dump_checkpoint_settings(settings), samples):
        raise SettingsError(
            f"{path}: another run, with other settings or samples; give another --out, or remove it"
        )
    try:
        model.load_state_dict(_strip_prefix(tensors, "model."))
        # The optimizer's groups are today's, and only the moments come from disk.
        fresh = optimizer.state_dict()
        moments = {}
        for number in range(sum(len(group["params"]) for group in fresh["param_groups"])):
            if moment := _strip_prefix(tensors, f"optimizer.{number}."):
                moments[number] = moment
        optimizer.load_state_dict(fresh | {"state": moments})
    except (RuntimeError, ValueError, KeyError) as error:
        raise ModelError(
            f"{path}: a checkpoint of another network ({first_line(error)}); give another --out"
        ) from error
    log.info("%s: resumed after step %d", path, header["step"])
    return TrainingState(int(header["step"]), header["best"], header.get("scores_since_best", 0))


def _strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)}


class StepLog:
    """The log of a run: a JSON line per step.

    Raises StoreError, with the cure, when the disk is full.
    """

    def __init__(self, path: Path, steps: int) -> None:
        """Open the log for appending. steps: number of lines to keep. Later lines are removed."""
        check_plain_file(path)
        if path.exists():
            # A killed run may have logged steps that its checkpoint has not. They are taken again.
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[:steps]
            with atomic_path(path) as partial:
                partial.write_text("".join(lines), encoding="utf-8")
        self._path = path
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, row: Mapping[str, float]) -> None:
        """Append a line with numbers of a step, given by name."""
        try:
            self._file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise StoreError(
                f"{self._path}: cannot be written ({error.strerror or error}); free some space "
                "and give the same command again"
            ) from error

    def close(self) -> None:
        """Close the file. What a full disk refused was reported before."""
        with suppress(OSError):
            self._file.close()
