"""Atomic files, one writer at a time, and records as JSON and Parquet.

The JSON is what users get: plain, stable, versioned. `to_json` and `from_json` lose nothing between
them.
"""

import contextlib
import itertools
import json
import logging
import os
import re
import socket
import sys
import tarfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import ValidationError

from stepline.errors import SettingsError, StoreError, first_line, printable
from stepline.limits import RECORD, LimitError, parse_json, read_limited
from stepline.records import VERSION, Record

if TYPE_CHECKING:
    import pyarrow as arrow

# marks a file that is being written; its name holds the writer's process id and machine
PARTIAL = ".partial"
ROWS = 2000  # records of a Parquet file held at once; each is some 10 KiB
STEM = 80  # bytes of a file's stem that its temporary name begins with; a name may have 255
_serial = itertools.count()

log = logging.getLogger(__name__)


def write_atomic(path: Path, data: str | bytes) -> None:
    """Write a file whole or not at all: a temporary file beside it, flushed to disk, then renamed
    over it."""
    with atomic_path(path) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; it takes its place on success and is
    removed on failure.

    Raises StoreError, with the cure, when the disk is full or the folder cannot be written.
    """
    with atomic_files() as files:
        yield files.partial(path)


class FileSet:
    """Files that appear together: each is written beside its place, and none takes it before all
    are on disk."""

    def __init__(self) -> None:
        self.current = Path()  # what an error is about
        self._partials: dict[Path, Path] = {}
        self._stale: list[Path] = []

    def partial(self, path: Path) -> Path:
        """Return the temporary path to write to instead of `path`."""
        self.current = path
        path.parent.mkdir(parents=True, exist_ok=True)
        name = f".{_partial_stem(path)}.{os.getpid()}-{next(_serial)}-{_machine()}{PARTIAL}{path.suffix}"
        self._partials[path] = path.parent / name
        return self._partials[path]

    @property
    def partials(self) -> Mapping[Path, Path]:
        """The temporary path of each file that was asked for."""
        return self._partials

    def remove(self, path: Path) -> None:
        """Have a file that none of the new ones replaces removed with the change."""
        self._stale.append(path)

    def commit(self) -> None:
        """Flush all to disk, then put each in its place, in the order in which they were asked
        for."""
        for path, partial in self._partials.items():
            self.current = path
            with partial.open("rb") as file:
                os.fsync(file.fileno())
        for path in self._stale:
            if path not in self._partials:
                remove_file(path)
        for path, partial in self._partials.items():
            self.current = path
            partial.replace(path)

    def discard(self) -> None:
        """Remove what has not taken its place."""
        for partial in self._partials.values():
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_files() -> Iterator[FileSet]:
    """Yield a set of files that takes its place on success, as a whole; on failure nothing of it is
    left.

    Raises StoreError, with the cure, when the disk is full or a folder cannot be written.
    """
    from safetensors import SafetensorError  # what its writers raise, also when the disk is full

    files = FileSet()
    try:
        yield files
        files.commit()
    except (FileExistsError, NotADirectoryError) as error:
        reason = "a file stands where its folder should be"
        raise StoreError(
            f"{files.current}: cannot be written, {reason}; give another --out"
        ) from error
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        cure = "free some space or give another --out"
        raise StoreError(f"{files.current}: cannot be written ({reason}); {cure}") from error
    finally:
        files.discard()


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted by path; folders that cannot be read, or go
    meanwhile, are left out.

    pathlib's own rglob ends with an error where another process removes a folder of it.
    """
    inside = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sorted(path for path in inside if path.is_file())


def check_writable(folder: Path) -> None:
    """Raise StoreError where files could not be written into a folder, or the folder not be made;
    makes nothing."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:  # the writers of Parquet and safetensors take no other
        raise StoreError(f"{str(folder)!a}: its name is not UTF-8; give another --out") from error
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    if not existing.is_dir():
        raise StoreError(f"{folder}: cannot be a folder, {existing} is a file; give another --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StoreError(f"{folder}: {existing} does not allow writing; give another --out")


def remove_file(path: Path) -> None:
    """Remove a file that Stepline wrote, if it is there. Raises StoreError where the folder does
    not allow it."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"{path}: cannot be removed ({reason}); remove it, or give another --out"
        ) from error


