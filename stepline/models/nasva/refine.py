"""`stepline refine`: self-training on the steps of a dataset. It writes localized steps and a
network.

out/refined.parquet    records with the label of each kept step as its span, and the other steps under `dropped`
out/omitted.jsonl      videos that are in no round, with the reasons
out/vectors            text vectors that the run made itself

The files of `SelfTraining` are there as well: labels, teachers, report, aligner.safetensors.

Self-training (section 3.3): train on labels where steps are said, label again by the networks'
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from stepline.datasets.excluded import read_excluded
from stepline.datasets.registry import DATASETS
from stepline.errors import DatasetError, SettingsError, ShapeError, StoreError
from stepline.features import FeatureLocation, FeatureStore, open_video_store
from stepline.files.atomic_files import write_atomic
from stepline.grounding.fusion import picture_status
from stepline.grounding.speech import place_steps
from stepline.limits import parse_json
from stepline.models.nasva.checkpoint import NETWORK, read_aligner, write_aligner
from stepline.models.nasva.dataset import (
    NO_TEXT,
    AlignerSamples,
    explain_other_texts,
    gather_samples,
    match_vector_rows,
    omitted_to_row,
)
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
    RefineRunSettings,
    SelfTrainSettings,
)
from stepline.models.nasva.train import FINAL_FILE, train_aligner
from stepline.models.training.batches import Sample, join_samples
from stepline.models.training.distributed import (
    broadcast_from_first,
    call_first_then_all,
    gather_from_all,
    is_first,
    rank_and_world_size,
    start_processes,
    wait_for_all,
)
from stepline.models.training.loop import Progress
from stepline.models.training.network import FeatureSpace
from stepline.models.training.run import (
    OMITTED_FILE,
    TrainingRun,
    package_versions,
    run_training,
    write_omitted,
)
from stepline.models.training.settings import NO_EFFECT_ON_RESULT, TextKind, TrainSettings
from stepline.models.training.sources import (
    ExcludedIds,
    TextEncoder,
    TrainingVideoFilter,
    is_feature_store,
    iterate_labelled_texts,
    load_text_encoder,
    open_or_store_text_vectors,
    parse_dataset_source,
    read_labelled_texts,
    read_records,
)
from stepline.numeric import unit_rows
from stepline.records import FeatureSequence, Matrix, Record, Rejected, Span
from stepline.storage import write_parquet

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


REFINED_FILE = "refined.parquet"
# the text encoder that says which sentence speaks of a step, unless `coarse.encoder` names another
LINKING_ENCODER = "minilm"
TEXT_BACKBONES = ("clip", "internvideo", "s3d")  # that have a text encoder of their own
NO_LABEL_REASON = (
    "no label after self-training: its best score is too low, or the teachers disagree"
)


@dataclass(frozen=True)
class RefineSources:
    """What a run reads.

    Attributes:
        dataset: source of records with steps, for `read_records`.
        features: path or URL of a store of the videos' features.
        step_vectors: a store of the steps' text vectors, or an encoder's name for
            `load_text_encoder`.
        narrations: source of sentences that the final network is also trained on, for
            `read_labelled_texts`. None: steps only.
        narration_vectors: a store of the sentences' vectors, or an encoder's name. None: the store
            in `narrations` if it is one, else the steps' encoder, or MiniLM if that is a store.
        excluded: files of excluded videos, written by `stepline curate excluded`.
    """

    dataset: str
    features: Path | str
    step_vectors: str = LINKING_ENCODER
    narrations: str | None = None
    narration_vectors: str | None = None
    excluded: tuple[Path, ...] = ()

    def narration_vector_source(self) -> str:
        """Return where the text vectors of the narrations come from: path of a store, or name of an
        encoder, which must be that of the steps' vectors."""
        if self.narration_vectors:
            return self.narration_vectors
        if self.narrations and is_feature_store(self.narrations):
            return self.narrations
        if is_feature_store(self.step_vectors):
            return LINKING_ENCODER
        return self.step_vectors


@dataclass(frozen=True)
class RefineResult:
    """Result of a run.

    Attributes:
        trained: the final network, its labels and the reports of the rounds.
        videos: number of videos that were labelled.
        omitted: videos and texts that were left out, with the reasons.
    """

    trained: SelfTrainingResult
    videos: int
    omitted: tuple[Rejected, ...]


