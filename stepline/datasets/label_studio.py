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

from stepline.datasets.files import Node, file_in, read_json
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder, rejected_entry

NAME = "label_studio.json"
SHOWN = "shown"  # the label of a region that shows its step
NOBODY = "nobody has annotated it"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a task."""
    file = file_in(path, NAME)
    for task in Node(read_json(file), str(file)).rows():
        data = task["data"]
        id = (data.get("id") or data["video"]).name()
        annotations = [
            row
            for row in (task.get("annotations") or Node([], "")).rows()
            if not _flag(row, "was_cancelled")
        ]
        if annotations:
            yield _entry(id, max(annotations, key=lambda row: _flag(row, "ground_truth")))
        else:
            yield rejected_entry(id, NOBODY)


def _entry(id: str, annotation: Node) -> DatasetEntry:
    rows, regions = list(annotation["result"].rows()), dict[str, list[Node]]()
    for row in rows:
        if row.get("value") is not None and row["value"].get("start") is not None:
            regions.setdefault(row["id"].name(), []).append(row)
    lengths = [length.number() for row in rows if (length := row.get("original_length"))]
    builder = RecordBuilder(id, duration=lengths[0] if lengths else None)
    for parts in regions.values():
        values = [part["value"] for part in parts]
        texts = [
            text.text()
            for value in values
            if (listed := value.get("text"))
            for text in listed.rows()
        ]
        labels = [
            label.text()
            for value in values
            if (listed := value.get("labels"))
            for label in listed.rows()
        ]
        text = " ".join(texts)
        if labels and SHOWN not in labels:
            builder.add_step(text, text)
        else:  # regions of one text are the spans of one step
            builder.add_span(text, text, values[0]["start"].number(), values[0]["end"].number())
    return builder.entry()


def _flag(row: Node, key: str) -> bool:
    found = row.get(key)
    return found is not None and found.value is True
