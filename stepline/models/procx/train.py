"""Training ProcX (section E.2), from fresh weights (pre-training) or on from a network
(fine-tuning), as one folder.

The folder is that of `training.run`, and in it:

best.safetensors      the network that scored best on held-out videos, where some are held out
procx.safetensors     the final network
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from stepline.datasets.excluded import read_excluded
from stepline.errors import DatasetError, ModelError, SettingsError
from stepline.evaluate.events import Event
from stepline.evaluate.soda import soda
from stepline.features import open_video_store
from stepline.models.procx.batch import StepSample, collate
from stepline.models.procx.checkpoint import (
    NETWORK,
    LoadedProcx,
    TrainingFeatures,
    load_model,
    write_model,
)
from stepline.models.procx.dataset import StepDataset, gather_samples, steps_given_by
from stepline.models.procx.inference import propose, select_proposals
from stepline.models.procx.losses import count_frequencies, training_losses
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    PROCX_TRAINING,
    DataSettings,
    DescribeSettings,
    LossSettings,
    ModelSettings,
    ProcxRunSettings,
)
from stepline.models.procx.vocabulary import Vocabulary, train_vocabulary
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
from stepline.models.training.sources import FeatureSpec, explain_empty_source, read_records
from stepline.networks.device import device_of
from stepline.records import Rejected

BEST_FILE, FINAL_FILE = NETWORK.file_names
SCORING_BATCH = 16  # held-out videos
# how far from 1 the length of a unit row may be. Features are stored in half precision
UNIT_TOLERANCE = 0.01
# settings of a network that may change when it is trained on
DROPOUT_SETTINGS = ("dropout", "captioner.dropout")


@dataclass(frozen=True)
class ProcxSources:
    """What a run reads.

    features: a store, or its URL.
    steps: as `read_records` takes them.
    subset: only that split.
    words: further sources whose texts the vocabulary is to hold, such as those of a later
    fine-tuning.
    excluded: lists that `stepline curate excluded` wrote.
    """

    features: Path | str
    steps: str
    subset: str | None = None
    words: tuple[str, ...] = ()
    excluded: tuple[Path, ...] = ()


@dataclass(frozen=True)
class PreparedRun:
    """A run before its first step. crowded: videos with more steps than the network has queries."""

    samples: StepDataset
    held_out: StepDataset
    settings: ProcxRunSettings
    vocabulary: Vocabulary
    start: LoadedProcx | None
    crowded: int

    @cached_property
    def trained(self) -> TrainingFeatures:
        """What the network's file says of its training. One that read speech before still does."""
        spec = self.samples.spec
        data = self.settings.data
        around: float | None = None
        if data.speech:
            around = data.around
        elif self.start:
            around = self.start.trained.around
        # The first video says whether rows have length 1. Rows of zeros say nothing of it.
        lengths = np.linalg.norm(self.samples[0].values, axis=1)  # (T,)
        unit = bool(np.allclose(lengths[lengths > 0], 1.0, atol=UNIT_TOLERANCE))
        return TrainingFeatures(spec.backbone, spec.rate, unit, around)

    def network(self) -> ProcX | None:
        """Return a copy of the network to train on, None for fresh weights."""
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
    """Train, or resume training, and return the network.

    Args:
        sources: what is read.
        folder: of the run.
        settings: of the run.
        start: a network to train on.
        report: gets each step.
        on_prepared: called before the first step.

    Raises SettingsError when `folder` holds another run, ShapeError when nothing is left to train
    on, and what the sources raise.
    """
    device = start_processes(settings.train.device)
    prepared = prepare_run(sources, settings, start)
    if on_prepared is not None:
        on_prepared(prepared)
    samples = prepared.samples
    held_out = prepared.held_out
    whole = prepared.settings
    vocabulary = prepared.vocabulary

    def write(network: ProcX, path: Path) -> None:
        write_model(network, vocabulary, path, prepared.trained)

    def train(keep_best: KeepBest) -> ProcX:
        return train_procx(
            samples,
            folder,
            vocabulary=vocabulary,
            model=whole.model,
            loss=whole.loss,
            data=whole.data,
            settings=whole.train,
            start=prepared.network(),
            report=report,
            device=device,
            scorer=soda_scorer(held_out, keep_best) if len(held_out) else None,
        )

    # what a run in the folder must have been started from to be resumed
    start_identity = None if prepared.start is None else [start, prepared.start.sha256]
    counts = {
        "videos": len(samples),
        "steps": sum(samples.counts),
        "crowded": prepared.crowded,
        "held_out": len(held_out),
        "tokens": len(vocabulary),
        "omitted": samples.count_reasons(),
    }
    run = TrainingRun(
        folder,
        NETWORK,
        {
            "settings": result_settings(whole),
            "sources": asdict(sources) | {"start": start_identity},
        },
        write,
        facts={"versions": package_versions(), "data": counts},
        omitted=map(_omitted_row, samples.omitted),
    )
    return run_training(run, train)