def remove_partial_files(folder: Path, of: Path | None = None) -> None:
    """Remove the temporary files that killed processes of this machine left in `folder`; those of
    others stay.

    of: the one file in it whose temporary files are meant.
    """
    import psutil

    for partial in folder.glob(f".*{PARTIAL}*") if of is None else partial_files(of):
        owner, _, rest = partial.name.rpartition(PARTIAL)[0].rpartition(".")[2].partition("-")
        ours = rest.partition("-")[2] in (_machine(), "")  # "": of a version that did not name it
        if owner.isdigit() and ours and not psutil.pid_exists(int(owner)):
            partial.unlink(missing_ok=True)


def _machine() -> str:
    """Return what tells this machine from another on a shared disk, short enough for a file's
    name."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _partial_stem(path: Path) -> str:
    """Return the first bytes of a file's stem: its temporary name is then no longer than names may
    be."""
    return os.fsencode(path.stem)[:STEM].decode(errors="ignore")


def partial_files(path: Path) -> list[Path]:
    """Return the temporary files of `path` that are being written, or that killed processes
    left."""
    own = re.compile(
        rf"\.{re.escape(_partial_stem(path))}\.\d+-\d+(-[0-9a-f]{{8}})?{re.escape(PARTIAL + path.suffix)}"
    )
    return sorted(file for file in path.parent.glob(f".*{PARTIAL}*") if own.fullmatch(file.name))


# ---------------------------------------------------------------- one writer at a time

LOCK = ".stepline.lock"  # in the folder that a run writes to
# times in a row that a folder is not there after it was made, from which nobody else is the reason
OFTEN_GONE = 100
# s between two looks at a lock that another holds; one who only asks who holds it is done sooner
POLL = 0.2


@contextlib.contextmanager
def lock_output(
    lock: Path, shown: Path | str, *, wait: bool = False, keep: bool = False
) -> Iterator[bool]:
    """Hold what a run writes to, and tell whether the one before was killed.

    A lock of the system's on the file `lock`, which names its owner: it ends with its owner,
    however that ends, also on a disk that machines share. shown: what messages call it. wait: for
    another's end, after a warning that names it; without it SettingsError names it. keep: leave the
    file, empty, at the end. On Windows, and on a disk that knows no locks, nothing is held.
    """
    made = [folder for folder in lock.parents if not folder.exists()]
    file, killed = _locked_file(lock, shown, wait=wait)
    try:
        yield killed
    finally:
        with contextlib.suppress(OSError):
            if keep:
                file.truncate(0)
            else:
                # before it is free: whoever locks it next finds that it is gone, and makes another
                lock.unlink()
        file.close()
        for folder in made:
            with contextlib.suppress(OSError):  # something was written there
                folder.rmdir()


def _locked_file(lock: Path, shown: Path | str, *, wait: bool) -> tuple[BinaryIO, bool]:
    gone = 0
    for attempt in itertools.count():
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            file = lock.open("a+b", buffering=0)
            gone = 0
            locked = lock_file_now(file)
            file.seek(0)
            note = file.read()
            if locked and _is_at(lock, file):
                file.truncate(0)
                file.write(owner_note())
                return file, bool(note)  # one that ends by itself leaves no file
            file.close()
        except (FileNotFoundError, FileExistsError) as error:
            # Whoever had the lock ended meanwhile, and took the folder away: mkdir too raises where
            # it is gone between its "exists" and its look whether that is a folder.
            gone += 1
            if gone < OFTEN_GONE:
                continue
            raise StoreError(
                f"{lock.parent}: cannot be made ({error.strerror}); give another --out"
            ) from error
        except OSError as error:
            raise StoreError(
                f"{lock}: cannot be written ({error.strerror}); give another --out"
            ) from error
        if locked:
            continue
        if attempt and not wait:
            raise taken(shown, note)
        if attempt == 1:
            log.warning("%s: %s works on it; waiting for its end", shown, owner_name(note))
        time.sleep(POLL)
    raise AssertionError("counts without end")


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def lock_file_now(file: BinaryIO, *, shared: bool = False) -> bool:
    """Lock an open file, or tell that another process has. Nothing is held where the system or disk
    has no locks."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning(
            "%s: this disk has no locks (%s); let no second run write there",
            file.name,
            error.strerror,
        )
    return True


def owner_note(name: str = "") -> bytes:
    """Return what tells others who holds a lock: this process, and since when."""
    return json.dumps(
        {"host": socket.gethostname(), "process": os.getpid(), "at": time.time(), "name": name}
    ).encode()


