"""A trained summarizer in IV-Sum's form (ECCV 2022): how much does each segment of a video matter?

    samples = [segment_video(record, features, vectors, settings) for ...]  # 4 s segments, seen and said
    network = train_summarizer(samples, folder, summarizer=SummarizerSettings(video_width=512))
    predict_importance(network, sample)                                    # one number a second, for wys2.summary

Features are exchangeable, which is how WYS2 (section 4.4) measures what its own are worth. A run's
folder:

settings.json            a folder holds one run
training/                checkpoint and log, from which a killed run is resumed
summarizer.safetensors   the network
run.json                 settings, counts, why videos were left out, scores on the withheld fifth of the videos

Scores are F, Kendall's tau and Spearman's rho of a video's seconds (WYS2, table 3).
Source: Narasimhan et al. 2022 (IV-Sum), section 3.
Letters: B videos, S segments, C width of a feature row, E width of a sentence vector, D width
between layers.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.datasets.files import read_node
from stepline.errors import DatasetError, ShapeError
from stepline.evaluate.video_summaries import frames_overlap, kendall_tau, spearman_rho
from stepline.features import FeatureStore
from stepline.files.digests import sha256
from stepline.models.training.batches import Mask, pad
from stepline.models.training.distributed import one_process
from stepline.models.training.loop import Loss, Progress, TrainingTask
from stepline.models.training.network import (
    FeatureSpace,
    Header,
    LoadedNetwork,
    NetworkSpec,
    parse_settings,
)
from stepline.models.training.run import TrainingRun, run_training, train_network, write_outcome
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import FeatureJoin, TextEncoder, reasons_in_words
from stepline.models.wys2.clips import split_videos
from stepline.models.wys2.settings import (
    SETTINGS_FILE,
    SUMMARIZER_TRAINING,
    SummarizerRunSettings,
    SummarizerSettings,
)
from stepline.models.wys2.summary import Importance
from stepline.networks.device import current_device, device_of
from stepline.records import (
    FeatureSequence,
    Matrix,
    Record,
    Rejected,
    Span,
    Step,
    Video,
    count_reasons,
)

ROUNDING_SECONDS = 1e-9
TENTHS_PER_SECOND = 10
LONGEST_PERIOD = 10_000.0  # of the sines of positions, in segments per radian

# ---------------------------------------------------------------- a video as segments


@dataclass(frozen=True)
class SegmentedVideo:
    """One video: pictures (S, C), speech (S, E) with zeros where there is no speech, matters (S,) in [0,
    1].

    Raises ShapeError when the arrays do not fit together, are empty, or hold NaN.
    """

    id: str
    pictures: Matrix
    speech: Matrix
    matters: Importance

    def __post_init__(self) -> None:
        count = len(self.pictures)
        if not count:
            raise ShapeError(f"{self.id}: no segment; the video has no feature row")
        if len(self.speech) != count or self.matters.shape != (count,):
            raise ShapeError(f"{self.id}: {count} segments need as much speech and as many labels")
        for values in (self.pictures, self.speech, self.matters):
            if not np.isfinite(values).all():
                raise ShapeError(f"{self.id}: features hold NaN or infinity; extract them again")


def segment_video(
    record: Record, features: FeatureSequence, vectors: Matrix | None, settings: SummarizerSettings
) -> SegmentedVideo:
    """Return a video's segments. A segment matters as far as its reference steps show it: half a
    segment is .5.

    vectors: (sentences, E) of the transcript, needed where the settings use speech.
    """
    seconds = settings.seconds
    count = math.ceil(features.duration / seconds - ROUNDING_SECONDS)
    if not count:
        raise ShapeError(f"{record.id}: no segment; the video has no feature row")
    spans = [Span(k * seconds, (k + 1) * seconds) for k in range(count)]
    # what is seen: the mean of a segment's feature rows
    means = [features.values[features.rows(span)].mean(axis=0) for span in spans]
    # what is said: the mean vector of the sentences that overlap it
    width = settings.text_width
    speech = np.zeros((count, width), dtype=np.float32)
    if width:
        expected = (len(record.sentences), width)
        if vectors is None or vectors.shape != expected:
            actual = None if vectors is None else vectors.shape
            raise ShapeError(f"{record.id}: sentence vectors must be {expected}, not {actual}")
        for k, span in enumerate(spans):
            overlapping = [sentence.span.overlap(span) > 0 for sentence in record.sentences]
            if any(overlapping):
                speech[k] = vectors[overlapping].mean(axis=0)
    # how much it matters: the fraction of its tenths of a second that some step shows
    matters = np.zeros(count, dtype=np.float32)
    for k, span in enumerate(spans):
        middles = np.arange(round(span.duration * TENTHS_PER_SECOND)) + 0.5
        matters[k] = _inside(span.start + middles / TENTHS_PER_SECOND, record.reference).mean()
    return SegmentedVideo(record.id, np.stack(means).astype(np.float32), speech, matters)


def shown_seconds(record: Record, duration: float) -> Mask:
    """Return which seconds of a video some reference step shows at their middle,
    (ceil(duration),)."""
    count = math.ceil(duration - ROUNDING_SECONDS)
    return _inside(np.arange(count, dtype=np.float64) + 0.5, record.reference)


def _inside(times: npt.NDArray[np.floating], steps: Sequence[Step]) -> Mask:
    """Return at which times, (N,), some step is shown."""
    inside = np.zeros(len(times), dtype=np.bool_)
    for step in steps:
        for span in step.spans:
            inside |= (times >= span.start) & (times < span.end)
    return inside


# ---------------------------------------------------------------- the network and its file


class Summarizer(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Scores the segments of a batch of videos: they see each other through a transformer."""

    def __init__(self, settings: SummarizerSettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        self.project = nn.Linear(settings.video_width + settings.text_width, width)
        layer = nn.TransformerEncoderLayer(
            width,
            settings.heads,
            dim_feedforward=4 * width,
            dropout=settings.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False)
        self.score = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, pictures: Tensor, speech: Tensor, pad: Tensor) -> Tensor:
        """Return logits (B, S) of how much each segment matters. pictures (B, S, C), speech (B, S,
        E), pad (B, S)."""
        settings = self.settings
        widths = (pictures.shape[-1], speech.shape[-1])
        expected = (settings.video_width, settings.text_width)
        if widths != expected:
            fault = f"segments are {widths} wide (seen, said), not {expected}"
            raise ShapeError(f"{fault}; use the same backbone")
        # Seen and said on one scale, then in one width.
        inputs = torch.cat([_standardise(pictures), _standardise(speech)], dim=-1)  # (B, S, C + E)
        positions = _sinusoidal_encoding(pictures.shape[1], settings.width, pictures.device)
        hidden = self.project(inputs) + positions  # (B, S, D)
        hidden = self.encoder(hidden, src_key_padding_mask=pad)
        return cast(Tensor, self.score(hidden)[..., 0])  # (B, S)