def refine_dataset(
    sources: RefineSources,
    folder: Path,
    settings: RefineRunSettings = RefineRunSettings(),
    progress: Callable[[str, Progress], None] | None = None,
) -> RefineResult:
    """Localize the steps of a dataset by self-training and write them. A run that was stopped is
    resumed.

    Under torchrun the processes share the work and the first one writes.

    Args:
        sources: records, features and text vectors.
        folder: folder of the run.
        settings: settings of the run.
        progress: called with the name of the network and its progress after each training step.

    Raises ShapeError when no video is left or hardly any text keeps a label, SettingsError when the
    folder holds another run or videos are to be held out, and what the sources raise.
    """
    dataset = parse_dataset_source(sources.dataset)
    if dataset is not None and DATASETS[dataset[0]].record_field == "reference":
        raise DatasetError(
            f"{sources.dataset}: people placed its steps already; `stepline train nasva` learns "
            "from them; give records with steps to place"
        )
    if settings.data.held_out:
        raise SettingsError("data.held_out: refine trains on every video; leave the setting out")
    start_processes(settings.train.device)
    features = open_video_store(sources.features)
    excluded = read_excluded(sources.excluded)
    step_texts = iterate_labelled_texts(read_records(sources.dataset), "step")
    vectors = call_first_then_all(
        lambda: open_or_store_text_vectors(
            sources.step_vectors, step_texts, folder / "vectors" / "step"
        )
    )
    reader = _VideoReader(features, vectors, settings, excluded, sources.step_vectors)
    # The videos whose steps can be placed.
    read = map(reader.read, read_records(sources.dataset))
    videos = [video for video in read if video is not None]
    vectors.forget_texts()
    narrations = _gather_narrations(sources, folder, settings, features, excluded)
    omitted = tuple(reader.omitted)
    if narrations:
        omitted += narrations.omitted
    if is_first():
        write_omitted(folder, map(omitted_to_row, omitted))
    if not videos:
        raise ShapeError(
            f"{sources.dataset}: no video has steps and features; see {folder / OMITTED_FILE}"
        )
    stored = features[videos[0].id]
    text = vectors[videos[0].id]
    if narrations is not None:
        _check_same_encoder(narrations, text)
    widths = {"video_width": stored.width, "text_width": text.width}
    trained = SelfTraining(
        videos,
        folder,
        narrations or (),
        settings.model.model_copy(update=widths),
        settings.loss,
        settings.train,
        settings.rounds,
        {name: str(value) for name, value in asdict(sources).items()},
        FeatureSpace(stored.backbone, text.backbone, stored.rate),
        progress,
    ).run()
    labels = dict(zip((video.id for video in videos), trained.labels, strict=True))
    if is_first():
        records = make_refined_records(read_records(sources.dataset), labels)
        write_parquet(records, folder / REFINED_FILE)
    wait_for_all()
    return RefineResult(trained, len(labels), omitted)


def _gather_narrations(
    sources: RefineSources,
    folder: Path,
    settings: RefineRunSettings,
    features: FeatureStore,
    excluded: ExcludedIds,
) -> AlignerSamples | None:
    """Return training samples of the narrations, or None without a source of them."""
    if sources.narrations is None:
        return None
    texts = partial(read_labelled_texts, sources.narrations, "narration")
    encoder = sources.narration_vector_source()
    vectors_folder = folder / "vectors" / "narration"
    vectors = call_first_then_all(
        lambda: open_or_store_text_vectors(encoder, texts(), vectors_folder)
    )
    stores: dict[TextKind, FeatureStore] = {"narration": vectors}
    return gather_samples(texts(), features, stores, settings.data, excluded=excluded)


def _check_same_encoder(narrations: AlignerSamples, steps: FeatureLocation) -> None:
    encoder = narrations.get_space().text
    width = narrations.get_widths()[1]
    if (encoder, width) != (steps.backbone, steps.width):
        raise ShapeError(
            f"the narrations' vectors are of {encoder!r}, {width} wide, the steps' of "
            f"{steps.backbone!r}, {steps.width} wide; give --narration-vectors of the steps' "
            "encoder"
        )


def make_refined_records(
    records: Iterator[Record], labels: Mapping[str, StepSpans]
) -> Iterator[Record]:
    """Yield the records of videos that have labels, with the labels as the steps' spans.

    Args:
        records: the records. Only the first one of each video is used.
        labels: by video id, the label of each step. A step with None is moved to `dropped`.
    """
    remaining = dict(labels)
    for record in records:
        spans = remaining.pop(record.video.id, None)  # a video counts once
        if spans is None:
            continue
        steps = []
        dropped = [*record.dropped]
        for step, span in zip(record.steps, spans, strict=True):
            if span is None:
                dropped.append(Rejected(what="step", text=step.text, reason=NO_LABEL_REASON))
            else:
                changes = {"spans": (span,), "at": None, **picture_status("network")}
                steps.append(step.model_copy(update=changes))
        yield record.model_copy(update={"steps": tuple(steps), "dropped": tuple(dropped)})


