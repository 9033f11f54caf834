"""Training ProcX (section E.2): from fresh weights (pre-training), or from a trained network (fine-tuning).

A run is one folder, as `training.run` describes it. Its networks are

best.safetensors      the network that scored best on held-out videos, where some are held out
procx.safetensors     the final network

A video's features are read when its sample is asked for, and resized when a batch is made. A step
is at a fraction of the seconds that the features cover, since the network sees nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from stepline.datasets import DATASETS
from stepline.datasets.excluded import read_excluded
from stepline.errors import DatasetError, ModelError, SettingsError, ShapeError
from stepline.evaluate.events import Event
from stepline.evaluate.soda import soda
from stepline.features import FeatureStore, open_video_store
from stepline.models.procx.batch import StepSample, collate
from stepline.models.procx.checkpoint import (
    NETWORK,
    LoadedProcx,
    TrainingFeatures,
    load_model,
    write_model,
)
from stepline.models.procx.inference import propose, select_proposals
from stepline.models.procx.losses import compute_weighted_losses, count_frequencies
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    DataSettings,
    DescribeSettings,
    LossSettings,
    ModelSettings,
    ProcxRunSettings,
    ProcxTrainSettings,
    StepSource,
)
from stepline.models.procx.vocabulary import Vocabulary, train_vocabulary
from stepline.models.training.batches import GatheredSamples
from stepline.models.training.distributed import start_processes
from stepline.models.training.loop import HeldOutScorer, Loss, Progress, TrainingTask, train_network
from stepline.models.training.network import UNKNOWN_SOURCES
from stepline.models.training.run import (
    KeepBest,
    TrainingRun,
    fine_tuning_settings,
    package_versions,
    result_settings,
    run_training,
)
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import (
    ExcludedIds,
    Features,
    FeatureSpec,
    TrainingVideoFilter,
    explain_empty_source,
    format_reasons,
    parse_dataset_source,
    read_feature_spec,
    read_records,
)
from stepline.networks.device import device_of
from stepline.records import Record, Rejected, Step

NO_STEP = "it has no step with a place and a text"
STEP_AFTER_END = "the step lies after what is seen"
NO_TEXT = "the step has no text"


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step to find.

    Attributes:
        start: start in seconds.
        end: end in seconds.
        text: sentence that describes the step.
    """

    start: float
    end: float
    text: str


def timed_steps(record: Record, settings: DataSettings) -> Iterator[TimedStep]:
    """Yield the steps of a record with their times, in its order.

    The steps are sentences of the narration, or steps. A step annotated by people gives one item
    per annotated span. A step written or swapped by Stepline gives one item: the best span in which
    it is shown, otherwise the span in which it is said.

    Args:
        record: a video with its steps.
        settings: which part of the record gives the steps, and their wording.
    """
    target = settings.target or "steps"
    if target == "narration":
        for sentence in record.sentences:
            yield TimedStep(sentence.span.start, sentence.span.end, sentence.text)
        return
    steps: tuple[Step, ...] = getattr(record, target)
    for step in steps:
        spoken = (*step.alternatives, step.text)[0]
        spans = step.spans
        if target == "steps":
            spans = spans[:1] or ((step.said,) if step.said else ())
        for span in spans:
            text = spoken if settings.wording == "said" else step.text
            yield TimedStep(span.start, span.end, text)


@dataclass(frozen=True, slots=True)
class PendingStepSample:
    """A training video whose features are not read yet.

    Attributes:
        video: id of the video.
        steps: its annotated steps.
    """

    video: str
    steps: tuple[TimedStep, ...]


class StepDataset(GatheredSamples[PendingStepSample, StepSample]):
    """Training videos whose features are read on access.

    Its `counts` are the numbers of steps. Its `lengths` are all 1, since features are resized to
    one length.
    """

    def __init__(
        self,
        parts: Sequence[PendingStepSample],
        features: Features,
        spec: FeatureSpec | None,
        omitted: Sequence[Rejected] = (),
    ) -> None:
        shards = []
        if isinstance(features, FeatureStore):
            shards = [features[part.video].shard for part in parts]
        super().__init__(self._read, [1] * len(parts), shards, parts, omitted)
        self._features = features
        self._spec = spec
        self.counts = tuple(len(part.steps) for part in parts)

    def _read(self, index: int) -> StepSample:
        part = self.parts[index]
        stored = self._features
        features = (
            stored.read(part.video) if isinstance(stored, FeatureStore) else stored[part.video]
        )
        return StepSample(
            part.video,
            features.values,
            features.duration,
            tuple((step.start, step.end) for step in part.steps),
            tuple(step.text for step in part.steps),
        )

    @property
    def spec(self) -> FeatureSpec:
        """Backbone, width and rate of the features. Raises ShapeError if the dataset is empty."""
        if self._spec is None or not self.parts:
            raise ShapeError(
                f"no video is left to train on: {format_reasons(self.omitted)}; fix the sources"
            )
        return self._spec

    def texts(self) -> Iterator[str]:
        """Yield the sentences of all steps, from which the vocabulary is made."""
        for part in self.parts:
            yield from (step.text for step in part.steps)

    def split(self, fraction: float) -> tuple["StepDataset", "StepDataset"]:
        """Return the training part and the held-out part of the dataset.

        fraction: share of the videos that is held out. The choice depends on the video ids only.
        """
        training, held_out = self.split_parts(fraction)
        return (
            StepDataset(training, self._features, self._spec, self.omitted),
            StepDataset(held_out, self._features, self._spec),
        )


