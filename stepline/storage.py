"""Records as JSON files and Parquet tables.

The JSON is for users: plain, stable, versioned. `from_json` reads all that `to_json` writes.
"""

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import DEFAULT_REF_TEMPLATE

from stepline.errors import StoreError, escape_control_characters, first_line
from stepline.files.atomic_files import atomic_path, write_atomic
from stepline.files.parquet import BATCH_ROWS, read_text_column
from stepline.limits import MAX_RECORD_BYTES, MAX_SECOND, LimitError, parse_json, read_limited
from stepline.records import RECORD_VERSION, LinkOrigin, Record, Step, Video, with_current_status

# ---------------------------------------------------------------- JSON

# keys of a record by which a damaged one is told from other JSON
MAIN_KEYS = frozenset({"version", "id", "video", "steps"})
DAMAGE_CURE = "put a copy back, or write it again with `stepline steps --force`"


class DamagedRecordError(StoreError):
    """A record that cannot be read, or a file that is not even JSON."""


Tree = dict[str, Any]  # parsed JSON of a record or of a part of it
STEP_FIELDS = ("steps", "captions", "reference")  # of a record, each a list of steps
# fields that JSON leaves out where they are empty
OPTIONAL_FIELDS: dict[type, tuple[str, ...]] = {
    Video: ("origin", "title_source", "author", "publication_date", "tags", "metadata"),
    LinkOrigin: ("upload_date",),
    Step: ("seen", "basis", "doubt", "target", "wait"),
}


def to_json(record: Record) -> str:
    """Return a record as JSON text in the public form (docs/json.md)."""
    tree = record.model_dump(mode="json")
    _drop_empty_fields(tree["video"], Video)
    if "origin" in tree["video"]:
        _drop_empty_fields(tree["video"]["origin"], LinkOrigin)
    if tree["transcript"] is not None:
        for sentence in tree["transcript"]["sentences"]:
            _flatten_sentence(sentence)
    for field in STEP_FIELDS:
        tree[field] = [_flatten_step(step) for step in tree[field]]
    # The version and the id come first.
    ordered = {"version": tree.pop("version"), "id": tree.pop("id"), **tree}
    text = json.dumps(ordered, ensure_ascii=False, indent=2, allow_nan=False)
    return escape_control_characters(text) + "\n"


def record_schema(ref_template: str = DEFAULT_REF_TEMPLATE) -> Tree:
    """Return the JSON Schema of a record in the public form, as `to_json` writes it.

    Times are flat and spans are pairs.

    ref_template: how a definition is referred to, with {model} for its name.
    """
    optional = {kind.__name__: fields for kind, fields in OPTIONAL_FIELDS.items()}
    optional["Rejected"] = ("id", "value", "location")
    schema = output_schema(Record, optional, ref_template)
    second = {"type": "number", "minimum": 0.0, "maximum": MAX_SECOND}
    second_or_null = {"anyOf": [second, {"type": "null"}]}
    pair = {
        "description": "Start and end in seconds, start < end.",
        "type": "array",
        "items": second,
        "minItems": 2,
        "maxItems": 2,
    }
    definitions = schema["$defs"]
    del definitions["Span"]
    # start and end in the place of a span
    for name, time in (("Sentence", second), ("Word", second_or_null)):
        properties = definitions[name]["properties"]
        del properties["span"]
        properties["start"] = {"description": "Second at which it begins."} | time
        properties["end"] = {"description": "Second at which it ends."} | time
        definitions[name]["required"] = [*properties]
    # the best span as start and end, and spans as pairs
    step = definitions["Step"]
    properties = step["properties"]
    best = "of the best span in which it is shown, null where it is not"
    properties["start"] = {"description": f"Start {best}."} | second_or_null
    properties["end"] = {"description": f"End {best}."} | second_or_null
    properties["spans"]["items"] = pair
    properties["said"]["anyOf"] = [pair, {"type": "null"}]
    step["required"] += ["start", "end"]
    return schema


def output_schema(
    kind: Any, optional: Mapping[str, Collection[str]], ref_template: str = DEFAULT_REF_TEMPLATE
) -> Tree:
    """Return the schema of a pydantic class, with every field required.

    Args:
        kind: the class.
        optional: class name -> fields that may be missing.
        ref_template: how a definition is referred to, with {model} for its name.
    """
    schema: Tree = kind.model_json_schema(ref_template=ref_template)
    for name, definition in {**schema["$defs"], kind.__name__: schema}.items():
        left_out = optional.get(name, ())
        # JsonValue has none
        fields = definition.get("properties", ())
        definition["required"] = [field for field in fields if field not in left_out]
    return schema


