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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from stepline.atomic_files import write_atomic
from stepline.device import current_device, device_of
from stepline.errors import DatasetError, ShapeError
from stepline.evaluate.video_summaries import frames_overlap, kendall_tau, spearman_rho
from stepline.features import FeatureStore
from stepline.records import Record, Rejected, Transcript, count_reasons
from stepline.training.batches import Mask, pad
from stepline.training.distributed import one_process, start_processes
from stepline.training.gather import FeatureJoin, reasons_in_words
from stepline.training.loop import Loss, Progress, TrainingTask, fit
from stepline.training.run_folder import RUN, claim_run_folder
from stepline.training.settings import TrainSettings
from stepline.wys2.clips import split_videos
from stepline.wys2.dataset import TextEncoder
from stepline.wys2.settings import (
    SETTINGS_FILE,
    SUMMARIZER_TRAINING,
    SummarizerRunSettings,
    SummarizerSettings,
)
from stepline.wys2.summarizer.dataset import SegmentedVideo, segment_video, shown_seconds
from stepline.wys2.summarizer.model import SUMMARIZER, Summarizer, write_summarizer
from stepline.wys2.summary import Importance

NO_TIME, NO_NARRATION = "no reference step has a time", "no narration"


def train_summarizer(
    samples: Sequence[SegmentedVideo],
    folder: Path,
    *,
    summarizer: SummarizerSettings,
    settings: TrainSettings = SUMMARIZER_TRAINING,
    report: Callable[[Progress], None] | None = None,
) -> Summarizer:
    """Return a summarizer trained on the samples, at rest. A run in `folder` that was killed is
    taken up.

    Raises ShapeError when there is no sample, or when nothing or everything matters, which teaches
    nothing.
    """
    mean = float(np.mean([sample.matters.mean() for sample in samples])) if samples else 0.0
    if not 0.0 < mean < 1.0:
        raise ShapeError(
            f"{len(samples)} videos of which {mean:.0%} matters teach nothing; give reference steps"
        )
    torch.manual_seed(settings.seed)  # of fresh weights
    network = Summarizer(summarizer)
    network.to(start_processes(settings.device))
    task = TrainingTask(samples, lambda sample: len(sample.seen), lambda batch, _: batch, _losses)
    fit(network, task, settings, folder, report)
    return network


def _losses(network: nn.Module, batch: Sequence[SegmentedVideo]) -> list[Loss]:
    """Return the binary cross-entropy of each segment's importance, over real segments."""
    device = device_of(network)
    seen, missing = pad([sample.seen for sample in batch])  # (B, S, C), (B, S)
    said, _ = pad([sample.said for sample in batch])  # (B, S, E)
    matters, _ = pad([sample.matters[:, None] for sample in batch])  # (B, S, 1)
    logits = network(seen.to(device), said.to(device), missing.to(device))  # (B, S)
    real = (~missing).to(device)
    # (B, S)
    losses = F.binary_cross_entropy_with_logits(
        logits, matters[..., 0].to(device), reduction="none"
    )
    return [Loss((losses * real).sum(), real.sum().float())]


def predict_importance(network: Summarizer, sample: SegmentedVideo) -> Importance:
    """Return how much each second of a video matters, in [0, 1], (ceil(S x seconds of a
    segment),)."""
    device = device_of(network)
    network.eval()
    with torch.inference_mode(), current_device().autocast():
        inputs = (
            torch.from_numpy(values)[None].to(device) for values in (sample.seen, sample.said)
        )
        pad_mask = torch.zeros(1, len(sample.seen), dtype=torch.bool, device=device)
        scores = network(*inputs, pad_mask)[0].float().sigmoid().cpu().numpy()  # (S,)
    length = network.settings.seconds
    seconds = np.arange(int(np.ceil(len(scores) * length - 1e-9))) + 0.5
    return np.asarray(
        scores[np.minimum((seconds / length).astype(int), len(scores) - 1)], dtype=np.float32
    )


@dataclass(frozen=True)
class SummaryScores:
    """Means over the videos in which each is defined, None where it is in none; videos: how many
    were scored."""

    f: float | None
    tau: float | None
    rho: float | None
    videos: int


