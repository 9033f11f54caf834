"""Label Studio: steps that people corrected or marked in it, from its JSON export (not JSON-MIN).

    [{"data": {"id", "video"}, "annotations": [{"was_cancelled", "ground_truth", "result": [
        {"id", "type": "labels", "original_length", "value": {"start", "end", "labels": ["shown"]}},
        {"id", "type": "textarea", "value": {"start", "end", "text": ["Fold the strip"]}}]}]}]

Rows of one id make a region: its seconds, its label, its text. Of several annotations of a task the
one marked as ground truth counts, else the first that was not cancelled. `stepline steps --format
labelstudio` writes such tasks.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_node
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder, rejected_entry

FILE_NAME = "label_studio.json"
# of a region that shows its step, the second by its words
SHOWN_LABELS = frozenset({"shown", "likely shown"})
NOT_ANNOTATED = "nobody has annotated it"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a task."""
    for task in read_node(path, FILE_NAME).rows():
        id = (task["data"].get("id") or task["data"]["video"]).name()
        annotations = [
            row for row in task.optional_rows("annotations") if not _flag(row, "was_cancelled")
        ]
        if annotations:
            yield _entry(id, max(annotations, key=lambda row: _flag(row, "ground_truth")))
        else:
            yield rejected_entry(id, NOT_ANNOTATED)


def _entry(id: str, annotation: Node) -> DatasetEntry:
    regions: dict[str, list[Node]] = {}
    durations: list[float] = []
    for row in annotation["result"].rows():
        value = row.get("value")
        if value is not None and value.get("start") is not None:
            regions.setdefault(row["id"].name(), []).append(value)
        if row.get("original_length") is not None:
            durations.append(row["original_length"].number())
    builder = RecordBuilder(id, duration=durations[0] if durations else None)
    for values in regions.values():
        text = " ".join(_texts(values, "text"))
        labels = _texts(values, "labels")
        if labels and SHOWN_LABELS.isdisjoint(labels):
            builder.add_step(text, text)
        else:  # regions of one text are the spans of one step
            builder.add_span(text, text, *values[0].span())
    return builder.entry()


def _texts(values: list[Node], key: str) -> list[str]:
    return [text.text() for value in values for text in value.optional_rows(key)]


def _flag(row: Node, key: str) -> bool:
    flag = row.get(key)
    return flag is not None and flag.value is True
