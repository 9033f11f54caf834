"""The Parquet shards of a dataset, and the copy of its features.

A record is a row: columns that are useful without Stepline, and the whole record as JSON, which
loses nothing. A shard's name has its number, the count of all and its content. Features go into a
store of their own, in the order of ids.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stepline.curate.stage import StageFailure
from stepline.features import FeatureStore, FeatureWriter
from stepline.files.atomic_files import atomic_path
from stepline.files.digests import sha256
from stepline.records import RECORD_VERSION, Record
from stepline.storage import to_json


@dataclass(frozen=True)
class Column:
    """A column of the Parquet shards.

    Attributes:
        name: name of the column.
        kind: Arrow type.
        description: description for the dataset card.
    """

    name: str
    kind: str
    description: str


RECORD_COLUMNS = (
    Column("id", "string", "the item's id; rows are sorted by it"),
    Column("video", "string", "the video's id in its source"),
    Column("path", "string", "where the video is in its source, or its public address"),
    Column("title", "string", "the video's title, if the source states it"),
    Column("task", "string", "what is done in it, if the source states it"),
    Column("duration", "double", "seconds"),
    Column("language", "string", "of the speech; empty if it is not known"),
    Column("steps", "int32", "how many steps there are"),
    Column("step_texts", "list<string>", "the steps, in the order in which they are written"),
    Column(
        "step_starts",
        "list<double>",
        "second at which each step's span begins; none where it was not found",
    ),
    Column("step_ends", "list<double>", "second at which each step's span ends"),
    Column(
        "step_scores",
        "list<double>",
        "P(the step is shown at all) by a calibrated network, else another score, such as a "
        "best cosine; none without one",
    ),
    Column("step_statuses", "list<string>", "seen, placed, said_only or not_found"),
    Column(
        "step_doubts",
        "list<string>",
        "of a placed step, why it may not be shown; none without a reason",
    ),
    Column(
        "step_licences",
        "list<string>",
        "licence of a text that people wrote; none where it was made here",
    ),
    Column("sentence_texts", "list<string>", "what is said"),
    Column("sentence_starts", "list<double>", "second at which each sentence begins"),
    Column("sentence_ends", "list<double>", "second at which it ends"),
    Column(
        "sentence_shown",
        "list<double>",
        "P(the picture shows it while it is said); none where nothing judged it",
    ),
    Column("stage", "string", "of a video that is left out: the stage that left it out"),
    Column("kind", "string", "of a video that is left out: left out, error, hang, crash or memory"),
    Column("reason", "string", "of a video that is left out: why"),
    Column(
        "record",
        "string",
        "all that is known of it, as JSON; `stepline.storage.from_json` reads it",
    ),
)


@dataclass(frozen=True)
class DatasetRow:
    """A row of the Parquet shards.

    Attributes:
        record: the record of a video.
        failure: why the video is left out. None for a video of the dataset.
    """

    record: Record
    failure: StageFailure | None = None

    def column_values(self) -> dict[str, object]:
        """Return column name -> value, for all columns of RECORD_COLUMNS."""
        record = self.record
        steps = record.steps
        video = record.video
        sentences = record.sentences
        failure = self.failure
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
            "step_starts": [step.start for step in steps],
            "step_ends": [step.end for step in steps],
            "step_scores": [step.score for step in steps],
            "step_statuses": [step.status for step in steps],
            "step_doubts": [step.doubt for step in steps],
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


DATA_FOLDER = "data"
# The splits of a dataset.
TRAIN_SPLIT = "train"
LEFT_OUT_SPLIT = "left_out"
MAX_SHARD_CHARS = 128 * 2**20  # of JSON, which bounds the memory of writing a shard
NAME_DIGITS = 16  # of a sha256 in a file's name, in hex
ROW_GROUP = 100  # rows that a reader must take together


@dataclass(frozen=True)
class ExportedFile:
    """A file of the dataset.

    Attributes:
        path: path relative to the folder of the dataset.
        bytes: size in bytes.
        sha256: sha256 of its contents in hexadecimal.
    """

    path: str
    bytes: int
    sha256: str


def write_shards(
    rows: Iterable[DatasetRow], split: str, folder: Path, limit: int
) -> list[ExportedFile]:
    """Write rows as Parquet shards and return the files. Without rows, one empty shard is written.

    Equal rows give equal files.

    Args:
        rows: the rows, sorted by id.
        split: name of the split: "train" or "left_out".
        folder: folder of the dataset.
        limit: maximal number of rows per shard.
    """
    data = folder / DATA_FOLDER
    data.mkdir(parents=True, exist_ok=True)
    # The names hold how many shards there are, which is known at the end.
    parts = []
    for number, block in enumerate(_split_into_shards(rows, limit)):
        part = data / f".{split}-{number:05d}.parquet"
        _write_shard(block, part)
        parts.append(part)
    exported = []
    for number, part in enumerate(parts):
        name = f"{split}-{number:05d}-of-{len(parts):05d}-{sha256(part)[:NAME_DIGITS]}.parquet"
        exported.append(_describe_file(part.rename(data / name)))
    return exported


def _split_into_shards(rows: Iterable[DatasetRow], limit: int) -> Iterator[list[dict[str, object]]]:
    """Yield the rows of each shard as column name -> value. Without rows, one empty list.

    limit: maximal number of rows per shard. MAX_SHARD_CHARS limits its size too.
    """
    block: list[dict[str, object]] = []
    size = 0
    for row in rows:
        cells = row.column_values()
        length = len(str(cells["record"]))
        # A shard ends before the row that would be too much, never within it.
        if block and (len(block) == limit or size + length > MAX_SHARD_CHARS):
            yield block
            block = []
            size = 0
        block.append(cells)
        size += length
    yield block


def _write_shard(block: list[dict[str, object]], path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    text, number = arrow.string(), arrow.float64()
    types = {
        "string": text,
        "int32": arrow.int32(),
        "double": number,
        "list<string>": arrow.list_(text),
        "list<double>": arrow.list_(number),
    }
    fields = [(column.name, types[column.kind]) for column in RECORD_COLUMNS]
    schema = arrow.schema(fields, metadata={"stepline_version": str(RECORD_VERSION)})
    # Kinds are given, since a column without any value would have none.
    table = arrow.Table.from_pylist(block, schema=schema)
    with atomic_path(path) as partial:
        parquet.write_table(table, partial, compression="zstd", row_group_size=ROW_GROUP)


def copy_features(
    ids: Iterable[str], store: FeatureStore, folder: Path, shard_bytes: int
) -> list[ExportedFile]:
    """Copy features from a store into FOLDER/features and return the files.

    Args:
        ids: ids of the videos to copy, sorted.
        store: the store with their features.
        folder: folder of the dataset.
        shard_bytes: maximal bytes of a shard of the copy.
    """
    features = folder / "features"
    with FeatureWriter(features, shard_bytes=shard_bytes) as writer:
        # Rows are read and written one video at a time.
        for id in ids:
            location = store[id]
            writer.add(
                id,
                store.matrix(id),
                rate=location.rate,
                backbone=location.backbone,
                texts=store.texts(id),
            )
    return list(map(_describe_file, sorted(features.glob("shard-*"))))


def _describe_file(path: Path) -> ExportedFile:
    return ExportedFile(f"{path.parent.name}/{path.name}", path.stat().st_size, sha256(path))
