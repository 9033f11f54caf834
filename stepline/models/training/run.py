"""One training run for every network: claim the folder, train, keep the best network, write the
final one.

    run = TrainingRun(folder, NETWORK, {"settings": ...}, write)
    network = run_training(run, lambda keep_best: train_network(build, task, settings, folder))

A run that was stopped continues when it is started again. Under torchrun the first process writes.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from stepline.files.atomic_files import write_atomic
from stepline.models.training.distributed import is_first, start_processes, wait_for_all
from stepline.models.training.loop import HeldOutScorer, Progress, TrainingTask, fit
from stepline.models.training.network import NetworkSpec
from stepline.models.training.run_folder import RUN_FILE, claim_run_folder, write_omitted
from stepline.models.training.settings import TrainSettings

T = TypeVar("T")
N = TypeVar("N", bound=nn.Module)
S = TypeVar("S")

KeepBest = Callable[[nn.Module], None]  # what a `HeldOutScorer` does with the best network so far


@dataclass(frozen=True)
class TrainingRun(Generic[T]):
    """What a run is, and the files of its folder.

    spec: of the network, which names the files of the best one and of the final one.
    identity: settings and sources, plain values, by which the folder refuses another run.
    write: writes what training returns to a file.
    facts: what may change from one start to the next (versions, counts).
    omitted: the rows of omitted.jsonl, None where the run has no such file.
    identity_file: what holds the identity.
    """

    folder: Path
    spec: NetworkSpec[Any, Any]
    identity: Mapping[str, Any]
    write: Callable[[T, Path], None]
    facts: Mapping[str, Any] = field(default_factory=dict)
    omitted: Iterable[Mapping[str, Any]] | None = None
    identity_file: str = RUN_FILE


def run_training(run: TrainingRun[T], train: Callable[[KeepBest], T]) -> T:
    """Return what `train` makes, once it is written to the run's folder.

    train: gets the function that writes the best network.
    Raises SettingsError when the folder holds another run.
    """
    # The folder is claimed before any work, by one process.
    if is_first():
        claim_run_folder(run.folder, run.identity, run.facts, file=run.identity_file)
        if run.omitted is not None:
            write_omitted(run.folder, run.omitted)

    def keep_best(network: nn.Module) -> None:
        run.write(network, run.folder / run.spec.names[0])

    trained = train(keep_best)
    # The others wait, so that no one reads a network that is not whole.
    if is_first():
        run.write(trained, run.folder / run.spec.names[-1])
    wait_for_all()
    return trained


def train_network(
    build: Callable[[], N],
    task: TrainingTask[S],
    settings: TrainSettings,
    folder: Path,
    report: Callable[[Progress], None] | None = None,
    *,
    scorer: HeldOutScorer[S] | None = None,
    device: str | torch.device | None = None,
) -> N:
    """Return the network that `build` makes, trained on a device, in evaluation mode.

    Fresh weights are drawn by the settings' seed. A training in the folder that was stopped
    continues.

    Args:
        build: makes the network.
        task: what is learnt.
        settings: how long and how fast.
        folder: of checkpoints and log.
        report: gets each step.
        scorer: of held-out samples.
        device: None for that of the settings.
    """
    # The seed comes first, because making the network draws its weights.
    torch.manual_seed(settings.seed)
    network = build()
    network.to(start_processes(settings.device) if device is None else device)
    fit(network, task, settings, folder, report, scorer=scorer)
    return network


def write_outcome(folder: Path, outcome: Mapping[str, Any]) -> None:
    """Write what a finished run came to as its run.json."""
    write_atomic(folder / RUN_FILE, json.dumps(outcome, indent=1) + "\n")
