"""What the studio keeps in its library's database, apart from corrections: jobs, uploads, answers,
and events for a webhook.

    studio = Studio(Path("out"))
    studio.library.videos()
    studio.jobs.add("clip.mp4", options={})
"""

import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field, JsonValue

from stepline.annotate import Answer
from stepline.append_log import Entry
from stepline.library.corrected_library import CorrectedLibrary
from stepline.library.database import LibraryDatabase, Row
from stepline.limits import parse_json
from stepline.records import FrozenModel

if TYPE_CHECKING:
    from stepline.curate.audit.verdicts import Verdict

JobState: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]

StoredModel = TypeVar("StoredModel", "Job", "Upload")

# Jobs that run or wait come first, in their turn, then the others, the last ended first.
JOB_ORDER = (
    "state NOT IN ('running', 'waiting'), state <> 'running', "
    "coalesce(ended, 0) DESC, priority DESC, id"
)


class Job(FrozenModel):
    """A video to be understood. source: a path or an address.

    created, begun, ended: UTC, seconds since 1970. error: why it failed, in a line. video: the id
    of the video that it made.
    """

    id: int
    source: str
    options: dict[str, JsonValue]
    state: JobState
    priority: int
    created: float = Field(serialization_alias="made")
    begun: float | None = None
    ended: float | None = None
    error: str | None = None
    video: str | None = None


class Upload(FrozenModel):
    """A file that comes in pieces. size: bytes. options: of its job. job: begun when the file is
    whole."""

    id: str
    name: str
    size: int
    created: float
    options: dict[str, JsonValue]
    job: int | None = None


@dataclass(frozen=True)
class OutboxEvent:
    """An event that a webhook has not received yet. body: JSON. created: UTC, seconds since 1970.
    refusals: how often it was refused."""

    number: int
    id: str
    name: str
    body: str
    created: float
    refusals: int


class Studio:
    """A library that is served: its corrected videos and the stores of its database.

    allowed: see CorrectedLibrary. Raises StoreError as LibraryDatabase does.
    """

    def __init__(self, folder: Path, allowed: Sequence[Path] = ()) -> None:
        self.library = CorrectedLibrary(folder, allowed)
        self.database = self.library.database
        self.events = EventOutbox(self.database)
        self.jobs = JobStore(self.database, self.events)
        self.uploads = UploadStore(self.database, self.jobs)
        self.answers = AnswerStore(self.database, "answer", "clip", Answer)
        self.library.in_transaction = self.events.add_video

    @cached_property
    def verdicts(self) -> "AnswerStore[Verdict]":
        """What auditors said about texts of a dataset."""
        from stepline.curate.audit.verdicts import Verdict

        return AnswerStore(self.database, "verdict", "asked", Verdict)

    def close(self) -> None:
        """Close the database."""
        self.library.close()


class AnswerStore(Generic[Entry]):
    """What people answered: one answer per person and item, a later one replaces it.

    column: the one of `table` that names the item. kind: the model of an answer.
    """

    def __init__(
        self, database: LibraryDatabase, table: str, column: str, kind: type[Entry]
    ) -> None:
        self._database = database
        self._kind = kind
        self._table = table
        self._column = column

    def __iter__(self) -> Iterator[Entry]:
        """Yield the answers in the order first given."""
        rows = self._database.rows(f"SELECT body FROM {self._table} ORDER BY rowid")
        return (self._kind.model_validate_json(body) for (body,) in rows)

    def add(self, entry: Entry) -> None:
        """Keep an answer."""
        fields = entry.model_dump()
        row = (fields[self._column], fields["annotator"], entry.model_dump_json())
        replace = f"ON CONFLICT({self._column}, annotator) DO UPDATE SET body = excluded.body"
        with self._database.change() as connection:
            connection.execute(f"INSERT INTO {self._table} VALUES (?, ?, ?) {replace}", row)


class EventOutbox:
    """The events that a webhook has not received yet, in their order.

    on_event: called when an event is added; None where nobody wants events, and none is kept.
    """

    def __init__(self, database: LibraryDatabase) -> None:
        self._database = database
        self.on_event: Callable[[], None] | None = None

    def first(self) -> OutboxEvent | None:
        """Return the event that has waited longest."""
        row = self._database.row("SELECT * FROM event ORDER BY number LIMIT 1")
        return OutboxEvent(*row) if row is not None else None

    def add(self, connection: sqlite3.Connection, name: str, data: dict[str, JsonValue]) -> None:
        """Keep an event in the transaction of the change that it reports."""
        if self.on_event is not None:
            row = (uuid.uuid4().hex, name, json.dumps({"event": name, **data}), time.time())
            connection.execute("INSERT INTO event(id, name, body, made) VALUES (?, ?, ?, ?)", row)
            self.on_event()

    def add_video(self, connection: sqlite3.Connection, id: str, revision: int) -> None:
        """Keep the event that a video was made or corrected."""
        self.add(connection, "video", {"id": id, "revision": revision})

    def keep_video(self, id: str, revision: int) -> None:
        """Keep the same event in a transaction of its own."""
        with self._database.change() as connection:
            self.add_video(connection, id, revision)

    def count_refusal(self, number: int) -> None:
        """Count that an event was sent and refused."""
        self._execute("UPDATE event SET refusals = refusals + 1 WHERE number = ?", number)

    def remove(self, number: int) -> None:
        """Remove an event that was received, or given up."""
        self._execute("DELETE FROM event WHERE number = ?", number)

    def _execute(self, statement: str, number: int) -> None:
        with self._database.change() as connection:
            connection.execute(statement, (number,))


