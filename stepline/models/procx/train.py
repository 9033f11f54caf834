"""Training ProcX (section E.2), from fresh weights (pre-training) or on from a network
(fine-tuning), as one folder.

The folder is that of `training.run_folder`, and in it:

best.safetensors      the network that scored best on held-out videos, where some are held out
procx.safetensors     the final network
seed-N/               the same of each seed, where several are asked for, and seeds.json: their scores
"""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stepline.datasets.excluded import read_excluded
from stepline.errors import DatasetError, ModelError, SettingsError
from stepline.evaluate.events import Event
from stepline.evaluate.soda import soda
from stepline.features import open_video_store
from stepline.files.atomic_files import write_atomic
from stepline.limits import parse_json
from stepline.models.procx.batch import StepSample, collate
from stepline.models.procx.checkpoint import (
    NETWORK,
    LoadedProcx,
    TrainingFeatures,
    load_model,
    write_model,
)
from stepline.models.procx.dataset import StepDataset, gather_samples, steps_given_by
from stepline.models.procx.inference import (
    VideoToDescribe,
    describe_many,
    propose,
    select_proposals,
)
from stepline.models.procx.losses import count_frequencies, training_losses
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    PROCX_TRAINING,
    DataSettings,
    DescribeSettings,
    LossSettings,
    ModelSettings,
    ProcxRunSettings,
    ProcxTrainSettings,
)
from stepline.models.procx.vocabulary import Vocabulary, train_vocabulary
from stepline.models.training.distributed import is_first, start_processes
from stepline.models.training.loop import HeldOutScorer, Loss, Progress, TrainingTask
from stepline.models.training.network import UNKNOWN_SOURCES
from stepline.models.training.run import KeepBest, TrainingRun, run_training, train_network
from stepline.models.training.run_folder import (
    LOG_FILE,
    settings_that_matter,
    settings_to_train_on,
    versions,
)
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import FeatureSpec, read_records, source_flaw
from stepline.networks.device import device_of
from stepline.records import Rejected

BEST_FILE, FINAL_FILE = NETWORK.names
SEEDS_FILE = "seeds.json"
SCORING_BATCH = 16  # held-out videos
# how far from 1 the length of a unit row may be. Features are stored in half precision
UNIT_TOLERANCE = 0.01
OFFSET_LAYERS = "offsets"  # the layers of deformable attention that place its points
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


@dataclass(frozen=True)
class SeedResult:
    """The outcome of a seed's training.

    score: the best on held-out videos, None without any.
    loss: of the last step.
    """

    seed: int
    folder: Path
    score: float | None
    loss: float


def train_procx_run(
    sources: ProcxSources,
    folder: Path,
    settings: ProcxRunSettings,
    *,
    start: Path | None = None,
    seeds: int = 1,
    report: Callable[[Progress], None] | None = None,
    on_prepared: Callable[[PreparedRun], None] | None = None,
) -> list[SeedResult]:
    """Train, or resume training, a network per seed, and return the outcome of each.

    Args:
        sources: what is read.
        folder: of the run.
        settings: of the run.
        start: a network to train on.
        seeds: how many trainings, from `train.seed` on, each in its own folder where there are
            several.
        report: gets each step.
        on_prepared: called before the first step.

    Raises SettingsError when `folder` holds another run, ShapeError when nothing is left to train
    on, and what the sources raise.
    """
    device = start_processes(settings.train.device)
    # What all seeds share.
    prepared = prepare_run(sources, settings, start)
    if on_prepared is not None:
        on_prepared(prepared)
    results = []
    # A run per seed, each reproducible on its own.
    for seed in range(settings.train.seed, settings.train.seed + seeds):
        training = settings.train.model_copy(update={"seed": seed})
        seed_folder = folder / f"seed-{seed}" if seeds > 1 else folder
        _train_seed(prepared, sources, seed_folder, training, start, report, device)
        text = (seed_folder / LOG_FILE).read_text(encoding="utf-8")
        lines = [parse_json(line) for line in text.splitlines()]
        # Lines without a score are steps between two scorings.
        scores = [line["score"] for line in lines if "score" in line]
        best = max(scores, default=None)
        results.append(SeedResult(seed, seed_folder, best, lines[-1]["loss"]))
    # Of several processes one writes the summary.
    if seeds > 1 and is_first():
        write_atomic(folder / SEEDS_FILE, json.dumps(seed_summary(results), indent=2) + "\n")
    return results


def seed_summary(results: Sequence[SeedResult]) -> dict[str, Any]:
    """Return the seeds' scores and losses with their mean and spread (standard deviation of a
    sample), plain."""
    rows = [
        {
            "seed": result.seed,
            "folder": result.folder.name,
            "score": result.score,
            "loss": result.loss,
        }
        for result in results
    ]
    scores = [result.score for result in results if result.score is not None]
    losses = [result.loss for result in results]
    return {"seeds": rows, "score": _mean_and_spread(scores), "loss": _mean_and_spread(losses)}