def owner_fields(note: bytes) -> dict[str, Any]:
    """Return what a note says; nothing where it is none."""
    try:
        fields = parse_json(note)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def owner_name(note: bytes) -> str:
    """Return whose note it is, in words."""
    fields = owner_fields(note)
    known = {"process", "host"} <= set(fields)
    return f"process {fields['process']} on {fields['host']}" if known else "another process"


def taken(shown: Path | str, note: bytes) -> SettingsError:
    """Return the error of one who wants to write where the note's owner does."""
    return SettingsError(
        f"{shown}: {owner_name(note)} works on it; wait for its end, or give another --out"
    )


class TarHeader(tarfile.TarInfo):
    """A member of a tar that ends where it says: without the two empty blocks at its end it was cut
    off.

    tarfile itself takes such an end, or a damaged header, for the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "TarHeader":
        """Return the next member. Raises tarfile.ReadError where none can be read and the archive
        has not ended."""
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":  # the empty block that ends an archive
                raise
            raise tarfile.ReadError(f"cut off or damaged at byte {tarfile_.offset}") from error


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


def read_text_column(path: Path, column: str) -> Iterator[str]:
    """Yield the cells of one column of a Parquet file, "" where a cell is empty. Raises
    StoreError."""
    from pyarrow import types

    try:
        table = ParquetReader(path)
        if column not in table.columns:
            has = f"it has {', '.join(table.columns)[:200]}" if table.columns else "it has none"
            raise StoreError(
                f"{path}: lacks the column {column!r}, {has}; give records that Stepline wrote"
            )
        if not types.is_string(table.schema.field(column).type):
            raise StoreError(
                f"{path}: its column {column!r} holds no text; give records that Stepline wrote"
            )
        yield from (row[column] or "" for row in table.rows([column]))
    except ParquetError as error:
        raise StoreError(
            f"{path}: not a readable Parquet file ({error}); write it again"
        ) from error


class ParquetError(ValueError):
    """A Parquet file that is damaged; the message says how, and in which column and row where one
    is at fault."""


class ParquetReader:
    """A Parquet file that anybody may have written; all that turns one into values reads through
    this.

    columns: the names of its columns. schema: Arrow's. Every method raises ParquetError for what is
    damaged.
    """

    def __init__(self, file: Path | BinaryIO) -> None:
        import pyarrow.parquet as parquet

        with _parquet_damage():
            self._file = parquet.ParquetFile(file)
            self.schema = self._file.schema_arrow
            self.columns: list[str] = list(self.schema.names)

    def rows(
        self, columns: Sequence[str] | None = None, size: int = ROWS
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows as plain values, `size` of them held at once, of some columns or of
        all."""
        with _parquet_damage():
            row = 0
            for batch in self._file.iter_batches(batch_size=size, columns=columns):
                yield from _plain_rows(batch, row)
                row += len(batch)

    def group(self, number: int) -> list[dict[str, Any]]:
        """Return the rows of one row group."""
        with _parquet_damage():
            batches = self._file.read_row_group(number).to_batches()
            return [row for batch in batches for row in _plain_rows(batch, 0)]

    def table(self) -> "arrow.Table":
        """Return all of it as Arrow's table, its texts checked."""
        with _parquet_damage():
            table = self._file.read()
            table.validate(full=True)
            return table


def _plain_rows(batch: "arrow.RecordBatch", begin: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch, up to the first cell that has no value in Python. begin: number of
    its first row."""
    try:
        yield from batch.to_pylist()
        return
    except PARQUET_DAMAGE:
        names = batch.schema.names
    for row, cells in enumerate(zip(*batch.columns, strict=True), start=begin):
        values = {}
        for name, cell in zip(names, cells, strict=True):
            try:
                values[name] = cell.as_py()
            except PARQUET_DAMAGE as error:
                reason = (
                    "text that is not UTF-8"
                    if isinstance(error, UnicodeDecodeError)
                    else first_line(error)
                )
                raise ParquetError(f"column {name!r}, row {row}: {reason}") from error
        yield values


# Beside Arrow's own: ValueError for text that is not UTF-8, and what dates, times and zones raise
# that Python lacks.
PARQUET_DAMAGE = (OSError, ValueError, OverflowError, KeyError, TypeError, NotImplementedError)


@contextlib.contextmanager
def _parquet_damage() -> Iterator[None]:
    """Raise ParquetError for what Arrow raises."""
    import pyarrow as arrow

    try:
        yield
    except ParquetError:
        raise
    except (*PARQUET_DAMAGE, arrow.ArrowException) as error:
        raise ParquetError(first_line(error)) from error
