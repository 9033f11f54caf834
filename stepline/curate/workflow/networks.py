"""The networks that a reviewed data set trains, each into a folder of its own.

A folder is named by a sha256 of what it is trained on. So a run that was killed goes on in it, and
other records or settings begin another one.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepline.curate.stages.cache_keys import text_source
from stepline.curate.stages.train import NO_READERS, of_any_width
from stepline.curate.workflow.amounts import NetworkName
from stepline.curate.workflow.settings import WorkflowRecipe
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    DataSettings,
    ModelSettings,
    ProcxRunSettings,
    ProcxTrainSettings,
)
from stepline.models.wys2.settings import Wys2Settings

NAME_DIGITS = 12  # of a sha256 that names a folder, in hex
# As small as in the simulated worlds that the curves of `amounts` are from.
SMALL_WIDTH = 64
PROCX_RUN = ProcxRunSettings(
    model=ModelSettings(
        rows=128,
        attention=AttentionSettings(width=SMALL_WIDTH, heads=4),
        encoder_layers=2,
        decoder_layers=2,
        feed_forward=128,
        queries=30,
        captioner=CaptionerSettings(width=SMALL_WIDTH, heads=4),
    ),
    data=DataSettings(target="reference"),
    train=ProcxTrainSettings(learning_rate=1e-3),
)


@dataclass(frozen=True)
class TrainingData:
    """What networks are trained on. records: a file of reviewed records. features: their store."""

    records: Path
    features: Path
    recipe: WorkflowRecipe

    def folder(self, network: NetworkName, home: Path) -> Path:
        """Return the folder of a network's run, below `home`."""
        # Other records or settings make another folder, in which the training begins.
        digest = hashlib.sha256(self.records.read_bytes())
        digest.update(self._settings(network).encode())
        return home / f"{network}-{digest.hexdigest()[:NAME_DIGITS]}"

    def _settings(self, network: NetworkName) -> str:
        if network == "nasva":
            return self.recipe.train.model_dump_json()
        settings = PROCX_RUN if network == "procx" else Wys2Settings()
        return settings.model_dump_json()


def train_network(network: NetworkName, data: TrainingData, folder: Path) -> None:
    """Train a network, or go on where a run was killed.

    Raises DatasetError or ShapeError where nothing is left to train on.
    """
    trainers: dict[NetworkName, Callable[[TrainingData, Path], None]] = {
        "nasva": _train_nasva,
        "procx": _train_procx,
        "wys2": _train_wys2,
    }
    trainers[network](data, folder)


def _train_nasva(data: TrainingData, folder: Path) -> None:
    from stepline.models.nasva.train import AlignerSources, train_run

    sources = AlignerSources(
        features=data.features, steps=str(data.records), step_vectors=text_source(data.recipe)
    )
    train_run(sources, folder, of_any_width(data.recipe.train))


def _train_procx(data: TrainingData, folder: Path) -> None:
    from stepline.models.procx.train import ProcxSources, train_procx_run

    sources = ProcxSources(features=data.features, steps=str(data.records))
    train = PROCX_RUN.train.model_copy(update=NO_READERS)
    train_procx_run(sources, folder, PROCX_RUN.model_copy(update={"train": train}))


def _train_wys2(data: TrainingData, folder: Path) -> None:
    from stepline.models.wys2.train import DetectorSources, train_detector_run

    settings = Wys2Settings()
    settings = settings.model_copy(update={"train": settings.train.model_copy(update=NO_READERS)})
    sources = DetectorSources(
        key_steps=(str(data.records),), features=data.features, vectors=text_source(data.recipe)
    )
    clips = sources.prepare(folder, settings, lambda omitted: None)  # noqa: ARG005
    train_detector_run(clips, folder, settings)
