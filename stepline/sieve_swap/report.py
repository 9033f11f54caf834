"""Output files of a finished run: the statistics and the released JSON format.

The released form is that of the paper's authors, {id: {duration, timestamps, sentences}} with two
texts per segment. Their meaning is not documented. Here the first is the step and the second what
was said. `stepline.datasets.read("sieve-swap", ...)` reads the files.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from stepline.errors import DatasetError
from stepline.files.atomic_files import atomic_path, write_atomic
from stepline.records import Record
from stepline.sieve_swap.pairing import (
    IOU_THRESHOLDS,
    RECALL_THRESHOLDS,
    DocumentPairs,
    ThresholdRow,
    threshold_table,
)
from stepline.sieve_swap.part_files import TRAIN_SPLIT, VALIDATION_SPLIT, read_pairs
from stepline.sieve_swap.run import NO_DOCUMENT_FITS, SieveSwapJob, SieveSwapResult
from stepline.sieve_swap.statistics import SwappedDatasetStatistics
from stepline.sieve_swap.videos import OTHER_CATEGORY, RARE_CATEGORY, TOO_LONG, video_seconds
from stepline.storage import read_parquet

EMPTY_CURES = {
    VALIDATION_SPLIT: "raise pairing.validation_iou, so that not all of it validates",
    NO_DOCUMENT_FITS: "lower pairing.iou or pairing.recall, or give texts on these topics",
    RARE_CATEGORY: "lower pairing.smallest_category",
    OTHER_CATEGORY: "give another pairing.category",
    TOO_LONG: "raise pairing.longest_video",
}


def write_report(job: SieveSwapJob, outcome: SieveSwapResult) -> tuple[Path, ...]:
    """Write the results of a run, and return the paths of the files.

    The files statistics.json, train.json and validation.json are written into the job's folder.
    statistics.json holds the counts of the run. Its entry `thresholds` says how many videos,
    documents and pairs are kept at the run's thresholds and at higher ones (figure 7a of the
    paper).

    Args:
        job: the inputs of the run.
        outcome: the result of the run.
    """
    tree = outcome.statistics.model_dump(mode="json")
    tree["thresholds"] = [asdict(row) for row in _threshold_rows(job, outcome.pairs)]
    statistics_file = job.out / "statistics.json"
    write_atomic(statistics_file, json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
    files = [statistics_file]
    for split in (TRAIN_SPLIT, VALIDATION_SPLIT):
        files.append(job.out / f"{split}.json")
        write_released_json((job.out / split).glob("*.parquet"), files[-1])
    return tuple(files)


def require_training_videos(statistics: SwappedDatasetStatistics) -> None:
    """Raise DatasetError, with the reasons and a cure, if no video is left to train on."""
    if statistics.videos.get(TRAIN_SPLIT):
        return
    counts = [f"{count} x {reason}" for reason, count in statistics.videos.items()]
    reasons = ", ".join(counts) or "nothing was given"
    cure = EMPTY_CURES.get(next(iter(statistics.videos), ""), "give other videos")
    raise DatasetError(f"train.json is empty: {reasons}; {cure}, and another --out")


def _threshold_rows(job: SieveSwapJob, pairs: Sequence[Path]) -> list[ThresholdRow]:
    """Return the threshold table of a run, without thresholds below the run's."""
    settings = job.settings.pairing
    videos = []
    for file in pairs:
        for row in read_pairs(file):
            documents = np.asarray(row.documents, dtype=np.int64)
            videos.append(DocumentPairs(documents, np.asarray(row.iou), np.asarray(row.recall)))
    ious = {settings.iou, *(iou for iou in IOU_THRESHOLDS if iou >= settings.iou)}
    recalls = {settings.recall, *(r for r in RECALL_THRESHOLDS if r >= settings.recall)}
    return threshold_table(videos, sorted(ious), sorted(recalls))


def write_released_json(parts: Iterable[Path], file: Path) -> int:
    """Write the records of Parquet files as one JSON file in the form of the paper's data release,
    and return the number of steps in it.

    Args:
        parts: Parquet files of records.
        file: path of the JSON file.
    """
    segment_count = 0
    with atomic_path(file) as partial, partial.open("w", encoding="utf-8") as out:
        # before each entry: a brace once, then commas
        opening = "{"
        for record in _read_records(sorted(parts)):
            id_text = json.dumps(record.video.id)
            entry = json.dumps(to_released_json(record), ensure_ascii=False)
            out.write(f"{opening}\n{id_text}: {entry}")
            segment_count += len(record.steps)
            opening = ","
        out.write("{}\n" if opening == "{" else "\n}\n")
    return segment_count


def _read_records(parts: Iterable[Path]) -> Iterator[Record]:
    for part in parts:
        yield from read_parquet(part)


def to_released_json(record: Record) -> dict[str, object]:
    """Return one record as JSON in the form of the paper's data release.

    That form has two wordings per step. A step with one wording gives it twice.
    """
    timestamps = []
    sentences = []
    for step in record.steps:
        if step.spans:
            span = step.spans[0]
            timestamps.append([span.start, span.end])
            # Two texts per segment, as the authors' files have.
            sentences.append([step.text, (*step.alternatives, step.text)[0]])
    return {"duration": video_seconds(record), "timestamps": timestamps, "sentences": sentences}
