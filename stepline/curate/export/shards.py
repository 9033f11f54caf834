"""The Parquet shards of a dataset, and the copy of its features.

A record is a row: columns that are useful without Stepline, and the whole record as JSON, which
loses nothing. A shard's name tells its place, their number and its content. Features go into a
store of their own, in the order of ids.

Records in WebDataset tars: KEY.json, KEY.vtt with the steps, and KEY.mp4 (or as it is) where media
go along; beside them a card with the types, which `datasets` would else guess from the first
videos: no title there, none in any.
"""

import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stepline.atomic_files import atomic_path, write_atomic
from stepline.curate.stage import StageFailure
from stepline.features import FeatureStore, FeatureWriter
from stepline.outputs import webvtt
from stepline.records import VERSION, Record
from stepline.remote import RemotePath
from stepline.storage import to_json
from stepline.weights import sha256

STRING, WHOLE, NUMBER = "string", "int32", "double"
TEXTS, NUMBERS = "list<string>", "list<double>"


@dataclass(frozen=True)
class Column:
    """A column: its name, its type, and what it means, as the card and the metadata say it."""

    name: str
    kind: str
    meaning: str


COLUMNS = (
    Column("id", STRING, "the item's id; rows are sorted by it"),
    Column("video", STRING, "the video's id in its source"),
    Column("path", STRING, "where the video lies in its source, or its public address"),
    Column("title", STRING, "the video's title, where the source tells it"),
    Column("task", STRING, "what is done in it, where the source tells it"),
    Column("duration", NUMBER, "seconds"),
    Column("language", STRING, "of the speech; empty where nobody tells it"),
    Column("steps", WHOLE, "how many steps there are"),
    Column("step_texts", TEXTS, "the steps, in the order in which they are written"),
    Column(
        "step_starts", NUMBERS, "second from which each step is shown; none where it was not found"
    ),
    Column("step_ends", NUMBERS, "second at which each step's span ends"),
    Column("step_scores", NUMBERS, "P(the step is shown at all); none where nothing judged it"),
    Column("step_statuses", TEXTS, "shown, unclear, said or not found"),
    Column(
        "step_licences", TEXTS, "licence of a text that people wrote; none where it was made here"
    ),
    Column("sentence_texts", TEXTS, "what is said"),
    Column("sentence_starts", NUMBERS, "second at which each sentence begins"),
    Column("sentence_ends", NUMBERS, "second at which it ends"),
    Column(
        "sentence_shown",
        NUMBERS,
        "P(the picture shows it while it is said); none where nothing judged it",
    ),
    Column("stage", STRING, "of a video that is left out: the stage that left it out"),
    Column("kind", STRING, "of a video that is left out: left out, error, hang, crash or memory"),
    Column("reason", STRING, "of a video that is left out: why"),
    Column(
        "record", STRING, "all that is known of it, as JSON; `stepline.storage.from_json` reads it"
    ),
)


@dataclass(frozen=True)
class DatasetRow:
    """A record and, where it is left out, why."""

    record: Record
    failure: StageFailure | None = None

    def cells(self) -> dict[str, object]:
        """Return the value of each column."""
        record, failure, steps, video = (
            self.record,
            self.failure,
            self.record.steps,
            self.record.video,
        )
        sentences = record.sentences
        return {
            "id": record.id,
            "video": video.id,
            "path": video.path,
            "title": video.title,
            "task": video.task,
            "duration": video.duration,
            "language": record.transcript.language if record.transcript else None,
            "steps": len(steps),
            "step_texts": [step.text for step in steps],
            "step_starts": [step.spans[0].start if step.spans else None for step in steps],
            "step_ends": [step.spans[0].end if step.spans else None for step in steps],
            "step_scores": [step.score for step in steps],
            "step_statuses": [step.status for step in steps],
            "step_licences": [step.licence for step in steps],
            "sentence_texts": [sentence.text for sentence in sentences],
            "sentence_starts": [sentence.span.start for sentence in sentences],
            "sentence_ends": [sentence.span.end for sentence in sentences],
            "sentence_shown": [sentence.shown for sentence in sentences],
            "stage": failure.stage if failure else None,
            "kind": failure.kind if failure else None,
            "reason": failure.reason if failure else None,
            "record": to_json(record),
        }


DATA = "data"
TRAIN, LEFT_OUT = "train", "left_out"
MOST = 128 * 2**20  # characters of JSON a shard, which bounds the memory of writing one
CUT = 16  # hex digits of a sha256 in a name
GROUP = 100  # rows that a reader must take at once


@dataclass(frozen=True)
class ExportedFile:
    """A file of the dataset. path: relative to it."""

    path: str
    bytes: int
    sha256: str


