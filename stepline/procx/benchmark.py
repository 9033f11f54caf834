"""A dense-captioning benchmark answered with a trained network, in the official form that
`evaluate` reads."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stepline.datasets import read, segments, write_densevid
from stepline.errors import DatasetError, SteplineError
from stepline.procx.checkpoint import LoadedProcx
from stepline.procx.inference import StepDescriber, VideoToDescribe
from stepline.procx.settings import DescribeSettings
from stepline.records import FeatureSequence, Record, Transcript, Video

NO_LENGTH = "its features hold no row"


class FeatureReader(Protocol):
    """Where the features of videos are."""

    def read(self, video: str) -> FeatureSequence:
        """Return the features of a video. Raises a SteplineError that says what is wrong."""


@dataclass(frozen=True)
class BenchmarkVideos:
    """The ids that a benchmark asks for, in its order, and by id why others of its files are not
    asked."""

    ids: tuple[str, ...]
    skipped: Mapping[str, str]

    def reasons(self) -> dict[str, int]:
        """Return how many are not asked for each reason, the most frequent first."""
        return dict(Counter(self.skipped.values()).most_common())


@dataclass(frozen=True)
class PredictionSummary:
    """How many videos and steps a file of predictions holds, and why the other videos are not in
    it, by id."""

    videos: int
    steps: int
    missing: dict[str, str]


def benchmark_videos(name: str, reference: Path, subset: str | None = None) -> BenchmarkVideos:
    """Return the videos of a benchmark. Raises DatasetError where its file cannot be read or holds
    none."""
    reading = read(name, reference, subset=subset)
    if not reading.records:
        raise DatasetError(
            f"{reference}: holds no video{f' of subset {subset!r}' if subset else ''} to describe; give another"
        )
    skipped = {row.id: row.reason for row in reading.rejected if row.what == "video"}
    return BenchmarkVideos(tuple(record.id for record in reading.records), skipped)


def write_predictions(
    asked: Sequence[str],
    loaded: LoadedProcx,
    features: FeatureReader,
    out: Path,
    settings: DescribeSettings,
    *,
    speech: Mapping[str, Transcript] | None = None,
) -> PredictionSummary:
    """Write the steps of the asked videos as densevid_eval's results, and return what is in it and
    what is not.

    speech: what is said, by id, for a network that reads it; a video without is read in silence.
    Raises DatasetError when no video at all can be answered.
    """
    if settings.speech:
        loaded.check_speech()
    describer = StepDescriber(
        loaded.model, loaded.vocabulary, settings, loaded.trained.around or 0.0
    )
    missing: dict[str, str] = {}
    records: list[Record] = []
    for first in range(0, len(asked), settings.batch):
        videos = _readable_videos(
            asked[first : first + settings.batch], loaded, features, speech or {}, missing
        )
        for id, described in zip(videos, describer.describe(list(videos.values())), strict=True):
            records.append(Record(id=id, video=Video(id=id), steps=described.steps))
    if not records:
        id, reason = next(iter(missing.items()))
        raise DatasetError(
            f"none of {len(asked)} videos can be answered, the first, {id}, since: {reason}"
        )
    write_densevid(segments(records), out)
    return PredictionSummary(len(records), sum(len(record.steps) for record in records), missing)


def _readable_videos(
    ids: Sequence[str],
    loaded: LoadedProcx,
    features: FeatureReader,
    speech: Mapping[str, Transcript],
    missing: dict[str, str],
) -> dict[str, VideoToDescribe]:
    """Return the videos that can be described; `missing` gets the others with the reason."""
    videos: dict[str, VideoToDescribe] = {}
    for id in ids:
        try:
            found = features.read(id)
            loaded.check(found)
        except SteplineError as error:
            missing[id] = str(error)
            continue
        if not len(found.values):
            missing[id] = NO_LENGTH
            continue
        sentences = speech[id].sentences if id in speech else ()
        videos[id] = VideoToDescribe(found.values, found.duration, found.duration, sentences)
    return videos
