"""One training run for every network: claim the folder, train, keep the best network, write the
final one.

    run = TrainingRun(folder, {"settings": ...}, write_network, final="network.safetensors")
    network = run_training(run, lambda keep_best: train_network(build, task, settings, folder))

A run that was stopped goes on when it is started again. Under torchrun the first process writes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from stepline.models.training.distributed import is_first, start_processes, wait_for_all
from stepline.models.training.loop import HeldOutScorer, Progress, TrainingTask, fit
from stepline.models.training.run_folder import RUN_FILE, claim_run_folder, write_omitted
from stepline.models.training.settings import TrainSettings

T = TypeVar("T")
N = TypeVar("N", bound=nn.Module)
S = TypeVar("S")

KeepBest = Callable[[nn.Module], None]  # what a `HeldOutScorer` does with the best network so far


@dataclass(frozen=True)
class TrainingRun(Generic[T]):
    """What a run is, and the files of its folder.

    identity: settings and sources, plain values, by which the folder refuses another run.
    write: writes what training returns to a file.
    final: its name.
    best: the name for the network that scored best on held-out samples.
    facts: what may change from one start to the next (versions, counts).
    omitted: the rows of omitted.jsonl, None where the run has no such file.
    identity_file: what holds the identity.
    """

    folder: Path
    identity: Mapping[str, Any]
    write: Callable[[T, Path], None]
    final: str
    best: str = ""
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
        run.write(network, run.folder / run.best)

    trained = train(keep_best)
    # The others wait, so that no one reads a network that is not whole.
    if is_first():
        run.write(trained, run.folder / run.final)
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
    """Return the network that `build` makes, trained on a device (None: the settings' own), at rest.

    Fresh weights are drawn by the settings' seed. Checkpoints and the log are in `folder`. A
    training there that was stopped goes on.
    """
    # The seed comes first, because making the network draws its weights.
    torch.manual_seed(settings.seed)
    network = build()
    if device is None:
        device = start_processes(settings.device)
    network.to(device)
    fit(network, task, settings, folder, report, scorer=scorer)
    return network