def gather_samples(
    records: Iterable[Record],
    features: Features,
    settings: DataSettings = DataSettings(),
    *,
    excluded: ExcludedIds = frozenset(),
) -> StepDataset:
    """Return the training samples of records, one per video. Only the index of a feature store is
    read.

    Args:
        records: videos with their steps.
        features: a feature store, or feature sequences by video id.
        settings: `target` is the part of a record that gives the steps. None: its `steps`.
        excluded: ids of videos to leave out, such as those of a benchmark.
    """
    join = TrainingVideoFilter(
        features, slack=settings.slack, excluded=excluded, requires_same_rate=True
    )
    parts = []
    for record in records:
        video = record.video.id
        # Whether its features can be used.
        flaw = join.reason_to_omit(video, record.video.duration, key=video)
        steps = []
        if flaw is None:
            spec, rows = read_feature_spec(features, video)
            # Its steps, as far as the features reach: a step after them cannot be seen.
            seconds = rows / spec.rate
            for step in timed_steps(record, settings):
                start = f"{step.start:g} s"
                if not step.text.strip():
                    join.omit("step", video, (NO_TEXT, start), step.text)
                elif step.start >= seconds:
                    value = f"{start} of {seconds:g} s"
                    join.omit("step", video, (STEP_AFTER_END, value), step.text)
                else:
                    steps.append(step)
        if steps:
            parts.append(PendingStepSample(video, tuple(steps)))
        else:
            join.omit("video", video, flaw or (NO_STEP, ""))
    return StepDataset(parts, features, join.specs.get("video"), join.omitted)


STEP_SOURCES: dict[str, StepSource] = {
    "reference": "reference",
    "steps": "steps",
    "transcript": "narration",
}


def default_step_source(source: str) -> StepSource:
    """Return which part of a record gives the steps if no setting says so: the annotations of the
    source's dataset, otherwise the record's steps.

    source: source of the records, as `read_records` takes it.
    """
    dataset = parse_dataset_source(source)
    return "steps" if dataset is None else STEP_SOURCES[DATASETS[dataset[0]].record_field]


BEST_FILE, FINAL_FILE = NETWORK.file_names
SCORING_BATCH = 16  # held-out videos
# how far from 1 the length of a unit row may be. Features are stored in half precision
UNIT_TOLERANCE = 0.01
# settings of a network that may change when it is trained on
DROPOUT_SETTINGS = ("dropout", "captioner.dropout")


@dataclass(frozen=True)
class ProcxSources:
    """Input data of a ProcX training run.

    Attributes:
        features: path or URL of a feature store.
        steps: the annotated videos: records, or DATASET:PATH, as `read_records` takes them.
        subset: split of `steps`, such as "train". None: all videos.
        words: further sources like `steps`, whose texts also go into the vocabulary, such as those of a later
            fine-tuning.
        excluded: files with ids of evaluation videos to leave out, written by `stepline curate
            excluded`.
    """

    features: Path | str
    steps: str
    subset: str | None = None
    words: tuple[str, ...] = ()
    excluded: tuple[Path, ...] = ()


@dataclass(frozen=True)
class PreparedRun:
    """Data, settings and initial network of a training run before its first update.

    Attributes:
        samples: training videos.
        held_out: videos on which the best network is chosen.
        settings: settings of the run, with the feature width and the target filled in.
        vocabulary: tokens of the captions.
        start: trained network to fine-tune. None: training starts from fresh weights.
        crowded_count: number of videos with more steps than the network has queries.
    """

    samples: StepDataset
    held_out: StepDataset
    settings: ProcxRunSettings
    vocabulary: Vocabulary
    start: LoadedProcx | None
    crowded_count: int

    @cached_property
    def training_features(self) -> TrainingFeatures:
        """Backbone, rate and scaling of the training features, as stored in the network's file."""
        spec = self.samples.spec
        # The first video says whether rows have length 1. Rows of zeros say nothing of it.
        lengths = np.linalg.norm(self.samples[0].values, axis=1)  # (T,)
        unit = bool(np.allclose(lengths[lengths > 0], 1.0, atol=UNIT_TOLERANCE))
        return TrainingFeatures(spec.backbone, spec.rate, unit)

    def copy_start_network(self) -> ProcX | None:
        """Return a copy of the network to fine-tune. None: training starts from fresh weights."""
        if self.start is None:
            return None
        network = ProcX(self.settings.model, len(self.vocabulary))
        network.load_state_dict(self.start.model.state_dict())
        return network


