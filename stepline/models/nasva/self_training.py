"""Self-training (section 3.3): train on labels where steps are said, label again by the networks'
own matrices, train again.

All results of a round are on disk, so that a killed run resumes:

    out/run.json                         settings and sources. Another run may not continue in this folder
    out/round-N/labels.json              {video: [[start, end] or null, ...]}
    out/round-N/teacher-M.safetensors    networks that were trained on this round's labels and stopped early
    out/report.json                      a `RoundReport` per round
    out/aligner.safetensors              the final network, trained on the last round's labels

Differs from the paper: several teachers of other seeds label together, and a text on which they
disagree may lose its label (`refine.agree`). One teacher, `position="start"` and a threshold give
the paper's form. Several processes (torchrun) share each batch of training and labelling. The first
one writes. Letters: K texts, T feature rows.
"""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from stepline.errors import ShapeError, StoreError
from stepline.files.atomic_files import write_atomic
from stepline.limits import parse_json
from stepline.models.nasva.checkpoint import NETWORK, read_aligner, write_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.pseudo_labels import (
    LabelCandidates,
    RoundReport,
    StepSpans,
    StepVideo,
    choose_labels,
    compute_labelled_fraction,
    find_label_candidates,
    iterate_matrices,
    make_step_samples,
    make_unlabelled_samples,
    measure_label_shift,
    read_labels,
    write_labels,
)
from stepline.models.nasva.settings import (
    AlignerLossSettings,
    AlignerNetworkSettings,
    SelfTrainSettings,
)
from stepline.models.nasva.train import FINAL_FILE, train_aligner
from stepline.models.training.batches import Sample, join_samples
from stepline.models.training.distributed import (
    broadcast_from_first,
    gather_from_all,
    is_first,
    rank_and_world_size,
    start_processes,
    wait_for_all,
)
from stepline.models.training.loop import Progress
from stepline.models.training.network import FeatureSpace
from stepline.models.training.run import TrainingRun, package_versions, run_training
from stepline.models.training.settings import NO_EFFECT_ON_RESULT, TrainSettings

log = logging.getLogger(__name__)

REPORT_FILE = "report.json"
SEED_STEP = 1000  # between the seeds of teachers of one round, so that no two runs share a teacher


@dataclass(frozen=True)
class SelfTrainingResult:
    """Result of self-training.

    Attributes:
        network: the final network.
        labels: for each video, the spans of its steps on which the final network was trained.
        rounds: one report per round, from round 0 on.
    """

    network: Aligner
    labels: tuple[StepSpans, ...]
    rounds: tuple[RoundReport, ...]