def write_shards(
    rows: Iterable[DatasetRow], split: str, folder: Path, limit: int
) -> list[ExportedFile]:
    """Write rows, sorted by id already, as shards of at most `limit` rows; one of no rows where
    there are none.

    split: "train" or "left_out". Shards end where only their content decides, so that equal rows
    give equal files.
    """
    (folder / DATA).mkdir(parents=True, exist_ok=True)
    parts = []
    for number, block in enumerate(_blocks(rows, limit)):
        part = folder / DATA / f".{split}-{number:05d}.parquet"
        _write(block, part)
        parts.append((part, sha256(part)))
    exported = []
    for number, (part, digest) in enumerate(parts):
        name = f"{DATA}/{split}-{number:05d}-of-{len(parts):05d}-{digest[:CUT]}.parquet"
        part.rename(folder / name)
        exported.append(ExportedFile(name, (folder / name).stat().st_size, digest))
    return exported


def _blocks(rows: Iterable[DatasetRow], limit: int) -> Iterator[list[dict[str, object]]]:
    block: list[dict[str, object]] = []
    size, none = 0, True
    for row in rows:
        cells = row.cells()
        length = len(str(cells["record"]))
        if block and (len(block) == limit or size + length > MOST):
            yield block
            block, size, none = [], 0, False
        block.append(cells)
        size += length
    if block or none:
        yield block


def _write(block: list[dict[str, object]], path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    kinds = {
        STRING: arrow.string(),
        WHOLE: arrow.int32(),
        NUMBER: arrow.float64(),
        TEXTS: arrow.list_(arrow.string()),
        NUMBERS: arrow.list_(arrow.float64()),
    }
    fields = [(column.name, kinds[column.kind]) for column in COLUMNS]
    schema = arrow.schema(fields, metadata={"stepline_version": str(VERSION)})
    table = arrow.Table.from_pylist(block, schema=schema)
    with atomic_path(path) as partial:
        parquet.write_table(table, partial, compression="zstd", row_group_size=GROUP)


FEATURES = "features"


def copy_features(
    ids: Iterable[str], store: FeatureStore, folder: Path, shard_bytes: int
) -> list[ExportedFile]:
    """Copy the features of ids of a store, sorted already, into FOLDER/features."""
    with FeatureWriter(folder / FEATURES, shard_bytes=shard_bytes) as writer:
        for id in ids:
            stored = store[id]
            writer.add(
                id,
                store.matrix(id),
                rate=stored.rate,
                backbone=stored.backbone,
                texts=store.texts(id),
            )
    files = sorted((folder / FEATURES).glob("shard-*"))
    return [_exported(file) for file in files]


TARS = "webdataset"
BLOCK = 512  # bytes to which a tar rounds what it holds


def write_tars(
    records: Iterable[Record],
    folder: Path,
    shard_bytes: int,
    media: Mapping[str, RemotePath] | None = None,
) -> list[ExportedFile]:
    """Write records, sorted by id already, into tars of about `shard_bytes`. media: videos by id,
    to go along.

    A key may hold no dot, which ends it for readers: one in an id becomes %2E, and % becomes %25.
    """
    (folder / TARS).mkdir(parents=True, exist_ok=True)
    exported: list[ExportedFile] = []
    types = {"__key__": "string", "__url__": "string", "json": "json", "vtt": "binary"}
    stream = iter(records)
    record = next(stream, None)
    while record is not None:
        path = folder / TARS / f"train-{len(exported):05d}.tar"
        with (
            atomic_path(path) as partial,
            tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as archive,
        ):
            size = 0
            while record is not None and (not size or size < shard_bytes):
                video = (media or {}).get(record.id)
                size += _add_record(archive, record, video)
                types |= {_ending(video)[1:]: "video"} if video is not None else {}
                record = next(stream, None)
        exported.append(_exported(path))
    write_atomic(card := folder / TARS / "README.md", _tars_card(types))
    return [*exported, _exported(card)]


def _exported(path: Path) -> ExportedFile:
    return ExportedFile(f"{path.parent.name}/{path.name}", path.stat().st_size, sha256(path))


def _tars_card(types: Mapping[str, str]) -> str:
    """Return what tells `datasets` the type of each file of a key."""
    features = "".join(
        f"  - name: {name}\n    dtype: {kind}\n" for name, kind in sorted(types.items())
    )
    return (
        '---\nconfigs:\n- config_name: default\n  data_files: "train-*.tar"\ndataset_info:\n'
        f"  features:\n{features}---\n\nThe records of the folder above as WebDataset tars; see its README.md.\n"
    )


def _ending(video: RemotePath) -> str:
    return Path(video.name).suffix.lower() or ".mp4"


def _add_record(archive: tarfile.TarFile, record: Record, video: RemotePath | None) -> int:
    key = record.id.replace("%", "%25").replace(".", "%2E")
    size = 0
    for ending, text in ((".json", to_json(record)), (".vtt", webvtt(record))):
        data = text.encode()
        size += _add(archive, key + ending, len(data), io.BytesIO(data))
    if video is not None:
        with video.open() as file:
            size += _add(archive, key + _ending(video), video.size(), file)
    return size


def _add(archive: tarfile.TarFile, name: str, size: int, file: "BinaryIO | io.BytesIO") -> int:
    """Add a member whose header says nothing but its name and size."""
    header = tarfile.TarInfo(name)
    header.size = size
    archive.addfile(header, file)
    return size + BLOCK
