"""Self-training: label where the steps are said, train, label anew by the network's own matrix,
train (section 3.3).

Everything a round makes is on disk, so that a killed run goes on where it was:

    out/run.json                     what the run is; another run does not go on in its folder
    out/round-N/labels.json          {video: [[start, end] or null, ...]}
    out/round-N/teacher-M.safetensors    networks that this round's labels trained, stopped early
    out/report.json                  a `RoundReport` a round
    out/aligner.safetensors          the final network, trained on the last round's labels

Differs from the paper: several teachers of other seeds label together, and a text on which they
disagree may lose its label (`refine.agree`); one teacher, `position="start"` and a threshold are
the paper's. Several processes (torchrun) share each batch of training, and the batches of
labelling; the first one writes. Letters: K texts, T feature rows.
"""

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from stepline.atomic_files import write_atomic
from stepline.errors import ShapeError, StoreError
from stepline.limits import parse_json
from stepline.nasva.checkpoint import FeatureSpace, read_aligner, write_aligner
from stepline.nasva.model import Aligner
from stepline.nasva.pseudo_labels import (
    LabelCandidates,
    RoundReport,
    RowIndices,
    StepSpans,
    StepVideo,
    alignable_fraction,
    best_scores,
    choose_labels,
    concatenate_samples,
    cosine_similarity,
    fraction_inside,
    iterate_matrices,
    label_candidates,
    label_shift,
    labelled_fraction,
    lie_near,
    read_labels,
    step_samples,
    teacher_agreement,
    unlabelled_samples,
    with_foreign_texts,
    write_labels,
)
from stepline.nasva.settings import AlignerLossSettings, AlignerNetworkSettings, SelfTrainSettings
from stepline.nasva.train import train_aligner
from stepline.records import Matrix
from stepline.training.batches import Sample
from stepline.training.distributed import (
    first_says,
    first_then_all,
    gather_from_all,
    is_first,
    rank_and_world_size,
    start_processes,
    wait_for_all,
)
from stepline.training.loop import Progress
from stepline.training.run_folder import claim_run_folder, versions
from stepline.training.settings import NO_EFFECT_ON_RESULT, TrainSettings

log = logging.getLogger(__name__)

SEED_STEP = 1000  # between the seeds of teachers of one round, so that no two runs share a teacher


@dataclass(frozen=True)
class SelfTrainingResult:
    """What self-training made: the final network, the labels of each video that it learnt, a report
    a round."""

    network: Aligner
    labels: tuple[StepSpans, ...]
    rounds: tuple[RoundReport, ...]