@dataclass(frozen=True)
class SelfTraining:
    """A run of self-training.

    Attributes:
        videos: the videos with the steps that get labels.
        folder: folder of the run.
        extra_samples: further samples, such as narrations, for the final network only.
        model: settings of the networks.
        loss: settings of the networks' loss.
        training: settings of the training loop. Teachers stop after `settings.teacher_epochs`.
        settings: number of rounds and teachers, and how labels are made.
        sources: names and paths of the videos' sources, stored in run.json to identify the run.
        space: features of the videos, stored in the networks' files. None: not stored.
        progress: called with the name of the network and its progress after each training step.
    """

    videos: Sequence[StepVideo]
    folder: Path
    extra_samples: Sequence[Sample] = ()
    model: AlignerNetworkSettings = field(default_factory=AlignerNetworkSettings)
    loss: AlignerLossSettings = field(default_factory=AlignerLossSettings)
    training: TrainSettings = field(default_factory=TrainSettings)
    settings: SelfTrainSettings = field(default_factory=SelfTrainSettings)
    sources: Mapping[str, str | None] = field(default_factory=dict)
    space: FeatureSpace | None = None
    progress: Callable[[str, Progress], None] | None = None

    def run(self) -> SelfTrainingResult:
        """Make, or resume, all rounds and the final training.

        Raises ShapeError when hardly any text keeps a label, SettingsError when the folder holds
        another run, StoreError when one of its files is damaged.
        """
        start_processes(self.training.device)
        run = TrainingRun[SelfTrainingResult](
            self.folder,
            NETWORK,
            self._describe_run(),
            lambda result, path: self._write(result.network, path),
            facts={"versions": package_versions()},
        )
        return run_training(run, lambda _: self._run_rounds())

    def _run_rounds(self) -> SelfTrainingResult:
        reports = self._read_reports()
        wait_for_all()
        while len(reports) <= self.settings.rounds:
            reports = (*reports, self._report_round(len(reports)))
            if is_first():
                tree = [asdict(report) for report in reports]
                write_atomic(self.folder / REPORT_FILE, json.dumps(tree, indent=1) + "\n")
                log.info("%s", reports[-1])
        labels = self._get_round_labels(len(reports) - 1)
        # what lost its label is a target too
        steps = make_step_samples(self.videos, labels, keep_all=self.model.alignability)
        samples = join_samples(steps, self.extra_samples, lambda sample: len(sample.video))
        network = self._read_or_train(self.folder / FINAL_FILE, samples, self.training)
        return SelfTrainingResult(network, labels, reports)

    def _report_round(self, number: int) -> RoundReport:
        began = time.process_time()
        labels = self._get_round_labels(number)
        texts = sum(len(spans) for spans in labels)
        report = RoundReport(number, texts, compute_labelled_fraction(labels))
        # Against the round before.
        if number:
            moved, iou = measure_label_shift(self._get_round_labels(number - 1), labels)
            report = replace(report, moved=moved, iou=iou)
        return replace(report, cpu_seconds=time.process_time() - began)

    # ------------------------------------------------------------ what a round makes

    def _get_round_labels(self, number: int) -> tuple[StepSpans, ...]:
        """Return the labels of a round. They are read if they are on disk."""
        path = self.folder / f"round-{number}" / "labels.json"
        if broadcast_from_first(path.exists()):
            counts = [(video.id, len(video.said_spans)) for video in self.videos]
            return read_labels(path, counts)
        labels = tuple(video.said_spans for video in self.videos)
        if number:
            labels = self._make_new_labels(number)
        if is_first():
            write_labels(path, [video.id for video in self.videos], labels)
        wait_for_all()
        return labels

    def _make_new_labels(self, number: int) -> tuple[StepSpans, ...]:
        """Return the labels of a round by the teachers of the round before."""
        refine = self.settings.get_round_settings(number)
        teachers = self._train_teachers(number - 1)
        candidates: dict[int, LabelCandidates] = {}
        rank, size = rank_and_world_size()
        samples = make_unlabelled_samples(self.videos)
        for index, matrices in iterate_matrices(teachers, samples, rank=rank, world_size=size):
            candidates[index] = find_label_candidates(matrices, self.videos[index].rate, refine)
        # Each process has seen its share of the videos.
        candidates = gather_from_all(candidates)
        in_order = [candidates[index] for index in range(len(candidates))]
        return choose_labels(in_order, refine)

    def _train_teachers(self, number: int) -> list[Aligner]:
        """Return the networks that learn the labels of a round. Those that are on disk are read."""
        samples = make_step_samples(self.videos, self._get_round_labels(number))
        # The same samples for all, with other seeds.
        teachers = []
        for teacher in range(self.settings.teachers):
            seed = self.training.seed + SEED_STEP * teacher
            changes = {"epochs": self.settings.teacher_epochs, "seed": seed}
            settings = self.training.model_copy(update=changes)
            path = self.folder / f"round-{number}" / f"teacher-{teacher}.safetensors"
            network = self._read_or_train(path, samples, settings)
            if is_first():
                self._write(network, path)
            wait_for_all()
            teachers.append(network)
        return teachers

    def _read_or_train(
        self, path: Path, samples: Sequence[Sample], settings: TrainSettings
    ) -> Aligner:
        """Return the network in a file. Without the file, train one on the samples."""
        if broadcast_from_first(path.exists()):
            network = read_aligner(path)
            network.to(start_processes(self.training.device))
            return network
        if not samples:
            raise ShapeError(
                "no step has a label to train on; lower coarse.floor, or look at the transcripts"
            )
        report = None
        if self.progress is not None:
            name = path.relative_to(self.folder).with_suffix("").as_posix()
            report = partial(self.progress, name)
        return train_aligner(
            samples,
            _get_training_folder(path),
            model=self.model,
            loss=self.loss,
            settings=settings,
            report=report,
        )

    def _write(self, network: Aligner, path: Path) -> None:
        """Write a network that was trained now, and remove its checkpoint and log."""
        if not path.exists():
            write_aligner(network, path, self.space)
            shutil.rmtree(_get_training_folder(path))

    # ------------------------------------------------------------ what the run is

    def _describe_run(self) -> dict[str, Any]:
        """Return plain values that tell this run from others."""
        # Video by video, since the dataset may be large.
        digest = hashlib.sha256(b"[")
        separator = ""  # as in the repr of the whole list
        for video in self.videos:
            content = (video.id, video.rows, video.said_spans)
            digest.update(f"{separator}{content!r}".encode())
            separator = ", "
        digest.update(b"]")
        parts = {
            "model": self.model,
            "loss": self.loss,
            "training": self.training,
            "settings": self.settings,
        }
        unneeded = set(NO_EFFECT_ON_RESULT)
        identity = {
            name: part.model_dump(mode="json", exclude=unneeded) for name, part in parts.items()
        }
        return identity | {
            "videos": len(self.videos),
            "others": len(self.extra_samples),
            "sources": dict(self.sources),
            "content": digest.hexdigest(),
        }

    def _read_reports(self) -> tuple[RoundReport, ...]:
        path = self.folder / REPORT_FILE
        if not path.exists():
            return ()
        try:
            trees = parse_json(path.read_text(encoding="utf-8"))
            # an older run's report has measures more
            names = RoundReport.__dataclass_fields__
            return tuple(RoundReport(**{name: tree[name] for name in names}) for tree in trees)
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"{path}: no report of rounds ({error}); remove the folder to start again"
            ) from error


def _get_training_folder(network: Path) -> Path:
    """Return the folder of checkpoint and log of a network in training."""
    return network.with_suffix(".training")
