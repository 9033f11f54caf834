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
from stepline.limits import RECORD, LimitError, parse_json, read_limited
from stepline.parquet import ROWS, read_text_column
from stepline.records import VERSION, Record

# ---------------------------------------------------------------- JSON


def to_json(record: Record) -> str:
    """Return the record in the public JSON form (docs/json.md): times flat, spans as pairs, 2-space
    indent."""
    tree = record.model_dump(mode="json")
    if tree["video"]["origin"] is None:
        del tree["video"]["origin"]
    if tree["transcript"] is not None:
        for sentence in tree["transcript"]["sentences"]:
            sentence |= sentence.pop("span")
            for word in sentence["words"]:
                word |= word.pop("span") or {"start": None, "end": None}
    for field in ("steps", "captions", "reference"):
        tree[field] = [_flatten_step(step) for step in tree[field]]
    ordered = {"version": tree.pop("version"), "id": tree.pop("id")} | tree
    return printable(json.dumps(ordered, ensure_ascii=False, indent=2, allow_nan=False)) + "\n"


def from_json(text: str | bytes, source: str = "JSON") -> Record:
    """Return the record that `to_json` wrote. Raises StoreError for anything else."""
    try:
        tree = parse_json(text)
    except ValueError as error:
        raise StoreError(
            f"{source}: not valid JSON ({error}); write it again with `stepline steps --force`"
        ) from error
    if not isinstance(tree, dict) or tree.get("version") != VERSION:
        raise StoreError(
            f"{source}: not a Stepline record of version {VERSION}; `stepline steps` writes one"
        )
    try:
        return Record.model_validate_json(json.dumps(_unflatten(tree)))
    except (ValidationError, KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = first_line(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise StoreError(
            f"{source}: not a Stepline record ({reason}); `stepline steps` writes one"
        ) from error


def read_record(path: Path) -> Record:
    """Return the record in a JSON file."""
    try:
        return from_json(read_limited(path, RECORD), str(path))
    except LimitError as error:
        raise StoreError(
            f"{path}: {error}, so no record of one video; `stepline steps` writes one"
        ) from error
    except OSError as error:
        cure = "give a file that `stepline steps` wrote"
        raise StoreError(f"{path}: cannot be read ({error.strerror}); {cure}") from error


def write_record(record: Record, path: Path) -> None:
    """Write a record as JSON."""
    write_atomic(path, to_json(record))


def _flatten_step(step: dict[str, Any]) -> dict[str, Any]:
    spans = [[span["start"], span["end"]] for span in step["spans"]]
    best = spans[0] if spans else [None, None]
    said = [step["said"]["start"], step["said"]["end"]] if step["said"] else None
    first = {"id": step.pop("id"), "text": step.pop("text"), "start": best[0], "end": best[1]}
    if not step["seen"]:  # stored only where something was seen
        step.pop("seen")
    return first | step | {"spans": spans, "said": said}


def _unflatten(tree: dict[str, Any]) -> dict[str, Any]:
    tree = dict(tree)
    if tree.get("transcript") is not None:
        transcript = dict(tree["transcript"])
        transcript["sentences"] = [
            _unflatten_sentence(sentence) for sentence in transcript["sentences"]
        ]
        tree["transcript"] = transcript
    for field in ("steps", "captions", "reference"):
        tree[field] = [_unflatten_step(step) for step in tree.get(field, [])]
    return tree


def _unflatten_sentence(sentence: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in sentence.items() if key not in ("start", "end", "words")}
    words = [
        {key: value for key, value in word.items() if key not in ("start", "end")}
        | {"span": None if word["start"] is None else {"start": word["start"], "end": word["end"]}}
        for word in sentence.get("words", [])
    ]
    return rest | {"span": {"start": sentence["start"], "end": sentence["end"]}, "words": words}


def _unflatten_step(step: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in step.items() if key not in ("start", "end")}
    rest["spans"] = [{"start": span[0], "end": span[1]} for span in step.get("spans", [])]
    said = step.get("said")
    return rest | {"said": {"start": said[0], "end": said[1]} if said else None}


# ---------------------------------------------------------------- Parquet


def write_parquet(records: Iterable[Record], path: Path) -> int:
    """Write one row a record (id, video id, task, counts, and the whole record as JSON) and return
    how many.

    Records are taken one at a time, and `ROWS` of them held at once.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    names = ["id", "video", "task", "steps", "record"]
    types = [arrow.string(), arrow.string(), arrow.string(), arrow.int32(), arrow.string()]
    schema = arrow.schema(
        list(zip(names, types, strict=True)), metadata={"stepline_version": str(VERSION)}
    )
    count = 0
    stream = iter(records)
    with atomic_path(path) as partial, parquet.ParquetWriter(partial, schema) as writer:
        while part := list(itertools.islice(stream, ROWS)):
            rows = [
                {
                    "id": r.id,
                    "video": r.video.id,
                    "task": r.video.task,
                    "steps": len(r.steps),
                    "record": to_json(r),
                }
                for r in part
            ]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


def read_parquet(path: Path) -> Iterator[Record]:
    """Yield the records that `write_parquet` wrote, a row group at a time."""
    if not path.exists():
        raise StoreError(f"{path}: no such file; give records that Stepline wrote")
    for cell in read_text_column(path, "record"):
        yield from_json(cell, str(path))