def score_summaries(given: Sequence[Importance], shown: Sequence[Mask]) -> SummaryScores:
    """Return the scores of seconds (T,) of each video against those that belong in its summary,
    (T,) bool.

    A second is in the summary from .5. Numbers past the end of a reference count for nothing. Equal
    scores rank nothing: tau and rho are 0 then; both are undefined where all seconds of a reference
    are alike.
    """
    rows = [
        _scores(scores[: len(truth)], truth) for scores, truth in zip(given, shown, strict=True)
    ]
    columns = [
        [value for value in column if value is not None] for column in zip(*rows, strict=True)
    ] or [[], [], []]
    f, tau, rho = (float(np.mean(column)) if column else None for column in columns)
    return SummaryScores(f, tau, rho, len(rows))


def _scores(scores: Importance, truth: Mask) -> tuple[float | None, float | None, float | None]:
    """Return F, tau and rho of one video."""
    reference = truth.astype(np.float64)
    overlap = frames_overlap(scores, reference)
    f = None if overlap is None else overlap.f
    if truth.all() or not truth.any():
        return f, None, None
    return f, kendall_tau(scores, reference) or 0.0, spearman_rho(scores, reference) or 0.0


@dataclass
class SummarizerDataset:
    """Videos as segments, the seconds that belong in a summary of each, (T,) bool, and why videos
    were left out."""

    samples: list[SegmentedVideo] = field(default_factory=list)
    shown: list[Mask] = field(default_factory=list)
    omitted: list[Rejected] = field(default_factory=list)

    def of_videos(self, videos: frozenset[str]) -> "SummarizerDataset":
        """Return some of the videos."""
        rows = [row for row, sample in enumerate(self.samples) if sample.id in videos]
        return SummarizerDataset(
            [self.samples[row] for row in rows], [self.shown[row] for row in rows]
        )


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
            record = record.model_copy(update={"transcript": transcripts[video]})
        flaw = join.flaw(video)
        if flaw is None and not any(step.spans for step in record.reference):
            flaw = NO_TIME, ""
        if (
            flaw is None
            and encode is not None
            and (record.transcript is None or not record.transcript.sentences)
        ):
            flaw = NO_NARRATION, ""
        if flaw is not None:
            join.omit("video", video, flaw)
            continue
        found = features.read(video)
        said = (
            [sentence.text for sentence in record.transcript.sentences] if record.transcript else []
        )
        vectors = None if encode is None else encode(said)
        widths = {
            "video_width": found.values.shape[1],
            "text_width": 0 if vectors is None else vectors.shape[1],
        }
        named = record.model_copy(update={"id": video})
        dataset.samples.append(
            segment_video(named, found, vectors, settings.model_copy(update=widths))
        )
        dataset.shown.append(shown_seconds(record, found.duration))
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
    if len(dataset.samples) < 3:
        count = len(dataset.samples)
        raise DatasetError(
            f"{count} videos to train on, 3 are needed; left out: {reasons_in_words(dataset.omitted)}"
        )
    one_process("train summarizer")
    claim_run_folder(folder, settings.model_dump(mode="json"), file=SETTINGS_FILE)
    parts = split_videos([sample.id for sample in dataset.samples], settings.train.seed)
    training, held_out = dataset.of_videos(parts[0] | parts[1]), dataset.of_videos(parts[2])
    first = training.samples[0]
    widths = {"video_width": first.seen.shape[1], "text_width": first.said.shape[1]}
    network = train_summarizer(
        training.samples,
        folder / "training",
        summarizer=settings.summarizer.model_copy(update=widths),
        settings=settings.train,
        report=report,
    )
    scores = score_summaries(
        [predict_importance(network, sample) for sample in held_out.samples], held_out.shown
    )
    write_summarizer(network, folder / SUMMARIZER, video=video, text=text)
    tree = {"settings": settings.model_dump(mode="json"), "videos": len(training.samples)}
    tree |= {"omitted": count_reasons(dataset.omitted), "withheld": asdict(scores)}
    write_atomic(folder / RUN, json.dumps(tree, indent=1) + "\n")
    return TrainedSummarizer(network, len(training.samples), scores)
