"""Records as JSON and Parquet.

The JSON is what users get: plain, stable, versioned. `to_json` and `from_json` lose nothing between
them.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from stepline.errors import StoreError, first_line, printable
from stepline.files.atomic_files import atomic_path, write_atomic
from stepline.files.parquet import BATCH_ROWS, read_text_column
from stepline.limits import MAX_RECORD_BYTES, LimitError, parse_json, read_limited
from stepline.records import RECORD_VERSION, LinkOrigin, Record, Step, Video

# ---------------------------------------------------------------- JSON

Tree: TypeAlias = dict[str, Any]  # parsed JSON of a record or of a part of it
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
            _flatten_sentence(sentence)
    for field in STEP_FIELDS:
        tree[field] = [_flatten_step(step) for step in tree[field]]
    # The version and the id come first.
    ordered = {"version": tree.pop("version"), "id": tree.pop("id"), **tree}
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
    if not isinstance(tree, dict) or tree.get("version") != RECORD_VERSION:
        raise StoreError(f"{source}: not a Stepline record of version {RECORD_VERSION}; {cure}")
    try:
        return Record.model_validate_json(json.dumps(_unflatten(tree)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise StoreError(f"{source}: not a Stepline record ({reason}); {cure}") from error
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = first_line(error)
        raise StoreError(f"{source}: not a Stepline record ({reason}); {cure}") from error


def read_record(path: Path | str) -> Record:
    """Return the record in a JSON file."""
    path = Path(path)
    try:
        return from_json(read_limited(path, MAX_RECORD_BYTES), str(path))
    except LimitError as error:
        cure = "`stepline steps` writes one"
        raise StoreError(f"{path}: {error}, so it is not one video's record; {cure}") from error
    except OSError as error:
        cure = "give a file that `stepline steps` wrote"
        raise StoreError(f"{path}: cannot be read ({error.strerror}); {cure}") from error


def write_record(record: Record, path: Path | str) -> None:
    """Write a record as JSON."""
    write_atomic(Path(path), to_json(record))


def _drop_unknown(tree: Tree, kind: type) -> None:
    """Take the fields of KNOWN_ONLY_FIELDS out of the tree that hold nothing."""
    for field in KNOWN_ONLY_FIELDS[kind]:
        if tree.get(field) in (None, [], {}):
            tree.pop(field, None)


def _flatten_sentence(sentence: Tree) -> None:
    """Give a sentence, and each of its words, `start` and `end` instead of a span."""
    sentence.update(sentence.pop("span"))
    for word in sentence["words"]:
        word.update(word.pop("span") or {"start": None, "end": None})


def _flatten_step(step: Tree) -> Tree:
    """Return a step with its best span as `start` and `end`, and its spans as pairs."""
    spans = [_pair(span) for span in step["spans"]]
    start, end = spans[0] if spans else (None, None)
    flat = {"id": step.pop("id"), "text": step.pop("text"), "start": start, "end": end}
    _drop_unknown(step, Step)
    narrated = step["said"]
    return {**flat, **step, "spans": spans, "said": _pair(narrated) if narrated else None}


def _pair(span: Tree) -> list[Any]:
    return [span["start"], span["end"]]


def _unflatten(tree: Tree) -> Tree:
    """Return the tree of a record as its fields hold it."""
    tree = dict(tree)
    if tree.get("transcript") is not None:
        sentences = [_unflatten_sentence(each) for each in tree["transcript"]["sentences"]]
        tree["transcript"] = {**tree["transcript"], "sentences": sentences}
    for field in STEP_FIELDS:
        tree[field] = [_unflatten_step(step) for step in tree.get(field, [])]
    return tree


def _unflatten_sentence(sentence: Tree) -> Tree:
    """Return a sentence, and each of its words, with a span instead of `start` and `end`."""
    words = []
    for word in sentence.get("words", []):
        span = None if word["start"] is None else _span(word["start"], word["end"])
        words.append({**_without_times(word), "span": span})
    span = _span(sentence["start"], sentence["end"])
    return {**_without_times(sentence), "span": span, "words": words}


def _unflatten_step(step: Tree) -> Tree:
    """Return a step with its spans by name."""
    narrated = step.get("said")
    return {
        **_without_times(step),
        "spans": [_span(pair[0], pair[1]) for pair in step.get("spans", [])],
        "said": _span(narrated[0], narrated[1]) if narrated else None,
    }


def _span(start: float, end: float) -> dict[str, float]:
    return {"start": start, "end": end}


def _without_times(item: Tree) -> Tree:
    return {key: value for key, value in item.items() if key not in ("start", "end")}


# ---------------------------------------------------------------- Parquet


def write_parquet(records: Iterable[Record], path: Path | str) -> int:
    """Write one row per record (id, video id, task, counts, and the whole record as JSON) and
    return how many.

    Records are taken one at a time, and `BATCH_ROWS` of them are held together.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    # Columns that can be looked at without reading whole records.
    columns = {name: arrow.string() for name in ("id", "video", "task", "steps", "record")}
    columns["steps"] = arrow.int32()
    schema = arrow.schema(columns, metadata={"stepline_version": str(RECORD_VERSION)})
    # A batch at a time, so that any number of records fits into memory.
    count = 0
    stream = iter(records)
    with atomic_path(Path(path)) as partial, parquet.ParquetWriter(partial, schema) as writer:
        while batch := list(itertools.islice(stream, BATCH_ROWS)):
            rows = [
                {
                    "id": record.id,
                    "video": record.video.id,
                    "task": record.video.task,
                    "steps": len(record.steps),
                    "record": to_json(record),
                }
                for record in batch
            ]
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