def _standardise(rows: Tensor) -> Tensor:
    """Return rows of mean 0 and spread 1: next to rows of length 1 the positions would be too
    large. Zero rows stay zero."""
    width = rows.shape[-1]
    return F.layer_norm(rows, (width,)) if width else rows


def _sinusoidal_encoding(count: int, width: int, device: torch.device) -> Tensor:
    """Return sines and cosines (S, D) of a segment's number."""
    exponents = torch.arange(0, width, 2, device=device)  # (D / 2,)
    frequencies = torch.exp(exponents * (-math.log(LONGEST_PERIOD) / width))
    angles = torch.arange(count, device=device)[:, None] * frequencies  # (S, D / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


SettingsAndSpace: TypeAlias = tuple[SummarizerSettings, FeatureSpace]


def _parse(header: Header) -> SettingsAndSpace:
    settings = parse_settings(SummarizerSettings, header["settings"])
    return settings, FeatureSpace(str(header["video"]), str(header["text"]), None)


NETWORK = NetworkSpec[SettingsAndSpace, Summarizer](
    kind="stepline.wys2.summarizer",
    version=None,
    title="a summarizer",
    writer="`stepline train summarizer`",
    names=("summarizer.safetensors",),
    parse=_parse,
    build=lambda header: Summarizer(header[0]),
)


