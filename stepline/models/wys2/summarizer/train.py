"""Training the summarizer on each segment's own importance, as one folder, and its scores in
IV-Sum's measures.

settings.json            a folder holds one run
training/                checkpoint and log, from which a killed run goes on
summarizer.safetensors   the network
run.json                 settings, counts, why videos were left out, scores on the withheld fifth of the videos

Scores are F, Kendall's tau and Spearman's rho of a video's seconds (WYS2, table 3).
Letters: B videos, S segments, C and E widths of what is seen and said.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from stepline.errors import DatasetError, ShapeError
from stepline.evaluate.video_summaries import frames_overlap, kendall_tau, spearman_rho
from stepline.features import FeatureStore
from stepline.files.atomic_files import write_atomic
from stepline.models.training.batches import Mask, pad
from stepline.models.training.distributed import one_process
from stepline.models.training.gather import FeatureJoin, reasons_in_words
from stepline.models.training.loop import Loss, Progress, TrainingTask
from stepline.models.training.run import KeepBest, TrainingRun, run_training, train_network
from stepline.models.training.run_folder import RUN_FILE
from stepline.models.training.settings import TrainSettings
from stepline.models.wys2.clips import split_videos
from stepline.models.wys2.dataset import TextEncoder
from stepline.models.wys2.settings import (
    SETTINGS_FILE,
    SUMMARIZER_TRAINING,
    SummarizerRunSettings,
    SummarizerSettings,
)
from stepline.models.wys2.summarizer.dataset import (
    ROUNDING_SECONDS,
    SegmentedVideo,
    segment_video,
    shown_seconds,
)
from stepline.models.wys2.summarizer.model import SUMMARIZER_FILE, Summarizer, write_summarizer
from stepline.models.wys2.summary import Importance
from stepline.networks.device import current_device, device_of
from stepline.records import Record, Rejected, Transcript, count_reasons

MIN_VIDEOS = 3  # for training, validation and test
NO_TIME = "no reference step has a time"
NO_NARRATION = "no narration"


def train_summarizer(
    samples: Sequence[SegmentedVideo],
    folder: Path,
    *,
    summarizer: SummarizerSettings,
    settings: TrainSettings = SUMMARIZER_TRAINING,
    report: Callable[[Progress], None] | None = None,
) -> Summarizer:
    """Return a summarizer trained on the samples, in evaluation mode. A run in `folder` that was
    killed goes on.

    Raises ShapeError when there is no sample, or when nothing or everything matters, which teaches
    nothing.
    """
    mean = 0.0
    if samples:
        means = [sample.matters.mean() for sample in samples]
        mean = float(np.mean(means))
    if not 0.0 < mean < 1.0:
        fault = f"{len(samples)} videos teach nothing, because {mean:.0%} of them matters"
        raise ShapeError(f"{fault}; give reference steps")
    task = TrainingTask(samples, _segment_count, lambda batch, _: batch, _losses)
    return train_network(lambda: Summarizer(summarizer), task, settings, folder, report)


def _segment_count(sample: SegmentedVideo) -> int:
    return len(sample.pictures)


def _losses(network: nn.Module, batch: Sequence[SegmentedVideo]) -> list[Loss]:
    """Return the binary cross-entropy of each segment's importance, over real segments."""
    device = device_of(network)
    pictures, missing = pad([sample.pictures for sample in batch])  # (B, S, C), (B, S)
    speech, _ = pad([sample.speech for sample in batch])  # (B, S, E)
    importance, _ = pad([sample.matters[:, None] for sample in batch])  # (B, S, 1)
    missing = missing.to(device)
    logits = network(pictures.to(device), speech.to(device), missing)  # (B, S)
    targets = importance[..., 0].to(device)
    losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")  # (B, S)
    is_real = ~missing
    real_losses = losses * is_real
    total = real_losses.sum()
    count = is_real.sum().float()
    return [Loss(total, count)]


def predict_importance(network: Summarizer, sample: SegmentedVideo) -> Importance:
    """Return how much each second of a video matters, in [0, 1], (ceil(S x seconds of a
    segment),)."""
    device = device_of(network)
    network.eval()
    with torch.inference_mode(), current_device().autocast():
        pictures = torch.from_numpy(sample.pictures)[None]  # (1, S, C)
        speech = torch.from_numpy(sample.speech)[None]  # (1, S, E)
        no_padding = torch.zeros(1, len(sample.pictures), dtype=torch.bool, device=device)
        logits = network(pictures.to(device), speech.to(device), no_padding)  # (1, S)
        probabilities = logits[0].float().sigmoid()
        scores = probabilities.cpu().numpy()
    # the segment of each second
    length = network.settings.seconds
    second_count = math.ceil(len(scores) * length - ROUNDING_SECONDS)
    middles = np.arange(second_count) + 0.5
    segments = (middles / length).astype(int)
    last_segment = len(scores) - 1
    segments = np.minimum(segments, last_segment)
    return np.asarray(scores[segments], dtype=np.float32)


@dataclass(frozen=True)
class SummaryScores:
    """Means over the videos in which each is defined, None where it is in none. videos: how many
    were scored."""

    f: float | None
    tau: float | None
    rho: float | None
    videos: int


