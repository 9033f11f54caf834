"""The tables of the studio in the database of its library: jobs, uploads, and events for a webhook.

    studio = Studio(Path("out"))
    studio.library.videos()
    studio.jobs.add("clip.mp4", options={})

The library may be a stranger's. So every row is validated when it is read, and every path when it
is used.
"""

import json
import logging
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, JsonValue, TypeAdapter

from stepline.errors import NotFoundError
from stepline.library.corrected_library import CorrectedLibrary
from stepline.library.database import LibraryDatabase, Row
from stepline.limits import parse_json
from stepline.records import FrozenModel

log = logging.getLogger(__name__)

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
EventName = Literal["job", "video"]
OwnId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]  # as uuid4 makes one

StoredModel = TypeVar("StoredModel", "Job", "Upload", "OutboxEvent")

MAX_ENDED_JOBS = 200  # that are listed
# Jobs that run or wait come first, in their order, then the others, the last ended first.
JOB_ORDER = (
    "state NOT IN ('running', 'waiting'), state <> 'running', "
    "coalesce(ended, 0) DESC, priority DESC, id"
)
LISTED_JOBS_CONDITION = (
    "state IN ('running', 'waiting') OR id IN (SELECT id FROM job "
    f"WHERE state NOT IN ('running', 'waiting') ORDER BY ended DESC LIMIT {MAX_ENDED_JOBS})"
)