@dataclass(frozen=True)
class LoadedSummarizer(LoadedNetwork):
    """A network in evaluation mode, and the backbones whose features and texts it takes."""

    network: Summarizer


def write_summarizer(network: Summarizer, path: Path, *, video: str = "", text: str = "") -> None:
    """Write a network with its settings and the names of what gave its features and sentence
    vectors."""
    NETWORK.write(path, network, {"video": video, "text": text})


def read_summarizer(path: Path) -> LoadedSummarizer:
    """Return the network that a file or a run's folder holds. Raises ModelError, naming what does
    not fit."""
    file = NETWORK.find(path)
    (settings, space), network = NETWORK.load(file)
    return LoadedSummarizer(file, sha256(file), space, settings.video_width, True, network)


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
        scores = logits[0].float().sigmoid().cpu().numpy()
    # the segment of each second
    length = network.settings.seconds
    second_count = math.ceil(len(scores) * length - ROUNDING_SECONDS)
    segments = ((np.arange(second_count) + 0.5) / length).astype(int)
    return np.asarray(scores[np.minimum(segments, len(scores) - 1)], dtype=np.float32)


# ---------------------------------------------------------------- training


def train_summarizer(
    samples: Sequence[SegmentedVideo],
    folder: Path,
    *,
    summarizer: SummarizerSettings,
    settings: TrainSettings = SUMMARIZER_TRAINING,
    report: Callable[[Progress], None] | None = None,
) -> Summarizer:
    """Return a summarizer trained on the samples, in evaluation mode. A run in `folder` that was
    killed is resumed.

    Raises ShapeError when there is no sample, or when nothing or everything matters, which teaches
    nothing.
    """
    mean = float(np.mean([sample.matters.mean() for sample in samples])) if samples else 0.0
    if not 0.0 < mean < 1.0:
        fault = f"{len(samples)} videos teach nothing, because {mean:.0%} of them matters"
        raise ShapeError(f"{fault}; give reference steps")
    task = TrainingTask(
        samples, lambda sample: len(sample.pictures), lambda batch, _: batch, _losses
    )
    return train_network(lambda: Summarizer(summarizer), task, settings, folder, report)


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
    return [Loss((losses * is_real).sum(), is_real.sum().float())]


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
    scores: dict[str, list[float]] = {"f": [], "tau": [], "rho": []}
    for importance, truth in zip(importances, references, strict=True):
        predicted = importance[: len(truth)]
        reference = truth.astype(np.float64)
        overlap = frames_overlap(predicted, reference)
        if overlap is not None:
            scores["f"].append(overlap.f)
        # Where all seconds are alike, no order of them is right or wrong.
        if truth.any() and not truth.all():
            scores["tau"].append(kendall_tau(predicted, reference) or 0.0)
            scores["rho"].append(spearman_rho(predicted, reference) or 0.0)
    means = {name: float(np.mean(row)) if row else None for name, row in scores.items()}
    return SummaryScores(**means, videos=len(importances))


MIN_VIDEOS = 3  # for training, validation and test
NO_TIME = "no reference step has a time"
NO_NARRATION = "no narration"
FRAMES_PER_SECOND = 8.0  # of IV-Sum's annotations; it takes 32 per segment
FRAME_LABELS = (0.0, 1.0)


def read_frame_labels(path: Path, rate: float = FRAMES_PER_SECOND) -> Iterator[Record]:
    """Yield a record per video of WikiHow Summaries, IV-Sum's {video: [0 or 1 per frame]}. Each run
    of ones is a reference step.

    Raises DatasetError for other numbers, or a file of another form.
    """
    for id, node in read_node(path).entries():
        try:
            frames = np.asarray(node.value, dtype=np.float64)
        except (TypeError, ValueError):
            frames = np.full(1, np.nan)
        if frames.ndim != 1 or not np.isin(frames, FRAME_LABELS).all():
            fault = f"{path}: {id}: not a list of 0 and 1, one per frame"
            raise DatasetError(f"{fault}; give IV-Sum's annotation file")
        # where runs of ones start and end
        changes = np.diff(frames, prepend=0.0, append=0.0)
        runs = (np.flatnonzero(changes) / rate).reshape(-1, 2)  # seconds
        steps = [
            Step(id=str(number), text=f"part {number}", spans=(Span(start, end),))
            for number, (start, end) in enumerate(runs.tolist(), start=1)
        ]
        video = Video(id=id, duration=len(frames) / rate or None)
        yield Record(id=id, video=video, reference=tuple(steps))


