"""A training run of the summarizer as one folder.

settings.json            a folder holds one run
training/                checkpoint and log, from which a killed run goes on
summarizer.safetensors   the network
run.json                 settings, counts, why videos were left out, scores on the withheld fifth of the videos
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stepline.batches import Flags
from stepline.errors import DatasetError
from stepline.features import FeatureStore
from stepline.records import FeatureSequence, Record, Transcript
from stepline.store import write_atomic
from stepline.training import Progress
from stepline.wys2.clips import split_videos
from stepline.wys2.labels import Embed
from stepline.wys2.run_files import RUN, SUMMARIZER, claim
from stepline.wys2.summarizer.model import Summarizer, write_summarizer
from stepline.wys2.summarizer.score import SummaryScores, score_summaries
from stepline.wys2.summarizer.segments import Segmented, seconds_shown, segmented
from stepline.wys2.summarizer.settings import SummarizerRunSettings, SummarizerSettings
from stepline.wys2.summarizer.train import importance, train_summarizer


@dataclass
class Lessons:
    """Videos as segments, the seconds that belong in a summary of each, (T,) bool, and why videos were left out."""

    samples: list[Segmented] = field(default_factory=list)
    shown: list[Flags] = field(default_factory=list)
    omitted: Counter[str] = field(default_factory=Counter)

    def of_videos(self, videos: frozenset[str]) -> "Lessons":
        """Return some of the videos."""
        rows = [row for row, sample in enumerate(self.samples) if sample.id in videos]
        return Lessons([self.samples[row] for row in rows], [self.shown[row] for row in rows])


@dataclass(frozen=True)
class TrainedSummarizer:
    """The network, how many videos taught it, and its scores on those that were withheld."""

    network: Summarizer
    videos: int
    scores: SummaryScores


def gather_lessons(
    records: Iterable[Record],
    features: FeatureStore,
    encode: Embed | None,
    settings: SummarizerSettings,
    transcripts: Mapping[str, Transcript] | None = None,
) -> Lessons:
    """Return the videos of records with reference steps. encode: sentences to vectors, None: speech is not used.

    A video without features, without the time of any step, or without the speech that is used is left out and counted.
    """
    lessons = Lessons()
    for record in records:
        video = record.video.id
        if record.transcript is None and transcripts and video in transcripts:
            record = record.model_copy(update={"transcript": transcripts[video]})
        reason = _lack(record, features, encode)
        if reason is not None:
            lessons.omitted[reason] += 1
            continue
        sample = _sample(record, features.read(video), encode, settings)
        lessons.samples.append(sample)
        lessons.shown.append(seconds_shown(record, features.read(video).duration))
    return lessons


def _lack(record: Record, features: FeatureStore, encode: Embed | None) -> str | None:
    if record.video.id not in features:
        return "no features"
    if not any(step.spans for step in record.reference):
        return "no reference step has a time"
    if encode is not None and (record.transcript is None or not record.transcript.sentences):
        return "no narration"
    return None


def _sample(record: Record, features: FeatureSequence, encode: Embed | None, settings: SummarizerSettings) -> Segmented:
    """Return a video's segments; widths are those of what is given."""
    said = [sentence.text for sentence in record.transcript.sentences] if record.transcript else []
    vectors = None if encode is None else encode(said)
    widths = {"video_width": features.values.shape[1], "text_width": 0 if vectors is None else vectors.shape[1]}
    named = record.model_copy(update={"id": record.video.id})
    return segmented(named, features, vectors, settings.model_copy(update=widths))


def train_summarizer_run(
    lessons: Lessons,
    folder: Path,
    settings: SummarizerRunSettings,
    *,
    video: str = "",
    text: str = "",
    report: Callable[[Progress], None] | None = None,
) -> TrainedSummarizer:
    """Train on four fifths of the videos, score the rest, and write the folder.

    video, text: what gave features and sentence vectors, kept in the file. Raises DatasetError when fewer than three
    videos are left, SettingsError when the folder holds a run with other settings.
    """
    if len(lessons.samples) < 3:
        count = len(lessons.samples)
        raise DatasetError(f"{count} videos to train on, 3 are needed; left out: {dict(lessons.omitted) or 'none'}")
    claim(folder, settings)
    parts = split_videos([sample.id for sample in lessons.samples], settings.train.seed)
    taught, held = lessons.of_videos(parts[0] | parts[1]), lessons.of_videos(parts[2])
    first = taught.samples[0]
    widths = {"video_width": first.seen.shape[1], "text_width": first.said.shape[1]}
    network = train_summarizer(
        taught.samples, folder / "training", summarizer=settings.summarizer.model_copy(update=widths),
        settings=settings.train, report=report,
    )  # fmt: skip
    scores = score_summaries([importance(network, sample) for sample in held.samples], held.shown)
    write_summarizer(network, folder / SUMMARIZER, video=video, text=text)
    told = {"settings": settings.model_dump(mode="json"), "videos": len(taught.samples)}
    told |= {"omitted": dict(lessons.omitted), "withheld": asdict(scores)}
    write_atomic(folder / RUN, json.dumps(told, indent=1) + "\n")
    return TrainedSummarizer(network, len(taught.samples), scores)