def train_procx_run(
    sources: ProcxSources,
    folder: Path,
    settings: ProcxRunSettings,
    *,
    start: Path | None = None,
    report: Callable[[Progress], None] | None = None,
    on_prepared: Callable[[PreparedRun], None] | None = None,
) -> ProcX:
    """Train a ProcX network in a run folder, or resume an interrupted run. Return the trained
    network.

    Args:
        sources: features, steps and further input data.
        folder: folder of the run.
        settings: settings of the run.
        start: file or run folder of a network to fine-tune. None: fresh weights.
        report: called with the progress after each update.
        on_prepared: called with the prepared run before the first update.

    Raises SettingsError when `folder` holds another run, ShapeError when no video is left for
    training, and the errors of the sources.
    """
    device = start_processes(settings.train.device)
    prepared = prepare_run(sources, settings, start)
    if on_prepared is not None:
        on_prepared(prepared)
    samples = prepared.samples
    held_out = prepared.held_out
    filled_settings = prepared.settings
    vocabulary = prepared.vocabulary

    def write_network(network: ProcX, path: Path) -> None:
        write_model(network, vocabulary, path, prepared.training_features)

    def train_in_folder(keep_best: KeepBest) -> ProcX:
        return train_procx(
            samples,
            folder,
            vocabulary=vocabulary,
            model=filled_settings.model,
            loss=filled_settings.loss,
            settings=filled_settings.train,
            start=prepared.copy_start_network(),
            report=report,
            device=device,
            scorer=make_soda_scorer(held_out, keep_best) if len(held_out) else None,
        )

    # what a run in the folder must have been started from to be resumed
    start_identity = None if prepared.start is None else [start, prepared.start.sha256]
    counts = {
        "videos": len(samples),
        "steps": sum(samples.counts),
        "crowded": prepared.crowded_count,
        "held_out": len(held_out),
        "tokens": len(vocabulary),
        "omitted": samples.count_reasons(),
    }
    run = TrainingRun(
        folder,
        NETWORK,
        {
            "settings": result_settings(filled_settings),
            "sources": asdict(sources) | {"start": start_identity},
        },
        write_network,
        facts={"versions": package_versions(), "data": counts},
        omitted=(
            {
                "video": row.id,
                "reason": row.reason,
                "value": row.value,
                "step": row.text if row.what == "step" else None,
            }
            for row in samples.omitted
        ),
    )
    return run_training(run, train_in_folder)


def prepare_run(
    sources: ProcxSources, settings: ProcxRunSettings, start: Path | None
) -> PreparedRun:
    """Return the samples, settings and vocabulary of a training run. `model.features` and
    `data.target` are filled in.

    Args:
        sources: features, steps and further input data.
        settings: settings of the run.
        start: file or run folder of a network to fine-tune. None: fresh weights.
    """
    # the samples
    target = settings.data.target or default_step_source(sources.steps)
    data = settings.data.model_copy(update={"target": target})
    features = open_video_store(sources.features)
    records = read_records(sources.steps, subset=sources.subset)
    samples = gather_samples(records, features, data, excluded=read_excluded(sources.excluded))
    if not (len(samples) or samples.omitted):
        raise DatasetError(f"{sources.steps}: {explain_empty_source(samples.omitted)}")
    training, held_out = samples.split(data.held_out)

    # the network
    spec = samples.spec
    model = settings.model
    describer = None if start is None else load_model(start)
    if describer is not None:
        model = _fine_tuned_model_settings(describer, model, spec)
    elif "features" in model.model_fields_set and model.features != spec.width:
        raise SettingsError(
            f"model.features={model.features}, the features have {spec.width}; leave the setting "
            "out"
        )
    else:
        model = model.model_copy(update={"features": spec.width})
    # The words: a network that is trained on keeps the vocabulary that its weights are of.
    if describer is not None:
        vocabulary = describer.vocabulary
    else:
        vocabulary = train_vocabulary(_vocabulary_texts(training, sources), settings.vocabulary)
    crowded_count = sum(count > model.queries for count in samples.counts)
    filled_settings = settings.model_copy(update={"data": data, "model": model})
    return PreparedRun(training, held_out, filled_settings, vocabulary, describer, crowded_count)