def from_json(text: str | bytes, source: str = "JSON") -> Record:
    """Return the record in a JSON text of `to_json`.

    Args:
        text: the JSON text.
        source: name of the file in error messages.

    Raises DamagedRecordError for a record that is damaged or of another version, StoreError for
    other JSON.
    """
    try:
        tree = parse_json(text)
    except ValueError as error:
        raise DamagedRecordError(f"{source}: not valid JSON ({error}); {DAMAGE_CURE}") from error
    # A damaged byte may be in one of the keys.
    is_record = isinstance(tree, dict) and len(MAIN_KEYS & tree.keys()) >= len(MAIN_KEYS) - 1
    if not is_record:
        raise StoreError(
            f"{source}: not a Stepline record of version {RECORD_VERSION}; `stepline steps` writes "
            "one"
        )
    if tree.get("version") != RECORD_VERSION:
        raise DamagedRecordError(
            f"{source}: not a Stepline record of version {RECORD_VERSION}; {DAMAGE_CURE}"
        )
    try:
        return Record.model_validate_json(json.dumps(_unflatten_record(tree)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DamagedRecordError(
            f"{source}: not a Stepline record ({reason}); {DAMAGE_CURE}"
        ) from error
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = first_line(error)
        raise DamagedRecordError(
            f"{source}: not a Stepline record ({reason}); {DAMAGE_CURE}"
        ) from error


def read_record(path: Path | str) -> Record:
    """Return the record in a JSON file.

    Raises DamagedRecordError as `from_json`, and for a file that cannot be read. Raises StoreError
    if the file holds no record.
    """
    path = Path(path)
    try:
        return from_json(read_limited(path, MAX_RECORD_BYTES), str(path))
    except LimitError as error:
        raise StoreError(
            f"{path}: {error}, so it is not one video's record; `stepline steps` writes one"
        ) from error
    except OSError as error:
        kind = StoreError if isinstance(error, FileNotFoundError) else DamagedRecordError
        raise kind(
            f"{path}: cannot be read ({error.strerror}); give a file that `stepline steps` wrote"
        ) from error


def write_record(record: Record, path: Path | str) -> None:
    """Write a record as a JSON file."""
    write_atomic(Path(path), to_json(record))


def _drop_empty_fields(tree: Tree, kind: type) -> None:
    for field in OPTIONAL_FIELDS[kind]:
        if tree.get(field) in (None, [], {}):
            tree.pop(field, None)


def _flatten_sentence(sentence: Tree) -> None:
    """Replace the key `span` by `start` and `end` in a sentence and in its words."""
    sentence.update(sentence.pop("span"))
    for word in sentence["words"]:
        word.update(word.pop("span") or {"start": None, "end": None})


def _flatten_step(step: Tree) -> Tree:
    """Return a step for JSON: spans as [start, end], and `start` and `end` of the best span."""
    spans = [[*span.values()] for span in step["spans"]]
    start, end = spans[0] if spans else (None, None)
    flat = {"id": step.pop("id"), "text": step.pop("text"), "start": start, "end": end}
    _drop_empty_fields(step, Step)
    said = step["said"]
    return {**flat, **step, "spans": spans, "said": [*said.values()] if said else None}


def _unflatten_record(tree: Tree) -> Tree:
    """Return the JSON values of a record in the nested form that the class Record validates."""
    tree = dict(tree)
    if tree.get("transcript") is not None:
        sentences = list(map(_unflatten_sentence, tree["transcript"]["sentences"]))
        tree["transcript"] = {**tree["transcript"], "sentences": sentences}
    for field in STEP_FIELDS:
        tree[field] = [_unflatten_step(step) for step in tree.get(field, [])]
    return tree


def _unflatten_sentence(sentence: Tree) -> Tree:
    """Return a sentence with the key `span` instead of `start` and `end`, also in each word."""
    words = []
    for word in sentence.get("words", []):
        span = None if word["start"] is None else _span_tree(word["start"], word["end"])
        words.append({**_drop_times(word), "span": span})
    span = _span_tree(sentence["start"], sentence["end"])
    return {**_drop_times(sentence), "span": span, "words": words}


def _unflatten_step(step: Tree) -> Tree:
    """Return a step with spans as {start, end} objects, without its own keys `start` and `end`."""
    said = step.get("said")
    return {
        **_drop_times(with_current_status(step)),
        "spans": [_span_tree(pair[0], pair[1]) for pair in step.get("spans", [])],
        "said": _span_tree(said[0], said[1]) if said else None,
    }


def _span_tree(start: float, end: float) -> dict[str, float]:
    return {"start": start, "end": end}


def _drop_times(item: Tree) -> Tree:
    return {key: value for key, value in item.items() if key not in ("start", "end")}


# ---------------------------------------------------------------- Parquet


def write_parquet(records: Iterable[Record], path: Path | str) -> int:
    """Write a Parquet file with one row per record, and return the number of rows.

    The columns are id, video id, task, number of steps, and the whole record as JSON. At most
    `BATCH_ROWS` records are in memory at a time.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    # Columns that can be read without parsing whole records.
    columns = {name: arrow.string() for name in ("id", "video", "task", "steps", "record")}
    columns["steps"] = arrow.int32()
    schema = arrow.schema(columns, metadata={"stepline_version": str(RECORD_VERSION)})
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
    """Yield the records in a Parquet file that `write_parquet` wrote.

    Raises StoreError for any other file.
    """
    path = Path(path)
    if not path.exists():
        raise StoreError(f"{path}: no such file; give records that Stepline wrote")
    for cell in read_text_column(path, "record"):
        yield from_json(cell, str(path))