class JobStore:
    """The jobs of a library."""

    def __init__(self, database: LibraryDatabase, events: EventOutbox) -> None:
        self._database = database
        self._events = events

    def all(self) -> list[Job]:
        """Return the jobs in `JOB_ORDER`."""
        rows = self._database.rows(f"SELECT * FROM job ORDER BY {JOB_ORDER}")
        return [_from_row(Job, row) for row in rows]

    def get(self, id: int) -> Job:
        """Return a job. Raises LookupError for an unknown id."""
        row = self._database.row("SELECT * FROM job WHERE id = ?", id)
        if row is None:
            raise LookupError(f"job {id}")
        return _from_row(Job, row)

    def add(self, source: str, options: dict[str, JsonValue], priority: int = 0) -> Job:
        """Keep a job that waits, and return it."""
        with self._database.change() as connection:
            id = self.insert(connection, source, options, priority)
        return self.get(id)

    def insert(
        self,
        connection: sqlite3.Connection,
        source: str,
        options: dict[str, JsonValue],
        priority: int = 0,
    ) -> int:
        """Keep a job that waits in a transaction of the caller's; return its id."""
        row = (source, json.dumps(options), "waiting", priority, time.time())
        cursor = connection.execute(
            "INSERT INTO job(source, options, state, priority, made) VALUES (?, ?, ?, ?, ?)", row
        )
        id = int(cursor.lastrowid or 0)
        self._add_event(connection, id)
        return id

    def change(self, id: int, *, expected: Sequence[JobState], **values: Any) -> bool:
        """Set fields of a job that is in one of the expected states; return whether it was."""
        fields = ", ".join(f"{name} = ?" for name in values)
        marks = ", ".join("?" * len(expected))
        with self._database.change() as connection:
            cursor = connection.execute(
                f"UPDATE job SET {fields} WHERE id = ? AND state IN ({marks})",
                (*values.values(), id, *expected),
            )
            is_changed = cursor.rowcount > 0
            if is_changed:
                self._add_event(connection, id)
        return is_changed

    def _add_event(self, connection: sqlite3.Connection, id: int) -> None:
        job = self.get(id)
        data: dict[str, JsonValue] = {"id": id, "state": job.state}
        self._events.add(connection, "job", data | {"error": job.error, "video": job.video})


class UploadStore:
    """The uploads of a library."""

    def __init__(self, database: LibraryDatabase, jobs: JobStore) -> None:
        self._database = database
        self._jobs = jobs

    def all(self) -> list[Upload]:
        """Return the uploads, the oldest first."""
        rows = self._database.rows("SELECT * FROM upload ORDER BY made")
        return [_from_row(Upload, row) for row in rows]

    def get(self, id: str) -> Upload:
        """Return an upload. Raises LookupError for an unknown id."""
        for upload in self.all():
            if upload.id == id:
                return upload
        raise LookupError(f"upload {id!r}")

    def add(self, name: str, size: int, options: dict[str, JsonValue]) -> Upload:
        """Keep an upload of which no byte has come yet, and return it."""
        upload = Upload(
            id=uuid.uuid4().hex, name=name, size=size, created=time.time(), options=options
        )
        row = (upload.id, name, size, upload.created, json.dumps(options))
        with self._database.change() as connection:
            connection.execute("INSERT INTO upload VALUES (?, ?, ?, ?, ?, NULL)", row)
        return upload

    def finish(self, id: str, source: str) -> int:
        """Begin the job of a whole upload, whose file will be at `source`; return the job's id."""
        upload = self.get(id)
        with self._database.change() as connection:
            job = self._jobs.insert(connection, source, upload.options)
            connection.execute("UPDATE upload SET job = ? WHERE id = ?", (job, id))
        return job

    def remove(self, id: str) -> None:
        """Remove an upload."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM upload WHERE id = ?", (id,))


def _from_row(kind: type[StoredModel], row: Row) -> StoredModel:
    """Return a job or an upload; its fields are the columns of its table, in their order."""
    fields = dict(zip(kind.model_fields, row, strict=True))
    fields["options"] = parse_json(fields["options"])
    return kind.model_validate(fields)
