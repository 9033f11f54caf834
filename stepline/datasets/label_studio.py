"""Label Studio: steps that people corrected or annotated in it, from its JSON export (not JSON-MIN).

    [{"data": {"id", "video", "frame_rate", "duration"}, "annotations": [
        {"was_cancelled", "ground_truth", "result": [
            {"id", "type": "timelinelabels",
             "value": {"ranges": [{"start", "end"}], "timelinelabels": ["seen"]}},
            {"id", "type": "textarea", "value": {"ranges", "text": ["Fold the strip"]}}]}]}]

Ranges are first and last frame, counted from 1. Their rate may also be named fps, frameRate and the
like. A task that states none is refused: it lacks the rate of its interface. Regions of an Audio
tag have start and end in seconds, their labels as "labels", and the video's seconds as
original_length. Rows with one id make a region: its time, its label, its text. Of several
annotations of a task the ground truth counts, else the first that was not cancelled. `stepline
steps --format labelstudio` writes such tasks.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_node
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder, rejected_entry
from stepline.errors import DatasetError

FILE_NAME = "label_studio.json"
# of a region that is seen to show its step, or placed by its words, and the labels of release 0.1.0
SHOWN_LABELS = frozenset({"seen", "placed", "shown", "likely shown"})
LABEL_KEYS = ("timelinelabels", "labels")
RATE_ENDINGS = ("framerate", "fps")  # of the key of a rate, in lower case and letters alone
NOT_ANNOTATED = "no one has annotated it"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per task of a Label Studio export. A task is one annotated video."""
    for task in read_node(path, FILE_NAME).rows():
        data = task["data"]
        id = (data.get("id") or data["video"]).name()
        rows = task.optional_rows("annotations")
        annotations = [row for row in rows if not _is_true(row, "was_cancelled")]
        if annotations:
            best = max(annotations, key=lambda row: _is_true(row, "ground_truth"))
            yield _task_entry(id, best, data)
        else:
            yield rejected_entry(id, NOT_ANNOTATED)


def _task_entry(id: str, annotation: Node, data: Node) -> DatasetEntry:
    # The values of each region, and the length of the video where a row states it.
    regions: dict[str, list[Node]] = {}
    duration = data.optional_number("duration")
    for row in annotation["result"].rows():
        value = row.get("value")
        if value is not None and value.get("start", "ranges") is not None:
            regions.setdefault(row["id"].name(), []).append(value)
        original_length = row.optional_number("original_length")
        duration = original_length if duration is None else duration
    builder = RecordBuilder(id, duration=duration)
    for values in regions.values():
        text = " ".join(_read_texts(values, "text"))
        labels = [text for key in LABEL_KEYS for text in _read_texts(values, key)]
        if labels and SHOWN_LABELS.isdisjoint(labels):
            builder.add_step(text, text)
        else:
            # Regions with one text are the spans of one step.
            for start, end in _region_spans(values[0], data):
                builder.add_span(text, text, start, end)
    return builder.build_entry()


def _region_spans(value: Node, data: Node) -> list[tuple[float, float]]:
    """Return (start, end) in seconds of each range of an annotated region.

    Args:
        value: JSON value of the region.
        data: data of the task, which state the rate of ranges of frames.
    """
    if value.get("start") is not None:
        return [value.span()]
    rate = _frame_rate(data)
    spans = []
    for row in value["ranges"].rows():
        # Both frames belong to the range, and the first frame of a video is number 1.
        first_frame, last_frame = row.span()
        spans.append(((first_frame - 1) / rate, last_frame / rate))
    return spans


def _frame_rate(data: Node) -> float:
    """Return the frames per second that a task states. Raises DatasetError unless it states one."""
    rates = set()
    for key, node in data.entries():
        letters = "".join(filter(str.isalpha, key)).lower()
        if letters.endswith(RATE_ENDINGS) and node.value is not None:
            rates.add(node.number())
    if len(rates) == 1 and 0 < min(rates) < math.inf:
        return min(rates)
    stated = f"states the frame rates {sorted(rates)}" if rates else "states no frame rate"
    raise DatasetError(
        f'{data.location}: {stated}, and its ranges count frames; give "frame_rate": the '
        "frameRate of the interface's Video tag, 24 where the tag has none"
    )


def _read_texts(values: list[Node], key: str) -> list[str]:
    return [row.text() for value in values for row in value.optional_rows(key)]


def _is_true(row: Node, key: str) -> bool:
    flag = row.get(key)
    return flag is not None and flag.value is True