def prepare_run(
    sources: ProcxSources, settings: ProcxRunSettings, start: Path | None = None
) -> PreparedRun:
    """Return all that a run starts from. `model.features` and `data.target` are filled in."""
    # the samples
    target = settings.data.target or steps_given_by(sources.steps)
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
    loaded = None if start is None else load_model(start)
    if loaded is not None:
        model = _settings_of_start(loaded, model, spec)
    elif "features" in model.model_fields_set and model.features != spec.width:
        widths = f"model.features={model.features}, the features have {spec.width}"
        raise SettingsError(f"{widths}; leave the setting out")
    else:
        model = model.model_copy(update={"features": spec.width})
    if data.speech and model.captioner.kind == "lstm":
        raise SettingsError(
            f"data.speech={data.speech:g}: PDVC's captioner reads no speech; leave the setting out"
        )
    # The words: a network that is trained on keeps the vocabulary that its weights are of.
    if loaded is not None:
        vocabulary = loaded.vocabulary
    else:
        vocabulary = train_vocabulary(_vocabulary_texts(training, sources), settings.vocabulary)
    crowded = sum(count > model.queries for count in samples.counts)
    whole = settings.model_copy(update={"data": data, "model": model})
    return PreparedRun(training, held_out, whole, vocabulary, loaded, crowded)


def _vocabulary_texts(samples: StepDataset, sources: ProcxSources) -> Iterator[str]:
    """Yield the samples' texts, and those of the further sources' steps."""
    yield from samples.texts()
    for source in sources.words:
        target = steps_given_by(source)
        field = "sentences" if target == "narration" else target
        count = 0
        for record in read_records(source):
            rows = getattr(record, field)
            count += len(rows)
            yield from (row.text for row in rows)
        if not count:
            cure = "correct it, or leave --words out"
            raise DatasetError(f"{source}: holds no text for the vocabulary; {cure}")


def _settings_of_start(
    loaded: LoadedProcx, settings: ModelSettings, spec: FeatureSpec
) -> ModelSettings:
    """Return the settings of a network to train on, with the dropout of `settings`. Raises where
    anything else differs."""
    own = fine_tuning_settings(loaded.model.settings, settings, DROPOUT_SETTINGS, loaded.path)
    # A backbone of unknown name may be the right one.
    before = loaded.trained.backbone
    is_unknown = not {spec.backbone, before}.isdisjoint(UNKNOWN_SOURCES)
    if spec.width != own.features or (spec.backbone != before and not is_unknown):
        raise ModelError(
            f"{loaded.path}: takes features of {before!r}, {own.features} wide, "
            f"not {spec.backbone!r}, {spec.width} wide; give the features that it was trained on"
        )
    return own


def _omitted_row(row: Rejected) -> dict[str, str | None]:
    """Return what is not a sample as a line of `omitted.jsonl`."""
    step = row.text if row.what == "step" else None
    return {"video": row.id, "reason": row.reason, "value": row.value, "step": step}