def _mean_and_spread(values: list[float]) -> dict[str, float] | None:
    """Return mean and standard deviation of a sample. The latter is 0 of a single value. None
    without a value."""
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "spread": spread}


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
        raise DatasetError(f"{sources.steps}: {source_flaw(samples.omitted)}")
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
    own = settings_to_train_on(loaded.model.settings, settings, DROPOUT_SETTINGS, loaded.path)
    # A backbone of unknown name may be the right one.
    before = loaded.trained.backbone
    is_unknown = not {spec.backbone, before}.isdisjoint(UNKNOWN_SOURCES)
    if spec.width != own.features or spec.backbone != before and not is_unknown:
        raise ModelError(
            f"{loaded.path}: takes features of {before!r}, {own.features} wide, "
            f"not {spec.backbone!r}, {spec.width} wide; give the features that it was trained on"
        )
    return own


def _train_seed(
    prepared: PreparedRun,
    sources: ProcxSources,
    folder: Path,
    training: TrainSettings,
    start: Path | None,
    report: Callable[[Progress], None] | None,
    device: torch.device,
) -> None:
    """Train one seed's network in its folder, and write it."""
    samples = prepared.samples
    held_out = prepared.held_out
    whole = prepared.settings
    vocabulary = prepared.vocabulary

    def write(network: ProcX, path: Path) -> None:
        write_model(network, vocabulary, path, prepared.trained)

    def train(keep_best: KeepBest) -> ProcX:
        words = vocabulary if whole.data.held_out_score == "words" else None
        return train_procx(
            samples,
            folder,
            vocabulary=vocabulary,
            model=whole.model,
            loss=whole.loss,
            data=whole.data,
            settings=training,
            start=prepared.network(),
            report=report,
            device=device,
            scorer=soda_scorer(held_out, keep_best, words) if len(held_out) else None,
        )

    # what a run in the folder must have been started from to be resumed
    start_identity = None if prepared.start is None else [start, prepared.start.sha256]
    identity = {
        "settings": settings_that_matter(whole.model_copy(update={"train": training})),
        "sources": asdict(sources) | {"start": start_identity},
    }
    counts: dict[str, Any] = {
        "videos": len(samples),
        "steps": sum(samples.counts),
        "crowded": prepared.crowded,
        "held_out": len(held_out),
        "tokens": len(vocabulary),
        "omitted": samples.reasons(),
    }
    run = TrainingRun(
        folder,
        NETWORK,
        identity,
        write,
        facts={"versions": versions(), "data": counts},
        omitted=map(_omitted_row, samples.omitted),
    )
    run_training(run, train)


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
    # The layers that place sampling points may learn at a rate of their own.
    if isinstance(settings, ProcxTrainSettings) and settings.offset_rate != 1:
        task = replace(task, rates={OFFSET_LAYERS: settings.offset_rate})
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
    samples: Sequence[StepSample],
    keep: Callable[[nn.Module], None],
    vocabulary: Vocabulary | None = None,
) -> HeldOutScorer[StepSample]:
    """Return the scorer of held-out samples: SODA-D of the most confident proposals, as many as are
    counted.

    vocabulary: with it captions are written too, and the score is the mean of SODA-D and SODA-C.
    """

    def measure(network: nn.Module, batch: Sequence[StepSample]) -> tuple[float, float]:
        truth: dict[str, list[Event]] = {}
        for sample in batch:
            rows = zip(sample.spans, sample.sentences, strict=True)
            truth[sample.id] = [(start, end, sentence) for (start, end), sentence in rows]
        if vocabulary is None:
            events = _placed_events(network, batch)
            score = soda(truth, events, kind="d").f1
        else:
            events = _described_events(network, vocabulary, batch)
            places = soda(truth, events, kind="d").f1
            score = (places + soda(truth, events, kind="c").f1) / 2
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


def _described_events(
    network: ProcX, vocabulary: Vocabulary, batch: Sequence[StepSample]
) -> dict[str, list[Event]]:
    """Return the most confident proposals of each sample with their captions."""
    videos = [VideoToDescribe(sample.values, sample.duration, sample.duration) for sample in batch]
    descriptions = describe_many(network, vocabulary, videos)
    events: dict[str, list[Event]] = {}
    for sample, description in zip(batch, descriptions, strict=True):
        spans = [(step.spans[0], step.text) for step in description.steps]
        events[sample.id] = [(span.start, span.end, text) for span, text in spans]
    return events