@dataclass(frozen=True)
class SelfTraining:
    """A run: the videos, the other samples that only the final network sees (narrations), and all
    settings."""

    videos: Sequence[StepVideo]
    folder: Path
    others: Sequence[Sample] = ()
    model: AlignerNetworkSettings = field(default_factory=AlignerNetworkSettings)
    loss: AlignerLossSettings = field(default_factory=AlignerLossSettings)
    training: TrainSettings = field(default_factory=TrainSettings)
    settings: SelfTrainSettings = field(default_factory=SelfTrainSettings)
    # where the videos come from, to tell runs apart
    sources: Mapping[str, str | None] = field(default_factory=dict)
    space: FeatureSpace | None = None  # whose features they are, for the networks' files to say
    progress: Callable[[str, Progress], None] | None = None

    def run(self) -> SelfTrainingResult:
        """Do, or go on with, all rounds and the final training.

        Raises ShapeError when hardly a text keeps a label, SettingsError when the folder holds
        another run, StoreError when a file of it is damaged.
        """
        start_processes(self.training.device)
        first_then_all(self._claim)
        reports = self._reports()
        wait_for_all()
        while not self._done(reports):
            reports = (*reports, self._round(len(reports)))
            if is_first():
                tree = [asdict(one) for one in reports]
                write_atomic(self.folder / "report.json", json.dumps(tree, indent=1) + "\n")
                log.info("%s", reports[-1])
        labels = self._labels(len(reports) - 1)
        # what lost its label is a target too
        keep_all = self.model.alignability and self.loss.alignability == "kept"
        samples = concatenate_samples(
            step_samples(self.videos, labels, keep_all=keep_all), self.others
        )
        return SelfTrainingResult(self._trained("aligner", samples, self.training), labels, reports)

    def _done(self, reports: Sequence[RoundReport]) -> bool:
        """Tell whether no further round is to be made: enough of them, or two agree on held-out
        videos."""
        if not reports:
            return False
        agreed = reports[-1].agreement
        return len(reports) > self.settings.rounds or (
            agreed is not None and agreed >= self.settings.enough
        )

    def _round(self, number: int) -> RoundReport:
        began = time.process_time()
        labels = self._labels(number)
        report = RoundReport(
            number, sum(len(places) for places in labels), labelled_fraction(labels)
        )
        if number:
            apart, iou = label_shift(self._labels(number - 1), labels)
            report = replace(report, moved=apart, iou=iou)
        if number < self.settings.rounds:  # the last round's labels train the final network alone
            report = self._judge(number, report)
        truths = [video.truth for video in self.videos if video.truth is not None]
        if len(truths) == len(self.videos):  # of simulated videos
            inside, shown = fraction_inside(labels, truths, self._rates())
            report = replace(report, inside=inside, shown=shown)
        return replace(report, cpu_seconds=time.process_time() - began)

    def _judge(self, number: int, report: RoundReport) -> RoundReport:
        """Return the report with what this round's teachers say of texts that they did not train
        on."""
        held = [self.videos[index] for index in self._held_out()]
        teachers = self._teachers(number)
        own, rows = self._best(teachers, held)
        foreign, _ = self._best(teachers, with_foreign_texts(held))
        agreed = None
        if number:
            same = [self.settings.same * one.rate for one in held]
            agreed = teacher_agreement(self._best(self._teachers(number - 1), held)[1], rows, same)
        return replace(report, alignable=alignable_fraction(own, foreign), agreement=agreed)

    # ------------------------------------------------------------ what a round makes

    def _labels(self, number: int) -> tuple[StepSpans, ...]:
        """Return the labels of a round, from disk where they are."""
        path = self.folder / f"round-{number}" / "labels.json"
        if first_says(path.exists()):
            return read_labels(path, [(video.id, len(video.said)) for video in self.videos])
        if number:
            found: dict[int, LabelCandidates] = {}
            refine = self.settings.refine
            for index, each in self._matrices(self._teachers(number - 1), self.videos):
                video = self.videos[index]
                found[index] = label_candidates(
                    each, video.rate, refine, video.places(refine.agree_with)
                )
            found = gather_from_all(found)
            labels = choose_labels([found[index] for index in range(len(found))], refine)
        else:
            labels = self._first()
        if is_first():
            write_labels(path, [video.id for video in self.videos], labels)
        wait_for_all()
        return labels

    def _first(self) -> tuple[StepSpans, ...]:
        if self.settings.first == "asr":
            return tuple(video.said for video in self.videos)
        if self.settings.first == "agreed":
            return tuple(self._agreed(video) for video in self.videos)
        changes = {
            "threshold": 0.0,
            "threshold_kind": "quantile",
            "agree": None,
            "position": "center",
            "seconds": None,
        }
        grown = self.settings.refine.model_copy(update=changes)
        read = ((video.rate, *video.read()) for video in self.videos)
        likeness = (
            (rate, cosine_similarity(features.values, vectors)) for rate, features, vectors in read
        )
        return choose_labels(
            [label_candidates([cosines], rate, grown) for rate, cosines in likeness], grown
        )

    def _agreed(self, video: StepVideo) -> StepSpans:
        """Return where a video's steps are said, of those that the record has shown there too."""
        middles = np.array([math.nan if span is None else span.center for span in video.said])
        near = lie_near(middles, video.shown, self.settings.refine.agree or 0.0)
        return tuple(
            span if is_near else None
            for span, is_near in zip(video.said, near.tolist(), strict=True)
        )

    def _teachers(self, number: int) -> list[Aligner]:
        """Return the networks that a round's labels trained, all but the held-out videos, from disk
        where they are."""
        held = set(self._held_out())
        labels = self._labels(number)
        seen = [index for index in range(len(self.videos)) if index not in held]
        samples = step_samples(
            [self.videos[index] for index in seen], [labels[index] for index in seen]
        )
        teachers = []
        for which in range(self.settings.teachers):
            changes = {
                "epochs": self.settings.teacher_epochs,
                "seed": self.training.seed + SEED_STEP * which,
            }
            training = self.training.model_copy(update=changes)
            teachers.append(self._trained(f"round-{number}/teacher-{which}", samples, training))
        return teachers

    def _trained(self, name: str, samples: Sequence[Sample], settings: TrainSettings) -> Aligner:
        path, device = self.folder / f"{name}.safetensors", start_processes(self.training.device)
        if not first_says(path.exists()):
            if not samples:
                raise ShapeError(
                    "no step has a label to train on; lower coarse.floor, or look at the transcripts"
                )
            report = partial(self.progress, name) if self.progress is not None else None
            folder = self.folder / f"{name}.training"
            trained = train_aligner(
                samples,
                folder,
                model=self.model,
                loss=self.loss,
                settings=settings,
                report=report,
                device=device,
            )
            if is_first():
                write_aligner(trained, path, self.space)
                shutil.rmtree(folder)
            wait_for_all()
        network = read_aligner(path)
        network.to(device)
        return network

    # ------------------------------------------------------------ what the run is

    def _claim(self) -> None:
        """Write what the run is, or raise SettingsError where its folder holds another."""
        digest = hashlib.sha256(b"[")
        for number, video in enumerate(self.videos):  # as of the list's whole repr
            content = (
                video.id,
                video.rows,
                video.said,
                *([video.shown] if self.settings.asks_where_shown else []),
            )
            digest.update(f"{', ' if number else ''}{content!r}".encode())
        digest.update(b"]")
        parts = {
            "model": self.model,
            "loss": self.loss,
            "training": self.training,
            "settings": self.settings,
        }
        settings = {
            name: part.model_dump(mode="json", exclude=set(NO_EFFECT_ON_RESULT))
            for name, part in parts.items()
        }
        counts = {"videos": len(self.videos), "others": len(self.others)}
        run = settings | counts | {"sources": dict(self.sources), "content": digest.hexdigest()}
        claim_run_folder(self.folder, run, {"versions": versions()})

    def _reports(self) -> tuple[RoundReport, ...]:
        path = self.folder / "report.json"
        if not path.exists():
            return ()
        try:
            return tuple(
                RoundReport(**tree) for tree in parse_json(path.read_text(encoding="utf-8"))
            )
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"{path}: no report of rounds ({error}); remove the folder to start again"
            ) from error

    def _held_out(self) -> list[int]:
        """Return the videos that no teacher sees; none where no further round asks for them."""
        count = round(self.settings.held_out * len(self.videos)) if self.settings.rounds else 0
        chosen = np.random.default_rng([self.training.seed, len(self.videos)]).permutation(
            len(self.videos)
        )[:count]
        return sorted(chosen.tolist())

    def _rates(self) -> list[float]:
        return [video.rate for video in self.videos]

    def _matrices(
        self, networks: Sequence[Aligner], videos: Sequence[StepVideo]
    ) -> Iterator[tuple[int, list[Matrix]]]:
        """Yield this process's share of the videos, each by its place, and every network's matrix
        of it."""
        rank, size = rank_and_world_size()
        return iterate_matrices(networks, unlabelled_samples(videos), rank=rank, of=size)

    def _best(
        self, networks: Sequence[Aligner], videos: Sequence[StepVideo]
    ) -> tuple[list[Matrix], list[RowIndices]]:
        """Return the best score of each video's texts by all networks together, and the row that
        has it, (K,) both."""
        best: dict[int, tuple[Matrix, RowIndices]] = {}
        for index, each in self._matrices(networks, videos):
            mean = np.asarray(np.mean(each, axis=0), dtype=np.float32)
            best[index] = best_scores(mean), mean.argmax(axis=1)
        best = gather_from_all(best)
        order = range(len(videos))
        return [best[index][0] for index in order], [best[index][1] for index in order]