class _VideoReader:
    """Turns records into videos whose steps can be localized, and notes why others cannot."""

    def __init__(
        self,
        features: FeatureStore,
        vectors: FeatureStore,
        settings: RefineRunSettings,
        excluded: ExcludedIds = frozenset(),
        step_vectors: str = LINKING_ENCODER,
    ) -> None:
        self._step_vectors = step_vectors  # the store `vectors`, or the encoder that made it
        self._features = features
        self._vectors = vectors
        self._settings = settings
        self._join = TrainingVideoFilter(features, slack=settings.data.slack, excluded=excluded)
        self._encode: TextEncoder | None = None
        self.omitted = self._join.omitted

    def read(self, record: Record) -> StepVideo | None:
        """Return the video of a record, or None after noting why it cannot be used."""
        id = record.video.id
        missing = None if record.steps else NO_TEXT
        omit_reason = self._join.reason_to_omit(
            id, record.video.duration, key=id, missing=missing, vectors=self._vectors
        )
        texts = next(iterate_labelled_texts([record], "step"))
        rows = match_vector_rows(texts, self._vectors) if omit_reason is None else None
        if rows is None:
            self._join.omit("step", id, omit_reason or explain_other_texts(texts, self._vectors))
            return None
        max_rows = self._settings.data.longest

        def read_inputs() -> tuple[FeatureSequence, Matrix]:
            return self._features.read(id, slice(max_rows)), self._vectors.matrix(id)[rows]

        # Rows that training does not see do not count here either.
        stored = self._features[id]
        length = min(stored.rows, max_rows)
        said_spans = self._get_said_spans(record, length / stored.rate)
        return StepVideo(id, said_spans, length, stored.rate, read_inputs, shard=stored.shard)

    def _get_said_spans(self, record: Record, seconds: float) -> StepSpans:
        """Return where each step is said: as the record has it, else by similarity to the narration
        (section 3.1).

        A record with spans, but without `said` (HowToStep's own), has its first labels in its best
        spans.
        """
        # As the record has it.
        spans = [step.said for step in record.steps]
        unknown = all(span is None for span in spans)
        if unknown and (self._settings.said == "given" or not record.sentences):
            spans = [next(iter(step.spans), None) for step in record.steps]
            unknown = all(span is None for span in spans)
        # By likeness to the narration.
        if record.sentences and (unknown or self._settings.said == "likeness"):
            by_step = self._find_said_spans(record)
            spans = [by_step.get(step.id) for step in record.steps]
        # What is past the last row is nowhere.
        return tuple(span if span is not None and span.start < seconds else None for span in spans)

    def _find_said_spans(self, record: Record) -> dict[str, Span | None]:
        """Return step id -> span of the most similar sentences, None if no sentence is similar."""
        if self._encode is None:
            self._encode = self._load_linking_encoder()
        settings = self._settings.coarse
        step_probabilities = None
        if settings.matching == "line-model" and record.transcript is not None:
            from stepline.writing.extractive.writer import transcript_step_probabilities

            step_probabilities = transcript_step_probabilities(record.transcript)
        sentences = record.sentences
        # A record that states no duration lasts until its last sentence ends.
        last_end = max(sentence.span.end for sentence in sentences)
        steps, _ = place_steps(
            record.steps,
            sentences,
            self._encode([step.text for step in record.steps]),
            self._encode([sentence.text for sentence in sentences]),
            duration=record.video.duration or last_end,
            settings=settings,
            step_probabilities=step_probabilities,
        )
        return {step.id: step.said for step in steps}

    def _load_linking_encoder(self) -> TextEncoder:
        """Return the text encoder (g of section 3.1) that compares steps with sentences, by unit vectors.

        Raises SettingsError if it belongs to a backbone and the settings do not name its weights.
        """
        settings = self._settings.coarse
        name = LINKING_ENCODER if settings.matching == "line-model" else settings.encoder
        if name == "backbone" and not is_feature_store(self._step_vectors):
            name = self._step_vectors
        if name == "backbone":
            backbone = self._vectors.backbone
            if backbone in TEXT_BACKBONES:
                raise SettingsError(
                    f"{self._step_vectors}: steps and sentences are compared by {backbone}'s text "
                    f"encoder, whose weights are not named; set coarse.encoder={backbone}:WEIGHTS, "
                    "or minilm"
                )
            name = LINKING_ENCODER
        encode = load_text_encoder(name)
        return encode if name == LINKING_ENCODER else lambda texts: unit_rows(encode(texts))