def train_procx(
    samples: Sequence[StepSample],
    folder: Path,
    *,
    vocabulary: Vocabulary,
    model: ModelSettings | None = None,
    loss: LossSettings | None = None,
    data: DataSettings | None = None,
    settings: TrainSettings | None = None,
    start: ProcX | None = None,
    report: Callable[[Progress], None] | None = None,
    scorer: HeldOutScorer[StepSample] | None = None,
    device: str | torch.device = "cpu",
) -> ProcX:
    """Return a network trained on the samples, from fresh weights or on from those of `start`, in
    evaluation mode.

    A run in `folder` that was killed is resumed.

    Args:
        samples: videos with their steps.
        folder: of checkpoints and log.
        vocabulary: of the captions.
        model: settings of a fresh network.
        loss: its parts and weights.
        data: how often speech is heard, and whether wordings are drawn. None: samples as they come.
        settings: how long and how fast.
        start: is changed in place.
        report: gets each step.
        scorer: of held-out samples.
        device: on which it is trained.

    Raises ShapeError when there is nothing to train on.
    """
    settings = settings or PROCX_TRAINING
    # A network that is trained on keeps its own sizes.
    sizes = start.settings if start else model or ModelSettings()
    task = procx_task(samples, vocabulary, sizes, loss or LossSettings(), data)
    return train_network(
        lambda: start or ProcX(sizes, len(vocabulary)),
        task,
        settings,
        folder,
        report,
        scorer=scorer,
        device=device,
    )


def procx_task(
    samples: Sequence[StepSample],
    vocabulary: Vocabulary,
    model: ModelSettings,
    loss: LossSettings,
    data: DataSettings | None = None,
) -> TrainingTask[StepSample]:
    """Return what training learns. Every video counts as equally long: all are resized to one
    length."""
    # A dataset knows its counts without reading a sample.
    counts = getattr(samples, "counts", None)
    if counts is None:
        counts = [len(sample.spans) for sample in samples]
    # None without any sample, which the loop refuses
    rates = count_frequencies(counts, model.most_steps + 1) if len(samples) else None

    def losses(network: nn.Module, batch: Sequence[StepSample]) -> Sequence[Loss]:
        device = device_of(network)
        collated = collate(batch, vocabulary, model).to(device)
        count_rates = None if rates is None else rates.to(device)
        return training_losses(network, collated, loss, count_rates)

    def augment(batch: Sequence[StepSample], rng: np.random.Generator) -> list[StepSample]:
        if data is None:
            return list(batch)
        return [augment_sample(sample, data, rng) for sample in batch]

    return TrainingTask(samples, lambda _: 1, augment, losses)


def augment_sample(sample: StepSample, data: DataSettings, rng: np.random.Generator) -> StepSample:
    """Return the sample as one step sees it: with what is said or without, and one wording of each
    step, at random."""
    # With speech or in silence, so that the network can do both.
    speech = sample.speech if rng.random() < data.speech else None
    if data.wording != "any" or not sample.alternatives:
        return replace(sample, speech=speech)
    # One wording is to be said, and the others stay right for the contrast.
    sentences = []
    alternatives = []
    for sentence, further in zip(sample.sentences, sample.alternatives, strict=True):
        wordings = (sentence, *further)
        index = int(rng.integers(len(wordings)))
        sentences.append(wordings[index])
        alternatives.append(wordings[:index] + wordings[index + 1 :])
    return replace(
        sample, speech=speech, sentences=tuple(sentences), alternatives=tuple(alternatives)
    )


def soda_scorer(
    samples: Sequence[StepSample], keep: Callable[[nn.Module], None]
) -> HeldOutScorer[StepSample]:
    """Return the scorer of held-out samples: SODA-D of the most confident proposals, as many as are
    counted."""

    def measure(network: nn.Module, batch: Sequence[StepSample]) -> tuple[float, float]:
        truth: dict[str, list[Event]] = {}
        for sample in batch:
            rows = zip(sample.spans, sample.sentences, strict=True)
            truth[sample.id] = [(start, end, sentence) for (start, end), sentence in rows]
        score = soda(truth, _placed_events(network, batch), kind="d").f1
        # A sum, since the loop divides by all videos at the end.
        return score * len(batch), float(len(batch))

    return HeldOutScorer(samples, SCORING_BATCH, measure, keep)


def _placed_events(network: nn.Module, batch: Sequence[StepSample]) -> dict[str, list[Event]]:
    """Return the most confident proposals of each sample, without words."""
    values = [sample.values for sample in batch]
    proposals = propose(network, values, [sample.duration for sample in batch])
    events: dict[str, list[Event]] = {}
    for sample, video in zip(batch, proposals.videos, strict=True):
        boxes = video.boxes[select_proposals(video, DescribeSettings())]
        events[sample.id] = [(start, end, "") for start, end in boxes.tolist()]
    return events