def _vocabulary_texts(samples: StepDataset, sources: ProcxSources) -> Iterator[str]:
    """Yield the sentences of the samples, then the step texts of the sources in `words`."""
    yield from samples.texts()
    for source in sources.words:
        target = default_step_source(source)
        field = "sentences" if target == "narration" else target
        count = 0
        for record in read_records(source):
            rows = getattr(record, field)
            count += len(rows)
            yield from (row.text for row in rows)
        if not count:
            raise DatasetError(
                f"{source}: holds no text for the vocabulary; correct it, or leave --words out"
            )


def _fine_tuned_model_settings(
    describer: LoadedProcx, settings: ModelSettings, spec: FeatureSpec
) -> ModelSettings:
    """Return the settings of a network to fine-tune, with the dropout of `settings`.

    Args:
        describer: the network.
        settings: settings of the run.
        spec: backbone, width and rate of the features.

    Raises ModelError if it was trained on another kind of features, SettingsError if another
    setting differs.
    """
    own = fine_tuning_settings(describer.model.settings, settings, DROPOUT_SETTINGS, describer.path)
    # A backbone of unknown name may be the right one.
    before = describer.training_features.backbone
    is_unknown = not {spec.backbone, before}.isdisjoint(UNKNOWN_SOURCES)
    if spec.width != own.features or (spec.backbone != before and not is_unknown):
        raise ModelError(
            f"{describer.path}: takes features of {before!r}, {own.features} wide, "
            f"not {spec.backbone!r}, {spec.width} wide; give the features that it was trained on"
        )
    return own


def train_procx(
    samples: Sequence[StepSample],
    folder: Path,
    *,
    vocabulary: Vocabulary,
    model: ModelSettings = ModelSettings(),
    loss: LossSettings = LossSettings(),
    settings: TrainSettings = ProcxTrainSettings(),
    start: ProcX | None = None,
    report: Callable[[Progress], None] | None = None,
    scorer: HeldOutScorer[StepSample] | None = None,
    device: str | torch.device = "cpu",
) -> ProcX:
    """Return a network trained on samples, in evaluation mode. An interrupted run in `folder` is
    resumed.

    Every video counts the same length in batching, since all are resized to one length.

    Args:
        samples: videos with their annotated steps.
        folder: folder of checkpoints and log.
        vocabulary: tokens of the captions.
        model: settings of a fresh network.
        loss: forms and weights of the losses.
        settings: length and learning rate of the training.
        start: network to train further, changed in place. None: a fresh network.
        report: called with the progress after each update.
        scorer: scores the network on held-out samples. None: no held-out score.
        device: device of the training.

    Raises ShapeError when there is no sample.
    """
    # A network that is trained on keeps its own sizes.
    sizes = start.settings if start else model
    # A dataset knows its counts without reading a sample.
    counts = getattr(samples, "counts", None)
    if counts is None:
        counts = [len(sample.spans) for sample in samples]
    # None without any sample, which the loop refuses
    rates = count_frequencies(counts, sizes.most_steps + 1) if len(samples) else None

    def losses(network: nn.Module, batch: Sequence[StepSample]) -> Sequence[Loss]:
        device = device_of(network)
        collated = collate(batch, vocabulary, sizes).to(device)
        count_rates = None if rates is None else rates.to(device)
        return compute_weighted_losses(network, collated, loss, count_rates)

    return train_network(
        lambda: start or ProcX(sizes, len(vocabulary)),
        TrainingTask(samples, lambda _: 1, lambda batch, _: list(batch), losses),
        settings,
        folder,
        report,
        scorer=scorer,
        device=device,
    )


def make_soda_scorer(
    samples: Sequence[StepSample], keep_best: Callable[[nn.Module], None]
) -> HeldOutScorer[StepSample]:
    """Return a scorer of the network on held-out videos: the SODA-D of its predicted steps.

    Args:
        samples: held-out videos.
        keep_best: called with the network whenever its score is the best so far.
    """

    def measure(network: nn.Module, batch: Sequence[StepSample]) -> tuple[float, float]:
        truth: dict[str, list[Event]] = {}
        for sample in batch:
            rows = zip(sample.spans, sample.sentences, strict=True)
            truth[sample.id] = [(start, end, sentence) for (start, end), sentence in rows]
        durations = [sample.duration for sample in batch]
        _, proposals = propose(network, [sample.values for sample in batch], durations)
        events: dict[str, list[Event]] = {}
        for sample, own in zip(batch, proposals, strict=True):
            boxes = own.boxes[select_proposals(own, DescribeSettings())]
            events[sample.id] = [(start, end, "") for start, end in boxes.tolist()]
        score = soda(truth, events, kind="d").f1
        # A sum, since the loop divides by all videos at the end.
        return score * len(batch), float(len(batch))

    return HeldOutScorer(samples, SCORING_BATCH, measure, keep_best)
