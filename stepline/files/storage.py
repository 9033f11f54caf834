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
    ordered: Tree = {}
    ordered["version"] = tree.pop("version")
    ordered["id"] = tree.pop("id")
    ordered |= tree
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
        nested = _unflatten(tree)
        return Record.model_validate_json(json.dumps(nested))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"{field}: {first['msg']}"
        raise StoreError(f"{source}: not a Stepline record ({reason}); {cure}") from error
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = first_line(error)
        raise StoreError(f"{source}: not a Stepline record ({reason}); {cure}") from error


def read_record(path: Path | str) -> Record:
    """Return the record in a JSON file."""
    path = Path(path)
    try:
        content = read_limited(path, MAX_RECORD_BYTES)
        return from_json(content, str(path))
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
        value = tree.get(field)
        if value in (None, [], {}):
            tree.pop(field, None)


def _flatten_sentence(sentence: Tree) -> None:
    """Give a sentence, and each of its words, `start` and `end` instead of a span."""
    sentence.update(sentence.pop("span"))
    for word in sentence["words"]:
        span = word.pop("span")
        if not span:
            span = {"start": None, "end": None}
        word.update(span)


def _flatten_step(step: Tree) -> Tree:
    """Return a step with its best span as `start` and `end`, and its spans as pairs."""
    spans = [_pair(span) for span in step["spans"]]
    best = [None, None]
    if spans:
        best = spans[0]
    flat = {"id": step.pop("id"), "text": step.pop("text"), "start": best[0], "end": best[1]}
    narrated = step["said"]
    _drop_unknown(step, Step)
    flat |= step
    flat["spans"] = spans
    flat["said"] = None
    if narrated:
        flat["said"] = _pair(narrated)
    return flat


def _pair(span: Tree) -> list[Any]:
    return [span["start"], span["end"]]


def _unflatten(tree: Tree) -> Tree:
    """Return the tree of a record as its fields hold it."""
    tree = dict(tree)
    if tree.get("transcript") is not None:
        transcript = dict(tree["transcript"])
        sentences = transcript["sentences"]
        transcript["sentences"] = list(map(_unflatten_sentence, sentences))
        tree["transcript"] = transcript
    for field in STEP_FIELDS:
        steps = tree.get(field, [])
        tree[field] = list(map(_unflatten_step, steps))
    return tree


def _unflatten_sentence(sentence: Tree) -> Tree:
    """Return a sentence, and each of its words, with a span instead of `start` and `end`."""
    words = []
    for word in sentence.get("words", []):
        span = None
        if word["start"] is not None:
            span = _span(word["start"], word["end"])
        nested = _without_times(word)
        nested["span"] = span
        words.append(nested)
    nested = _without_times(sentence)
    nested["span"] = _span(sentence["start"], sentence["end"])
    nested["words"] = words
    return nested


def _unflatten_step(step: Tree) -> Tree:
    """Return a step with its spans by name."""
    narrated = step.get("said")
    spans = [_span(pair[0], pair[1]) for pair in step.get("spans", [])]
    narrated_span = None
    if narrated:
        narrated_span = _span(narrated[0], narrated[1])
    nested = _without_times(step)
    nested["spans"] = spans
    nested["said"] = narrated_span
    return nested


def _span(start: float, end: float) -> dict[str, float]:
    return {"start": start, "end": end}


def _without_times(item: Tree) -> Tree:
    rest = dict(item.items())
    rest.pop("start", None)
    rest.pop("end", None)
    return rest


# ---------------------------------------------------------------- Parquet


def write_parquet(records: Iterable[Record], path: Path | str) -> int:
    """Write one row per record (id, video id, task, counts, and the whole record as JSON) and
    return how many.

    Records are taken one at a time, and `BATCH_ROWS` of them are held together.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    # Columns that can be looked at without reading whole records.
    text = arrow.string()
    columns = [
        ("id", text),
        ("video", text),
        ("task", text),
        ("steps", arrow.int32()),
        ("record", text),  # the whole, as JSON
    ]
    metadata = {"stepline_version": str(RECORD_VERSION)}
    schema = arrow.schema(columns, metadata=metadata)
    # A batch at a time, so that any number of records fits into memory.
    count = 0
    stream = iter(records)
    with atomic_path(Path(path)) as partial, parquet.ParquetWriter(partial, schema) as writer:
        while batch := list(itertools.islice(stream, BATCH_ROWS)):
            rows = []
            for record in batch:
                rows.append(
                    {
                        "id": record.id,
                        "video": record.video.id,
                        "task": record.video.task,
                        "steps": len(record.steps),
                        "record": to_json(record),
                    }
                )
            table = arrow.Table.from_pylist(rows, schema=schema)
            writer.write_table(table)
            count += len(rows)
    return count


def read_parquet(path: Path | str) -> Iterator[Record]:
    """Yield the records that `write_parquet` wrote, a row group at a time."""
    path = Path(path)
    if not path.exists():
        raise StoreError(f"{path}: no such file; give records that Stepline wrote")
    for cell in read_text_column(path, "record"):
        yield from_json(cell, str(path))
