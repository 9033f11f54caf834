"""Records as JSON and Parquet.

The JSON is what users get: plain, stable, versioned. `to_json` and `from_json` lose nothing between
them.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stepline.atomic_files import atomic_path, write_atomic
from stepline.errors import StoreError, first_line, printable
from stepline.limits import MAX_RECORD_BYTES, LimitError, parse_json, read_limited
from stepline.parquet import BATCH_ROWS, read_text_column
from stepline.records import VERSION, LinkOrigin, Record, Step, Video

# ---------------------------------------------------------------- JSON

STEP_FIELDS = ("steps", "captions", "reference")  # of a record, each a list of steps
# Fields that JSON holds only where there is something in them.
KNOWN_ONLY_FIELDS: dict[type, tuple[str, ...]] = {
    Record: ("materials", "tools", "yields", "times"),
    Video: ("origin", "title_source", "author", "publication_date", "tags", "metadata"),
    LinkOrigin: ("upload_date",),
    Step: ("seen", "basis", "target"),
}


def to_json(record: Record) -> str:
    """Return the record in the public JSON form (docs/json.md): times flat, spans as pairs, 2-space
    indent."""
    tree = record.model_dump(mode="json")
    _drop_unknown(tree, Record)
    _drop_unknown(tree["video"], Video)
    if "origin" in tree["video"]:
        _drop_unknown(tree["video"]["origin"], LinkOrigin)
    if tree["transcript"] is not None:
        for sentence in tree["transcript"]["sentences"]:
            sentence.update(sentence.pop("span"))
            for word in sentence["words"]:
                span = word.pop("span")
                word.update(span or {"start": None, "end": None})
    for field in STEP_FIELDS:
        tree[field] = [_flatten_step(step) for step in tree[field]]
    ordered = {"version": tree.pop("version"), "id": tree.pop("id")} | tree
    text = json.dumps(ordered, ensure_ascii=False, indent=2, allow_nan=False)
    return printable(text) + "\n"


def from_json(text: str | bytes, source: str = "JSON") -> Record:
    """Return the record that `to_json` wrote. Raises StoreError for anything else."""
    try:
        tree = parse_json(text)
    except ValueError as error:
        cure = "write it again with `stepline steps --force`"
        raise StoreError(f"{source}: not valid JSON ({error}); {cure}") from error
    cure = "`stepline steps` writes one"
    if not isinstance(tree, dict) or tree.get("version") != VERSION:
        raise StoreError(f"{source}: not a Stepline record of version {VERSION}; {cure}")
    try:
        return Record.model_validate_json(json.dumps(_unflatten(tree)))
    except (ValidationError, KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = first_line(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            reason = f"{place}: {first['msg']}"
        raise StoreError(f"{source}: not a Stepline record ({reason}); {cure}") from error


def read_record(path: Path | str) -> Record:
    """Return the record in a JSON file."""
    path = Path(path)
    try:
        return from_json(read_limited(path, MAX_RECORD_BYTES), str(path))
    except LimitError as error:
        raise StoreError(
            f"{path}: {error}, so no record of one video; `stepline steps` writes one"
        ) from error
    except OSError as error:
        cure = "give a file that `stepline steps` wrote"
        raise StoreError(f"{path}: cannot be read ({error.strerror}); {cure}") from error


def write_record(record: Record, path: Path | str) -> None:
    """Write a record as JSON."""
    write_atomic(Path(path), to_json(record))


def _drop_unknown(tree: dict[str, Any], kind: type) -> None:
    """Take the fields of KNOWN_ONLY_FIELDS out of the tree that hold nothing."""
    for field in KNOWN_ONLY_FIELDS[kind]:
        if tree.get(field) in (None, [], {}):
            tree.pop(field, None)


def _flatten_step(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step with its best span as `start` and `end`, and its spans as pairs."""
    spans = [[span["start"], span["end"]] for span in step["spans"]]
    start, end = spans[0] if spans else (None, None)
    flat = {"id": step.pop("id"), "text": step.pop("text"), "start": start, "end": end}
    narrated = step["said"]
    _drop_unknown(step, Step)
    flat |= step
    flat["spans"] = spans
    flat["said"] = [narrated["start"], narrated["end"]] if narrated else None
    return flat


def _unflatten(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of a record as its fields hold it."""
    tree = dict(tree)
    if tree.get("transcript") is not None:
        transcript = dict(tree["transcript"])
        transcript["sentences"] = list(map(_unflatten_sentence, transcript["sentences"]))
        tree["transcript"] = transcript
    for field in STEP_FIELDS:
        tree[field] = list(map(_unflatten_step, tree.get(field, [])))
    return tree


def _unflatten_sentence(sentence: dict[str, Any]) -> dict[str, Any]:
    """Return a sentence, and each of its words, with a span instead of `start` and `end`."""
    words = []
    for word in sentence.get("words", []):
        span = None if word["start"] is None else _span(word)
        words.append(_without_times(word) | {"span": span})
    return _without_times(sentence) | {"span": _span(sentence), "words": words}


def _unflatten_step(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step with its spans by name."""
    narrated = step.get("said")
    spans = [{"start": span[0], "end": span[1]} for span in step.get("spans", [])]
    named = {"start": narrated[0], "end": narrated[1]} if narrated else None
    return _without_times(step) | {"spans": spans, "said": named}


def _span(item: dict[str, Any]) -> dict[str, Any]:
    return {"start": item["start"], "end": item["end"]}


def _without_times(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("start", "end")}


# ---------------------------------------------------------------- Parquet


def write_parquet(records: Iterable[Record], path: Path | str) -> int:
    """Write one row a record (id, video id, task, counts, and the whole record as JSON) and return
    how many.

    Records are taken one at a time, and `ROWS` of them held at once.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    text = arrow.string()
    columns = {"id": text, "video": text, "task": text, "steps": arrow.int32(), "record": text}
    schema = arrow.schema(columns.items(), metadata={"stepline_version": str(VERSION)})
    count = 0
    stream = iter(records)
    with atomic_path(Path(path)) as partial, parquet.ParquetWriter(partial, schema) as writer:
        while batch := list(itertools.islice(stream, BATCH_ROWS)):
            rows = []
            for record in batch:
                task = record.video.task
                row = (record.id, record.video.id, task, len(record.steps), to_json(record))
                rows.append(dict(zip(columns, row, strict=True)))
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


def read_parquet(path: Path | str) -> Iterator[Record]:
    """Yield the records that `write_parquet` wrote, a row group at a time."""
    path = Path(path)
    if not path.exists():
        raise StoreError(f"{path}: no such file; give records that Stepline wrote")
    for cell in read_text_column(path, "record"):
        yield from_json(cell, str(path))
