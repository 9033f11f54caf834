"""The files that evaluation servers and official scorers take."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from stepline.datasets.predictions import PredictedSegment
from stepline.errors import DatasetError
from stepline.files.atomic_files import write_atomic
from stepline.records import Record, Step

DENSEVID_VERSION = "VERSION 1.0"  # what densevid_eval and PDVC write; neither reads it
# HT-Step's evaluate_article_grounding
GROUNDING_COLUMNS = ("video-id", "t-start", "t-end", "label", "score")


def segments(records: Iterable[Record]) -> dict[str, list[PredictedSegment]]:
    """Return record id -> one predicted segment per step, sorted by start.

    The segment is the first, best span of the step. A step without a span has no segment.
    """
    return {
        record.id: sorted(
            (
                PredictedSegment(step.spans[0].start, step.spans[0].end, step.text, step.score)
                for step in record.steps
                if step.spans
            ),
            key=itemgetter(0, 1),
        )
        for record in records
    }


def write_densevid(predictions: Mapping[str, Sequence[PredictedSegment]], path: Path) -> None:
    """Write predictions as a results file of densevid_eval, as for YouCook2 and PDVC.

    Args:
        predictions: video id -> segments. The scorers compare ids literally, with PDVC's prefix
            "v_".
        path: path of the JSON file.
    """
    results = {
        video: [{"sentence": row.sentence, "timestamp": [row.start, row.end]} for row in rows]
        for video, rows in predictions.items()
    }
    tree = {
        "version": DENSEVID_VERSION,
        "results": results,
        "external_data": {"used": False, "details": ""},
    }
    write_atomic(path, json.dumps(tree, ensure_ascii=False, allow_nan=False) + "\n")


def write_htstep_result(records: Iterable[Record], path: Path) -> None:
    """Write HT-Step's result.json, {video id: [second of each step]}.

    The seconds are whole numbers. The order of record.steps must be that of the evaluation server's
    headlines (`htstep.read_queries`). Raises DatasetError for a step without a predicted second
    `at`, since the server accepts no abstention.
    """
    result = {
        record.id: [_whole_second(record, step) for step in record.steps] for record in records
    }
    write_atomic(path, json.dumps(result) + "\n")


def _whole_second(record: Record, step: Step) -> int:
    if step.at is None:
        raise DatasetError(
            f"{record.id}: step {step.id} has no `at`, and HT-Step scores a second for each step; "
            "place it"
        )
    return math.floor(step.at)


def write_htstep_grounding(records: Iterable[Record], path: Path) -> None:
    """Write HT-Step's article-grounding CSV, one row per predicted span of a step.

    The id of a step must be its global_step_index, which is the label of the row. A step with a
    span needs a score. Raises DatasetError for any other step.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(GROUNDING_COLUMNS)
    for record in records:
        for step in record.steps:
            writer.writerows(_grounding_rows(record, step))
    write_atomic(path, file.getvalue())


def _grounding_rows(record: Record, step: Step) -> list[tuple[str, float, float, int, float]]:
    if not step.spans:
        return []
    if not step.id.isdecimal():
        raise DatasetError(
            f"{record.id}: step id {step.id!r} is not a global_step_index; "
            "take the ids from taxonomy.csv"
        )
    if step.score is None:
        raise DatasetError(
            f"{record.id}: step {step.id} has no score; the average precision ranks by it"
        )
    return [(record.id, span.start, span.end, int(step.id), step.score) for span in step.spans]
