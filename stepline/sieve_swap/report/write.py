"""What a finished run leaves beside its parts: the released JSON form, the statistics and the report."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from stepline.records import Record
from stepline.sieve_swap.collection import Job, Outcome
from stepline.sieve_swap.pairing import Pairs, threshold_table
from stepline.sieve_swap.pairing.table import IOUS, RECALLS, ThresholdRow
from stepline.sieve_swap.released import write_released
from stepline.sieve_swap.report.page import TOP, page
from stepline.sieve_swap.shards import TRAIN, VALIDATION, read_pairs
from stepline.sieve_swap.statistics import Statistics
from stepline.sieve_swap.text_base.base import TextBase
from stepline.store import read_parquet, write_atomic

EXAMPLES = 6  # videos shown line by line


def write_report(job: Job, outcome: Outcome) -> tuple[Path, ...]:
    """Write train.json, validation.json, statistics.json and report.html into the job's folder; return their paths."""
    out = job.out
    files = [out / "statistics.json", out / "report.html"]
    write_atomic(files[0], outcome.statistics.model_dump_json(indent=1) + "\n")
    text = page(
        outcome.statistics,
        titles=_titles(outcome.statistics, job.base),
        thresholds=_thresholds(job, outcome.pairs),
        examples=list(islice(_kept(out), EXAMPLES)),
    )
    write_atomic(files[1], text)
    for split in (TRAIN, VALIDATION):
        write_released((out / split).glob("*.parquet"), out / f"{split}.json")
        files.append(out / f"{split}.json")
    return tuple(files)


def _kept(out: Path) -> Iterator[Record]:
    for split in (VALIDATION, TRAIN):
        for file in sorted((out / split).glob("*.parquet")):
            yield from (record for record in read_parquet(file) if record.steps)


def _titles(statistics: Statistics, base: TextBase) -> dict[str, str]:
    """Return the titles of the documents that the report names, found in one pass over the base."""
    wanted = set(list(statistics.documents)[:TOP])
    keys = ((f"{document.source}: {document.id}", document.title) for document in base.documents())
    return {key: title for key, title in keys if key in wanted}


def _thresholds(job: Job, pairs: Sequence[Path]) -> list[ThresholdRow]:
    """Return what the run's thresholds and higher ones keep; lower ones were not paired."""
    settings = job.settings.pairing
    rows = [
        Pairs(np.asarray(row.documents, dtype=np.int64), np.asarray(row.iou), np.asarray(row.recall))
        for file in pairs
        for row in read_pairs(file)
        if row.documents
    ]
    ious = sorted({settings.iou, *(iou for iou in IOUS if iou >= settings.iou)})
    recalls = sorted({settings.recall, *(recall for recall in RECALLS if recall >= settings.recall)})
    return threshold_table(rows, ious, recalls) if rows else []