def score_summaries(importances: Sequence[Importance], references: Sequence[Mask]) -> SummaryScores:
    """Return the scores of seconds (T,) of each video against those that belong in its summary,
    (T,) bool.

    A second is in the summary from .5. Numbers past the end of a reference count for nothing. Equal
    scores rank nothing: tau and rho are 0 then. Both are undefined where all seconds of a reference
    are alike.
    """
    f_scores = []
    taus = []
    rhos = []
    for scores, reference in zip(importances, references, strict=True):
        f, tau, rho = _scores(scores[: len(reference)], reference)
        f_scores.append(f)
        taus.append(tau)
        rhos.append(rho)
    return SummaryScores(
        f=_mean(f_scores), tau=_mean(taus), rho=_mean(rhos), videos=len(importances)
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are defined, None where no value is."""
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    return float(np.mean(defined))


def _scores(scores: Importance, truth: Mask) -> tuple[float | None, float | None, float | None]:
    """Return F, tau and rho of one video."""
    reference = truth.astype(np.float64)
    overlap = frames_overlap(scores, reference)
    f = None if overlap is None else overlap.f
    # Where all seconds are alike, no order of them is right or wrong.
    if truth.all() or not truth.any():
        return f, None, None
    tau = kendall_tau(scores, reference) or 0.0
    rho = spearman_rho(scores, reference) or 0.0
    return f, tau, rho


@dataclass
class SummarizerDataset:
    """Videos as segments, the seconds that belong in a summary of each, (T,) bool, and why videos
    were left out."""

    samples: list[SegmentedVideo] = field(default_factory=list)
    shown: list[Mask] = field(default_factory=list)
    omitted: list[Rejected] = field(default_factory=list)

    def of_videos(self, videos: frozenset[str]) -> "SummarizerDataset":
        """Return some of the videos."""
        part = SummarizerDataset()
        for sample, shown_seconds_of_video in zip(self.samples, self.shown, strict=True):
            if sample.id in videos:
                part.samples.append(sample)
                part.shown.append(shown_seconds_of_video)
        return part


@dataclass(frozen=True)
class TrainedSummarizer:
    """The network, how many videos taught it, and its scores on those that were withheld."""

    network: Summarizer
    videos: int
    scores: SummaryScores


def gather_summaries(
    records: Iterable[Record],
    features: FeatureStore,
    encode: TextEncoder | None,
    settings: SummarizerSettings,
    transcripts: Mapping[str, Transcript] | None = None,
) -> SummarizerDataset:
    """Return the videos of records with reference steps. encode: sentences to vectors, None: speech
    is not used.

    A video without features, without the time of any step, or without the speech that is used is
    left out and counted.
    """
    join = FeatureJoin(features)
    dataset = SummarizerDataset(omitted=join.omitted)
    for record in records:
        video = record.video.id
        if record.transcript is None and transcripts and video in transcripts:
            transcript = transcripts[video]
            record = record.model_copy(update={"transcript": transcript})
        # why it cannot be used
        flaw = join.flaw(video)
        if flaw is None and not any(step.spans for step in record.reference):
            flaw = (NO_TIME, "")
        if flaw is None and encode is not None and not record.sentences:
            flaw = (NO_NARRATION, "")
        if flaw is not None:
            join.omit("video", video, flaw)
            continue
        # its segments
        rows = features.read(video)
        widths = {"video_width": rows.values.shape[1], "text_width": 0}
        vectors = None
        if encode is not None:
            vectors = encode([sentence.text for sentence in record.sentences])
            widths["text_width"] = vectors.shape[1]
        video_record = record.model_copy(update={"id": video})
        video_settings = settings.model_copy(update=widths)
        sample = segment_video(video_record, rows, vectors, video_settings)
        dataset.samples.append(sample)
        dataset.shown.append(shown_seconds(record, rows.duration))
    return dataset


def train_summarizer_run(
    dataset: SummarizerDataset,
    folder: Path,
    settings: SummarizerRunSettings,
    *,
    video: str = "",
    text: str = "",
    report: Callable[[Progress], None] | None = None,
) -> TrainedSummarizer:
    """Train on four fifths of the videos, score the rest, and write the folder.

    video, text: what gave features and sentence vectors, kept in the file. Raises DatasetError when
    fewer than three videos are left, SettingsError when the folder holds a run with other settings.
    """
    if len(dataset.samples) < MIN_VIDEOS:
        reasons = reasons_in_words(dataset.omitted)
        count = f"{len(dataset.samples)} videos to train on, {MIN_VIDEOS} are needed"
        raise DatasetError(f"{count}; left out: {reasons}")
    one_process("train summarizer")

    def write(outcome: TrainedSummarizer, path: Path) -> None:
        write_summarizer(outcome.network, path, video=video, text=text)

    def train(_: KeepBest) -> TrainedSummarizer:
        ids = [sample.id for sample in dataset.samples]
        # Four fifths to train on. Nothing is chosen by validation.
        train_ids, validation_ids, held_out_ids = split_videos(ids, settings.train.seed)
        training = dataset.of_videos(train_ids | validation_ids)
        held_out = dataset.of_videos(held_out_ids)
        # the network is as wide as its inputs
        first = training.samples[0]
        _, video_width = first.pictures.shape
        _, text_width = first.speech.shape
        widths = {"video_width": video_width, "text_width": text_width}
        network = train_summarizer(
            training.samples,
            folder / "training",
            summarizer=settings.summarizer.model_copy(update=widths),
            settings=settings.train,
            report=report,
        )
        importances = [predict_importance(network, sample) for sample in held_out.samples]
        scores = score_summaries(importances, held_out.shown)
        return TrainedSummarizer(network, len(training.samples), scores)

    # The folder holds one run.
    identity = settings.model_dump(mode="json")
    run = TrainingRun(folder, identity, write, final=SUMMARIZER_FILE, identity_file=SETTINGS_FILE)
    trained = run_training(run, train)
    # What it was, and what it came to.
    outcome = {
        "settings": identity,
        "videos": trained.videos,
        "omitted": count_reasons(dataset.omitted),
        "withheld": asdict(trained.scores),
    }
    text_of_run = json.dumps(outcome, indent=1)
    write_atomic(folder / RUN_FILE, f"{text_of_run}\n")
    return trained
