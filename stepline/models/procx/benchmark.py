"""Answers of a trained network to a dense-captioning benchmark, in the official form that `evaluate` reads."""

from collections.abc import Sequence
from pathlib import Path

from stepline.datasets import read, segments, write_densevid
from stepline.errors import DatasetError, ShapeError
from stepline.models.procx.checkpoint import LoadedProcx
from stepline.models.procx.inference import VideoToDescribe, describe_videos
from stepline.models.procx.settings import DescribeSettings
from stepline.models.training.benchmark_answers import (
    BenchmarkAnswers,
    BenchmarkQuestions,
    StoredFeatures,
    answer_questions,
)
from stepline.records import Record, Video

NO_ROWS = "its features hold no row"


def benchmark_videos(name: str, reference: Path, subset: str | None) -> BenchmarkQuestions[str]:
    """Return the ids of the videos of a benchmark. Raises DatasetError if its file cannot be read
    or holds no video.

    Args:
        name: name of the benchmark.
        reference: annotation file of the benchmark.
        subset: name of a split in the file. None: all videos.
    """
    reading = read(name, reference, subset=subset)
    if not reading.records:
        part = f" of subset {subset!r}" if subset else ""
        raise DatasetError(f"{reference}: holds no video{part} to describe; give another")
    skipped = {row.id: row.reason for row in reading.rejected if row.what == "video"}
    return BenchmarkQuestions(tuple(record.id for record in reading.records), skipped)


def write_predictions(
    ids: Sequence[str],
    describer: LoadedProcx,
    features: StoredFeatures,
    out: Path,
    settings: DescribeSettings,
    prefix: str = "",
) -> BenchmarkAnswers[Record]:
    """Write the predicted steps of videos as results for densevid_eval. Return the predictions, and
    the reasons for videos without a prediction.

    Args:
        ids: ids of the benchmark's videos.
        describer: trained network with its vocabulary.
        features: stored features of the videos.
        out: the JSON file to write.
        settings: rules that decide which proposals become steps.
        prefix: written before each id, as the reference has it (`youcook2.id_prefix`).

    Raises DatasetError when no video has a prediction.
    """

    def read_video(id: str) -> VideoToDescribe:
        rows = features.read(id)
        describer.check_features(rows)
        if not len(rows.values):
            raise ShapeError(NO_ROWS)
        return VideoToDescribe(rows.values, rows.duration, rows.duration)

    answers: BenchmarkAnswers[Record] = BenchmarkAnswers({}, {})
    for first in range(0, len(ids), settings.batch):
        batch = ids[first : first + settings.batch]
        videos = answer_questions({id: id for id in batch}, read_video)
        # What cannot be answered is reported, and the other videos go on.
        answers.missing.update(videos.missing)
        descriptions = describe_videos(
            describer.model, describer.vocabulary, [*videos.by_id.values()], settings
        )
        for id, description in zip(videos.by_id, descriptions, strict=True):
            answers.by_id[id] = Record(id=id, video=Video(id=id), steps=description.steps)
    answers.require_any(" videos")
    found = segments(list(answers.by_id.values()))
    write_densevid({prefix + id: rows for id, rows in found.items()}, out)
    return answers