class Job(FrozenModel):
    """A job that finds the steps of a video.

    Attributes:
        id: number of the job.
        source: path or http(s) address of the video.
        options: the fields of `worker.JobOptions`.
        state: waiting, running, done, failed or cancelled.
        priority: the job with the highest number runs first. New jobs have 0.
        created: time of creation, in seconds since 1970 (UTC).
        begun: time of the start, in seconds since 1970. None before the start.
        ended: time of the end, in seconds since 1970. None before the end.
        error: why the job failed, in one line. None if it has not failed.
        video: id of the video's record that the job made. None if there is none.
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
    """A file that a client sends in chunks.

    Attributes:
        id: random id.
        name: name of the file.
        size: size of the complete file in bytes.
        created: time of creation, in seconds since 1970 (UTC).
        options: the fields of `worker.JobOptions` for the job of the file.
        job: id of the job that began when the file was complete. None before.
    """

    id: OwnId
    name: str
    size: int
    created: float
    options: dict[str, JsonValue]
    job: int | None = None


class EventBody(FrozenModel):
    """The body of a webhook request, about a changed job or video.

    Attributes:
        event: "job" or "video".
        id: id of the job or the video.
        state: state of the job. None for a video.
        error: why the job failed. None for a video or if it has not failed.
        video: id of the video that the job made.
        revision: number of corrections of the video. None for a job.
    """

    event: EventName
    id: int | str
    state: JobState | None = None
    error: str | None = None
    video: str | None = None
    revision: int | None = None


class OutboxEvent(FrozenModel):
    """An event that a webhook has not received yet.

    Attributes:
        number: position of the event in the order of events.
        id: random id, the same at each try.
        name: "job" or "video".
        body: JSON of an EventBody.
        created: time of the event, in seconds since 1970 (UTC).
        refusals: how often the webhook refused the event.
    """

    number: int
    id: OwnId
    name: EventName
    body: str
    created: float
    refusals: int


class Studio:
    """A library of videos with the database tables of jobs, uploads and events.

    Args:
        folder: the folder of the records.
        allowed: other folders from which videos may be read.

    Raises StoreError if the database cannot be opened.
    """

    def __init__(self, folder: Path, allowed: Sequence[Path] = ()) -> None:
        # The stores share one database, and so its transactions.
        self.library = CorrectedLibrary(folder, allowed)
        self.database = self.library.database
        self.events = EventOutbox(self.database)
        self.jobs = JobStore(self.database, self.events)
        self.uploads = UploadStore(self.database, self.jobs)
        # An event is written with the correction that it reports, or neither is.
        self.library.in_transaction = self.events.add_video

    def close(self) -> None:
        """Close the database."""
        self.library.close()


class EventOutbox:
    """The events that a webhook has not received yet, in order.

    Attributes:
        on_event: called when an event is added. None without a webhook: then no event is stored.
    """

    def __init__(self, database: LibraryDatabase) -> None:
        self._database = database
        self.on_event: Callable[[], None] | None = None

    def read_oldest(self) -> OutboxEvent | None:
        """Return the oldest event, None without any. Invalid rows are removed."""
        while row := self._database.row("SELECT * FROM event ORDER BY number LIMIT 1"):
            try:
                event = _parse_row(OutboxEvent, row)
                EventBody.model_validate_json(event.body)
                return event
            except ValueError as error:
                # A stranger's words are not signed with this user's key.
                log.warning("webhook: a row of the library is not an event of Stepline; left out")
                if not self._database.write("DELETE FROM event WHERE number IS ?", row[0]):
                    raise self._database.row_error("event") from error
        return None

    def add(
        self, connection: sqlite3.Connection, name: EventName, data: dict[str, JsonValue]
    ) -> None:
        """Store an event in the transaction of the change that it reports."""
        if self.on_event is None:
            return
        body = json.dumps({"event": name, **data})
        row = (uuid.uuid4().hex, name, body, time.time())
        connection.execute("INSERT INTO event(id, name, body, made) VALUES (?, ?, ?, ?)", row)
        self.on_event()

    def add_video(self, connection: sqlite3.Connection, id: str, revision: int) -> None:
        """Store the event that a video was made or corrected, in the transaction of the change."""
        self.add(connection, "video", {"id": id, "revision": revision})

    def store_video_event(self, id: str, revision: int) -> None:
        """Store the event that a video was made, in a transaction of its own."""
        with self._database.write_transaction() as connection:
            self.add_video(connection, id, revision)

    def count_refusal(self, number: int) -> None:
        """Count that an event was refused."""
        self._database.write("UPDATE event SET refusals = refusals + 1 WHERE number = ?", number)

    def remove(self, number: int) -> None:
        """Remove an event that was received or is given up."""
        self._database.write("DELETE FROM event WHERE number = ?", number)


class JobStore:
    """The jobs of a library."""

    def __init__(self, database: LibraryDatabase, events: EventOutbox) -> None:
        self._database = database
        self._events = events

    def list_jobs(self) -> list[Job]:
        """Return the jobs in JOB_ORDER. Of those that ended, the last MAX_ENDED_JOBS."""
        query = f"SELECT * FROM job WHERE {LISTED_JOBS_CONDITION} ORDER BY {JOB_ORDER}"
        return _read_rows(self._database, Job, "job", query)

    def list_in_state(self, state: JobState, max_jobs: int | None = None) -> list[Job]:
        """Return the jobs of a state in the order in which they run.

        Args:
            state: waiting, running, done, failed or cancelled.
            max_jobs: maximal number of jobs to return. None: all.
        """
        query = "SELECT * FROM job WHERE state = ? ORDER BY priority DESC, id LIMIT ?"
        limit = -1 if max_jobs is None else max_jobs
        return _read_rows(self._database, Job, "job", query, state, limit)

    def has_source(self, source: str) -> bool:
        """Return whether there ever was a job for a source."""
        return self._database.row("SELECT 1 FROM job WHERE source = ?", source) is not None

    def get(self, id: int) -> Job:
        """Return a job. Raises NotFoundError for an unknown id."""
        jobs = _read_rows(self._database, Job, "job", "SELECT * FROM job WHERE id = ?", id)
        if not jobs:
            raise NotFoundError("no such job")
        return jobs[0]

    def add(self, source: str, options: dict[str, JsonValue]) -> Job:
        """Store a waiting job and return it."""
        with self._database.write_transaction() as connection:
            id = self.insert(connection, source, options)
        return self.get(id)

    def insert(
        self, connection: sqlite3.Connection, source: str, options: dict[str, JsonValue]
    ) -> int:
        """Store a waiting job in the caller's transaction. Return its id."""
        row = (source, json.dumps(options), "waiting", 0, time.time())
        cursor = connection.execute(
            "INSERT INTO job(source, options, state, priority, made) VALUES (?, ?, ?, ?, ?)", row
        )
        id = int(cursor.lastrowid or 0)
        self._add_event(connection, id)
        return id

    def change(self, id: int, *, expected: Sequence[JobState], **values: Any) -> bool:
        """Set fields of a job if its state is one of the expected states. Return whether it was.

        Args:
            id: id of the job.
            expected: the states in which the job is changed.
            values: field name -> new value.
        """
        # Names are from this code, never from a request. Values are bound.
        fields = ", ".join(f"{name} = ?" for name in values)
        placeholders = ", ".join("?" * len(expected))
        with self._database.write_transaction() as connection:
            cursor = connection.execute(
                # The statement itself checks the state, so two threads cannot both change it.
                f"UPDATE job SET {fields} WHERE id = ? AND state IN ({placeholders})",
                (*values.values(), id, *expected),
            )
            is_changed = cursor.rowcount > 0
            if is_changed:
                self._add_event(connection, id)
        return is_changed

    def remove(self, id: int) -> bool:
        """Remove a job that has ended. Return whether it had."""
        statement = "DELETE FROM job WHERE id = ? AND state NOT IN ('running', 'waiting')"
        return self._database.write(statement, id) > 0

    def _add_event(self, connection: sqlite3.Connection, id: int) -> None:
        data = self.get(id).model_dump(include={"id", "state", "error", "video"})
        self._events.add(connection, "job", data)


