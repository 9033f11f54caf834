"""A dense-captioning benchmark answered with a trained network, in the official form that
`evaluate` reads."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from stepline.datasets import read, segments, write_densevid
from stepline.errors import DatasetError, ShapeError
from stepline.models.procx.checkpoint import LoadedProcx
from stepline.models.procx.inference import VideoToDescribe, describe_many
from stepline.models.procx.settings import DescribeSettings
from stepline.models.training.benchmark_answers import (
    BenchmarkAnswers,
    BenchmarkQuestions,
    StoredFeatures,
    answer_questions,
)
from stepline.records import Record, Sentence, Transcript, Video

NO_ROWS = "its features hold no row"


def benchmark_videos(
    name: str, reference: Path, subset: str | None = None
) -> BenchmarkQuestions[str]:
    """Return the ids of the videos of a benchmark. Raises DatasetError where its file cannot be read
    or holds none."""
    reading = read(name, reference, subset=subset)
    if not reading.records:
        part = f" of subset {subset!r}" if subset else ""
        raise DatasetError(f"{reference}: holds no video{part} to describe; give another")
    unasked = {row.id: row.reason for row in reading.rejected if row.what == "video"}
    return BenchmarkQuestions(tuple(record.id for record in reading.records), unasked)


def write_predictions(
    ids: Sequence[str],
    loaded: LoadedProcx,
    features: StoredFeatures,
    out: Path,
    settings: DescribeSettings,
    *,
    speech: Mapping[str, Transcript] | None = None,
) -> BenchmarkAnswers[Record]:
    """Write the steps of videos as densevid_eval's results, and return what is in it and what is
    not.

    speech: what is said, by id, for a network that reads it. A video without is read in silence.
    Raises DatasetError when no video at all can be answered.
    """
    if settings.speech:
        loaded.check_speech()
    # A video without a transcript is described in silence.
    transcripts = speech or {}

    def read_video(id: str) -> VideoToDescribe:
        rows = features.read(id)
        loaded.check_features(rows)
        if not len(rows.values):
            raise ShapeError(NO_ROWS)
        sentences: tuple[Sentence, ...] = ()
        if id in transcripts:
            sentences = transcripts[id].sentences
        return VideoToDescribe(rows.values, rows.duration, rows.duration, sentences)

    around = loaded.trained.around or 0.0
    answers: BenchmarkAnswers[Record] = BenchmarkAnswers({}, {})
    for first in range(0, len(ids), settings.batch):
        batch = ids[first : first + settings.batch]
        videos = answer_questions({id: id for id in batch}, read_video)
        # What cannot be answered is reported, and the other videos go on.
        answers.missing.update(videos.missing)
        descriptions = describe_many(
            loaded.model, loaded.vocabulary, [*videos.by_id.values()], settings, around=around
        )
        for id, description in zip(videos.by_id, descriptions, strict=True):
            answers.by_id[id] = Record(id=id, video=Video(id=id), steps=description.steps)
    answers.require_any(" videos")
    write_densevid(segments(list(answers.by_id.values())), out)
    return answers