@dataclass
class SummarizerDataset:
    """Videos as segments, the seconds that belong in a summary of each, (T,) bool, and why videos
    were left out."""

    samples: list[SegmentedVideo] = field(default_factory=list)
    shown: list[Mask] = field(default_factory=list)
    omitted: list[Rejected] = field(default_factory=list)


def gather_summaries(
    records: Iterable[Record],
    features: FeatureStore,
    encode: TextEncoder | None,
    settings: SummarizerSettings,
) -> SummarizerDataset:
    """Return the videos of records with reference steps.

    A video without features, without the time of any step, or without the speech that is used is
    left out and counted.

    Args:
        records: those of the videos.
        features: of the videos.
        encode: sentences to vectors, None: speech is not used.
        settings: of the segments.
    """
    join = FeatureJoin(features)
    dataset = SummarizerDataset(omitted=join.omitted)
    for record in records:
        video = record.video.id
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
        vectors = None
        if encode is not None:
            vectors = encode([sentence.text for sentence in record.sentences])
        widths = {
            "video_width": rows.values.shape[1],
            "text_width": 0 if vectors is None else vectors.shape[1],
        }
        video_record = record.model_copy(update={"id": video})
        video_settings = settings.model_copy(update=widths)
        dataset.samples.append(segment_video(video_record, rows, vectors, video_settings))
        dataset.shown.append(shown_seconds(record, rows.duration))
    return dataset


@dataclass(frozen=True)
class TrainedSummarizer:
    """The network, how many videos taught it, and its scores on those that were withheld."""

    network: Summarizer
    videos: int
    scores: SummaryScores


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

    Args:
        dataset: the videos.
        folder: of the run.
        settings: of the run.
        video: what gave the features, kept in the file.
        text: what gave the sentence vectors, kept in the file.
        report: gets each step.

    Raises DatasetError when fewer than three videos are left, SettingsError when the folder holds a
    run with other settings.
    """
    samples = dataset.samples
    if len(samples) < MIN_VIDEOS:
        count = f"{len(samples)} videos to train on, {MIN_VIDEOS} are needed"
        raise DatasetError(f"{count}; left out: {reasons_in_words(dataset.omitted)}")
    one_process("train summarizer")

    def train() -> TrainedSummarizer:
        # Four fifths to train on. Nothing is chosen by validation.
        *_, held_out = split_videos([sample.id for sample in samples], settings.train.seed)
        training = [sample for sample in samples if sample.id not in held_out]
        # the network is as wide as its inputs
        widths = {
            "video_width": training[0].pictures.shape[1],
            "text_width": training[0].speech.shape[1],
        }
        network = train_summarizer(
            training,
            folder / "training",
            summarizer=settings.summarizer.model_copy(update=widths),
            settings=settings.train,
            report=report,
        )
        withheld = [
            (predict_importance(network, sample), shown)
            for sample, shown in zip(samples, dataset.shown, strict=True)
            if sample.id in held_out
        ]
        scores = score_summaries([row for row, _ in withheld], [shown for _, shown in withheld])
        return TrainedSummarizer(network, len(training), scores)

    identity = settings.model_dump(mode="json")
    run = TrainingRun[TrainedSummarizer](
        folder,
        NETWORK,
        identity,
        lambda outcome, path: write_summarizer(outcome.network, path, video=video, text=text),
        identity_file=SETTINGS_FILE,
    )
    trained = run_training(run, lambda _: train())
    outcome = {
        "settings": identity,
        "videos": trained.videos,
        "omitted": count_reasons(dataset.omitted),
        "withheld": asdict(trained.scores),
    }
    write_outcome(folder, outcome)
    return trained