class UploadStore:
    """The uploads of a library."""

    def __init__(self, database: LibraryDatabase, jobs: JobStore) -> None:
        self._database = database
        self._jobs = jobs

    def list_unfinished(self) -> list[Upload]:
        """Return the unfinished uploads, the oldest first."""
        query = "SELECT * FROM upload WHERE job IS NULL ORDER BY made"
        return _read_rows(self._database, Upload, "upload", query)

    def get(self, id: str) -> Upload:
        """Return an upload. Raises NotFoundError for an unknown id."""
        query = "SELECT * FROM upload WHERE id = ?"
        uploads = _read_rows(self._database, Upload, "upload", query, id)
        if not uploads:
            raise NotFoundError("no such upload")
        return uploads[0]

    def add(self, name: str, size: int, options: dict[str, JsonValue]) -> Upload:
        """Store a new upload before its first byte is received. Return it."""
        upload = Upload(
            id=uuid.uuid4().hex, name=name, size=size, created=time.time(), options=options
        )
        row = (upload.id, name, size, upload.created, json.dumps(options))
        self._database.write("INSERT INTO upload VALUES (?, ?, ?, ?, ?, NULL)", *row)
        return upload

    def finish(self, id: str, source: str) -> int:
        """Add the job of a complete upload, whose file will be at `source`. Return its id."""
        upload = self.get(id)
        with self._database.write_transaction() as connection:
            # In one transaction: a kill leaves both or neither, and the next start moves the file.
            job = self._jobs.insert(connection, source, upload.options)
            connection.execute("UPDATE upload SET job = ? WHERE id = ?", (job, id))
        return job

    def remove(self, id: str) -> None:
        """Remove an upload."""
        self._database.write("DELETE FROM upload WHERE id = ?", id)


STORED_OPTIONS = TypeAdapter(dict[str, JsonValue])


def _read_rows(
    database: LibraryDatabase, kind: type[StoredModel], table: str, query: str, *values: object
) -> list[StoredModel]:
    """Return the rows of a query as models. Raises StoreError for an invalid row."""
    rows = []
    for row in database.rows(query, *values):
        try:
            rows.append(_parse_row(kind, row))
        except (ValueError, TypeError) as error:
            raise database.row_error(table) from error
    return rows


def _parse_row(kind: type[StoredModel], row: Row) -> StoredModel:
    """Return a row as a model, whose fields are the columns in the same order.

    Raises ValidationError, a ValueError, for an invalid row.
    """
    fields = dict(zip(kind.model_fields, row, strict=True))
    if "options" in fields:
        fields["options"] = STORED_OPTIONS.validate_python(parse_json(fields["options"]))
    return kind.model_validate(fields)
