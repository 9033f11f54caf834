"""A library as the studio keeps it: a folder of records, and beside them what people and jobs add,
in one SQLite file.

    studio = Studio(Path("out"))
    card = studio.videos()[0]
    studio.corrected(card.id).record

The machine's records are only read. What was answered is on disk: WAL, synchronous=FULL, one
transaction a change.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import JsonValue

from stepline.annotate import Answer
from stepline.atomic_files import files_below
from stepline.errors import StoreError
from stepline.library.corrections import CorrectedRecord, Correction, check_correction, corrected
from stepline.limits import parse_json
from stepline.records import FrozenModel, Record
from stepline.storage import from_json, read_record, to_json
from stepline.weights import sha256

if TYPE_CHECKING:
    from stepline.curate.audit.verdicts import Verdict

JobState: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]
VideoState: TypeAlias = Literal["new", "corrected"]

STORE = ".stepline-studio.sqlite"  # beside the records
FORM = 1  # of the tables below; a store of a later one is refused
RECENT = 64  # videos whose records are kept in memory
BUSY = 30.0  # s that another process may hold the store

TABLES = """
CREATE TABLE IF NOT EXISTS correction (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, video TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS correction_video ON correction(video, number);
CREATE TABLE IF NOT EXISTS machine (video TEXT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS job (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, options TEXT NOT NULL, state TEXT NOT NULL, priority INTEGER NOT NULL,
    made REAL NOT NULL, begun REAL, ended REAL, error TEXT, video TEXT);
CREATE TABLE IF NOT EXISTS upload (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, size INTEGER NOT NULL, made REAL NOT NULL, options TEXT NOT NULL,
    job INTEGER);
CREATE TABLE IF NOT EXISTS answer (
    clip TEXT NOT NULL, annotator TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (clip, annotator));
CREATE TABLE IF NOT EXISTS verdict (
    asked TEXT NOT NULL, annotator TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (asked, annotator));
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,
    made REAL NOT NULL, refusals INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS library (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS waveform (video TEXT PRIMARY KEY, stamp TEXT NOT NULL, peaks BLOB NOT NULL);
"""


class VideoCard(FrozenModel):
    """What a list of videos tells of one. duration: s. shown: steps that are shown. revision:
    corrections taken in.

    made: UTC, seconds since 1970, of the record's file. picture: the path of one, below the
    server's address.
    """

    id: str
    title: str
    duration: float | None
    state: VideoState
    picture: str | None
    steps: int
    shown: int
    revision: int
    made: float


class Job(FrozenModel):
    """A video that is to be understood. source: a path or an address. made, begun, ended: UTC,
    seconds since 1970.

    error: why it failed, in a line. video: the id of what it brought.
    """

    id: int
    source: str
    options: dict[str, JsonValue]
    state: JobState
    priority: int
    made: float
    begun: float | None = None
    ended: float | None = None
    error: str | None = None
    video: str | None = None


class Upload(FrozenModel):
    """A file that comes in pieces. size: bytes in all. options: of its job. job: begun once it is
    whole."""

    id: str
    name: str
    size: int
    made: float
    options: dict[str, JsonValue]
    job: int | None = None


@dataclass(frozen=True)
class Event:
    """What a webhook is to be told. body: JSON. made: UTC, seconds since 1970. refusals: answers
    that were none."""

    number: int
    id: str
    name: str
    body: str
    made: float
    refusals: int


@dataclass(frozen=True)
class LibraryVideo:
    """A record of the library. name: its file, below the folder. stamp: changes when the file
    does."""

    id: str
    name: str
    stamp: tuple[int, int]


def video_id(name: str) -> str:
    """Return the id of the record in a file, which is named as seen from the library's folder."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def open_corrections(folder: Path) -> "Studio | None":
    """Return the store of a library, to be read; None where there is none."""
    return Studio(folder, reads_only=True) if (folder / STORE).is_file() else None


class Studio:
    """One library. allowed: folders outside of it from which files may be taken.

    reads_only: nothing will be corrected, so that a folder that cannot be written will do; its
    store is copied into memory then. Raises StoreError where the folder is none, or its store
    cannot be read or written.
    """

    def __init__(
        self, folder: Path, allowed: Sequence[Path] = (), *, reads_only: bool = False
    ) -> None:
        if not folder.is_dir():
            raise StoreError(f"{folder}: no folder; name the one that `stepline steps --out` wrote")
        self.folder = Path(os.path.realpath(folder))
        self.allowed = (self.folder, *(Path(os.path.realpath(each)) for each in allowed))
        self.path = self.folder / STORE
        # told of each correction
        self.on_video: Callable[[str, int], None] = lambda _id, _revision: None
        # told that an event waits; None: nobody wants any
        self.on_event: Callable[[], None] | None = None
        self._lock = RLock()
        self._read_lock = Lock()
        self._cards: dict[str, tuple[LibraryVideo, VideoCard | None]] = {}
        self._recent: dict[tuple[LibraryVideo, int], tuple[Record, CorrectedRecord]] = {}
        self._hashes: dict[tuple[str, int, int], str] = {}
        self._database = self._open(reads_only)

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            self._database.close()

    # ---------------------------------------------------------------- the library itself

    @property
    def identity(self) -> str:
        """What tells this library from any other that is served at the same address, kept with
        it."""
        return self._fact("id")

    @property
    def port(self) -> int:
        """The port at which it was served last; 0 before the first time."""
        return int(self._fact("port"))

    def keep_port(self, port: int) -> None:
        """Keep the port at which it is served, so that browsers find what they kept under its
        address."""
        with self._change() as database:
            database.execute("UPDATE library SET value = ? WHERE name = 'port'", (str(port),))

    def _fact(self, name: str) -> str:
        with self._guarded():
            row = self._database.execute(
                "SELECT value FROM library WHERE name = ?", (name,)
            ).fetchone()
            return str(row[0])

    # ---------------------------------------------------------------- videos

    def videos(self) -> list[VideoCard]:
        """Return the videos of the library, sorted by title."""
        self._look()
        with self._guarded():
            counts = dict(
                self._database.execute(
                    "SELECT video, count(*) FROM correction GROUP BY video"
                ).fetchall()
            )
        cards = [card for _, card in self._cards.copy().values() if card is not None]
        current = (self._card_now(card, counts.get(card.id, 0)) for card in cards)
        return sorted(current, key=lambda card: (card.title.casefold(), card.id))

    def video(self, id: str) -> LibraryVideo:
        """Return where a video's record lies. Raises LookupError for an id that is none of this
        library."""
        known = self._cards.get(id)
        if known is None or known[1] is None or self._stamp(known[0].name) != known[0].stamp:
            self._look()
            known = self._cards.get(id)
        if known is None or known[1] is None:
            raise LookupError(f"video {id!r}")
        return known[0]

    def card(self, id: str) -> VideoCard:
        """Return what a list tells of one video. Raises LookupError for an id that is none of this
        library."""
        self.video(id)
        _, card = self._cards[id]
        if card is None:
            raise LookupError(f"video {id!r}")
        return self._card_now(card, self.revision(id))

    def record(self, id: str) -> Record:
        """Return the machine's record: of a video that people corrected the one that they
        corrected."""
        return self._current(self.video(id))[0]

    def corrected(self, id: str) -> CorrectedRecord:
        """Return the record as people have corrected it."""
        return self._current(self.video(id))[1]

    def revision_of(self, name: str) -> int:
        """Return how many corrections the video of a record's file has."""
        return self.revision(video_id(name))

    def corrected_record(self, name: str) -> Record:
        """Return the record in a file, named as seen from the library, as people have corrected
        it."""
        stamp = self._stamp(name)
        if stamp is None:
            raise StoreError(f"{self.folder / name}: it has gone; search again")
        return self._current(LibraryVideo(video_id(name), name, stamp))[1].record

    def _current(self, video: LibraryVideo) -> tuple[Record, CorrectedRecord]:
        """Return the machine's record and the corrected one; those asked for last are kept in
        memory."""
        id = video.id
        with self._guarded():
            key = (video, self.revision(id))
            if key not in self._recent:
                before = self._recent.pop(
                    (video, key[1] - 1), None
                )  # a correction leaves the machine's record as it is
                record = before[0] if before is not None else self._read_machine(video)
                self._recent[key] = record, corrected(record, self.corrections(id))
                if len(self._recent) > RECENT:
                    del self._recent[next(iter(self._recent))]
            return self._recent[key]

    def _read_machine(self, video: LibraryVideo) -> Record:
        kept = self._database.execute(
            "SELECT record FROM machine WHERE video = ?", (video.id,)
        ).fetchone()
        return from_json(kept[0], str(self.path)) if kept else read_record(self.folder / video.name)

    # ---------------------------------------------------------------- corrections

    def corrections(self, id: str) -> list[Correction]:
        """Return the corrections of a video, the oldest first."""
        with self._guarded():
            rows = self._database.execute(
                "SELECT body FROM correction WHERE video = ? ORDER BY number", (id,)
            )
            return [Correction.model_validate_json(body) for (body,) in rows.fetchall()]

    def revision(self, id: str) -> int:
        """Return how many corrections a video has."""
        with self._guarded():
            count = self._database.execute(
                "SELECT count(*) FROM correction WHERE video = ?", (id,)
            ).fetchone()
            return int(count[0])

    def correct(self, id: str, correction: Correction) -> int:
        """Take a correction in, and return the video's revision; one that is sent again changes
        nothing.

        It is on disk when this returns. Raises ConflictError where somebody changed the same
        meanwhile, StoreError where it makes no sense of the video.
        """
        if correction.video != id:
            raise StoreError(
                f"correction {correction.id!r} is of video {correction.video!r}, not of {id!r}"
            )
        record = self.record(id)
        with self._change() as database:
            known = self.corrections(id)
            again = next(
                (n for n, each in enumerate(known, start=1) if each.id == correction.id), None
            )
            if (
                again is not None
                and known[again - 1].model_copy(update={"when": correction.when}) == correction
            ):
                return len(known)
            check_correction(record, known, correction)
            if not known:
                database.execute(
                    "INSERT OR IGNORE INTO machine VALUES (?, ?)", (id, to_json(record))
                )
            row = (correction.id, id, correction.model_dump_json())
            database.execute("INSERT INTO correction(id, video, body) VALUES (?, ?, ?)", row)
            self._keep_event(database, "video", {"id": id, "revision": len(known) + 1})
        self.on_video(id, len(known) + 1)
        return len(known) + 1

    # ---------------------------------------------------------------- answers about clips, verdicts
    # on texts

    def answers(self) -> list[Answer]:
        """Return what annotators said of clips, in the order first given."""
        return [Answer.model_validate_json(body) for body in self._said("answer")]

    def keep_answer(self, answer: Answer) -> None:
        """Keep an answer; it takes the place of an earlier one about the clip by the same
        person."""
        self._keep("answer", "clip", (answer.clip, answer.annotator, answer.model_dump_json()))

    def verdicts(self) -> "list[Verdict]":
        """Return what auditors said of texts, in the order first given."""
        from stepline.curate.audit.verdicts import Verdict

        return [Verdict.model_validate_json(body) for body in self._said("verdict")]

    def keep_verdict(self, verdict: "Verdict") -> None:
        """Keep a verdict; it takes the place of an earlier one on the text by the same person."""
        self._keep(
            "verdict", "asked", (verdict.asked, verdict.annotator, verdict.model_dump_json())
        )

    def _said(self, table: str) -> list[str]:
        with self._guarded():
            return [
                body
                for (body,) in self._database.execute(
                    f"SELECT body FROM {table} ORDER BY rowid"
                ).fetchall()
            ]

    def _keep(self, table: str, about: str, row: tuple[str, str, str]) -> None:
        replace = f"ON CONFLICT({about}, annotator) DO UPDATE SET body = excluded.body"
        with self._change() as database:
            database.execute(f"INSERT INTO {table} VALUES (?, ?, ?) {replace}", row)

    # ---------------------------------------------------------------- jobs

    def jobs(self) -> list[Job]:
        """Return the jobs: those that run or wait first, in their turn, then the others, the last
        ended first."""
        order = "state NOT IN ('running', 'waiting'), state <> 'running', coalesce(ended, 0) DESC, priority DESC, id"
        with self._guarded():
            rows = self._database.execute(f"SELECT * FROM job ORDER BY {order}").fetchall()
        return [_job(row) for row in rows]

    def job(self, id: int) -> Job:
        """Return a job. Raises LookupError for an id that is none."""
        with self._guarded():
            row = self._database.execute("SELECT * FROM job WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise LookupError(f"job {id}")
        return _job(row)

    def add_job(self, source: str, options: dict[str, JsonValue], priority: int = 0) -> Job:
        """Keep a job that waits, and return it."""
        with self._change() as database:
            id = _insert_job(database, source, options, priority)
            self._keep_job_event(database, id)
        return self.job(id)

    def change_job(self, id: int, *, expected: Sequence[JobState], **values: Any) -> bool:
        """Set fields of a job that is in one of the expected states, and tell whether it was."""
        fields = ", ".join(f"{name} = ?" for name in values)
        marks = ", ".join("?" * len(expected))
        with self._change() as database:
            changed = database.execute(
                f"UPDATE job SET {fields} WHERE id = ? AND state IN ({marks})",
                (*values.values(), id, *expected),
            )
            if changed.rowcount > 0:
                self._keep_job_event(database, id)
            return changed.rowcount > 0

    # ---------------------------------------------------------------- events, for a webhook

    def first_event(self) -> Event | None:
        """Return the event that waits longest."""
        with self._guarded():
            row = self._database.execute("SELECT * FROM event ORDER BY number LIMIT 1").fetchone()
        return Event(*row) if row is not None else None

    def keep_video_event(self, id: str, revision: int) -> None:
        """Keep that a video of the library was made, or made again."""
        with self._change() as database:
            self._keep_event(database, "video", {"id": id, "revision": revision})

    def count_refusal(self, number: int) -> None:
        """Keep that an event was sent and refused."""
        with self._change() as database:
            database.execute("UPDATE event SET refusals = refusals + 1 WHERE number = ?", (number,))

    def forget_event(self, number: int) -> None:
        """Remove an event that was told, or given up."""
        with self._change() as database:
            database.execute("DELETE FROM event WHERE number = ?", (number,))

    def _keep_job_event(self, database: sqlite3.Connection, id: int) -> None:
        job = self.job(id)
        self._keep_event(
            database, "job", {"id": id, "state": job.state, "error": job.error, "video": job.video}
        )

    def _keep_event(
        self, database: sqlite3.Connection, name: str, data: dict[str, JsonValue]
    ) -> None:
        """Keep an event in the transaction of what it tells, so that neither is there without the
        other."""
        if self.on_event is not None:
            row = (uuid.uuid4().hex, name, json.dumps({"event": name, **data}), time.time())
            database.execute("INSERT INTO event(id, name, body, made) VALUES (?, ?, ?, ?)", row)
            self.on_event()

    # ---------------------------------------------------------------- uploads

    def uploads(self) -> list[Upload]:
        """Return the uploads, the oldest first."""
        with self._guarded():
            rows = self._database.execute("SELECT * FROM upload ORDER BY made").fetchall()
        names = ("id", "name", "size", "made", "options", "job")
        return [
            Upload(**dict(zip(names, row, strict=True)) | {"options": parse_json(row[4])})
            for row in rows
        ]

    def upload(self, id: str) -> Upload:
        """Return an upload. Raises LookupError for an id that is none."""
        found = next((upload for upload in self.uploads() if upload.id == id), None)
        if found is None:
            raise LookupError(f"upload {id!r}")
        return found

    def add_upload(self, name: str, size: int, options: dict[str, JsonValue]) -> Upload:
        """Keep an upload of which nothing has come yet, and return it."""
        upload = Upload(
            id=uuid.uuid4().hex, name=name, size=size, made=time.time(), options=options
        )
        row = (upload.id, name, size, upload.made, json.dumps(options))
        with self._change() as database:
            database.execute("INSERT INTO upload VALUES (?, ?, ?, ?, ?, NULL)", row)
        return upload

    def finish_upload(self, id: str, source: str) -> int:
        """Begin the job of an upload that is whole, whose file will be at `source`, and return its
        id."""
        upload = self.upload(id)
        with self._change() as database:
            job = _insert_job(database, source, upload.options, 0)
            self._keep_job_event(database, job)
            database.execute("UPDATE upload SET job = ? WHERE id = ?", (job, id))
        return job

    def forget_upload(self, id: str) -> None:
        """Remove an upload."""
        with self._change() as database:
            database.execute("DELETE FROM upload WHERE id = ?", (id,))

    # ---------------------------------------------------------------- what is made of a video, kept

    def waveform(self, id: str, stamp: str) -> bytes | None:
        """Return the peaks that were kept of a video whose file had this stamp."""
        with self._guarded():
            row = self._database.execute(
                "SELECT peaks FROM waveform WHERE video = ? AND stamp = ?", (id, stamp)
            )
            found = row.fetchone()
        return found[0] if found else None

    def keep_waveform(self, id: str, stamp: str, peaks: bytes) -> None:
        """Keep the peaks of a video."""
        with self._change() as database:
            database.execute("INSERT OR REPLACE INTO waveform VALUES (?, ?, ?)", (id, stamp, peaks))

    # ---------------------------------------------------------------- files

    def inside(self, path: Path) -> Path:
        """Return a path, relative ones as seen from the library, without links.

        Raises StoreError for one outside of the library and of the folders that are allowed.
        """
        with contextlib.suppress(OSError, ValueError):
            real = Path(os.path.realpath(self.folder / path))
            if any(real.is_relative_to(folder) for folder in self.allowed):
                return real
        raise StoreError(
            f"{path}: lies neither in the library nor in a folder of --allow; move it, or allow its folder"
        )

    def media(self, id: str, record: Record) -> Path | None:
        """Return the file of a video: in the library, in an allowed folder or, elsewhere, with the
        bytes of the record.

        So a record, which somebody else may have written, gives out no file but what its writer
        had. None where none is there.
        """
        named, beside = record.video.path, (self.folder / self.video(id).name).parent
        if named is None:
            return None
        for place in dict.fromkeys(
            (beside / named, self.folder / named, Path(named), beside / Path(named).name)
        ):
            with contextlib.suppress(OSError, ValueError, StoreError):
                if place.is_file():
                    try:
                        return self.inside(place.absolute())
                    except StoreError:
                        if self._sha256(place) == record.video.sha256:
                            return place.resolve()
        return None

    def _sha256(self, path: Path) -> str:
        state = path.stat()
        key = (str(path), state.st_mtime_ns, state.st_size)
        with self._read_lock:
            if key not in self._hashes:
                self._hashes[key] = sha256(path)
            return self._hashes[key]

    def _look(self) -> None:
        """Read the records that are new or have changed since."""
        with self._read_lock:
            seen = {}
            for path in files_below(self.folder):
                if path.suffix == ".json" and not path.name.startswith("."):
                    name = path.relative_to(self.folder).as_posix()
                    if (stamp := self._stamp(name)) is not None:
                        video = LibraryVideo(video_id(name), name, stamp)
                        known = self._cards.get(video.id)
                        seen[video.id] = (
                            known if known and known[0] == video else (video, self._card(video))
                        )
            self._cards = seen

    def _stamp(self, name: str) -> tuple[int, int] | None:
        try:
            state = (self.folder / name).stat()
        except FileNotFoundError:
            return None
        return state.st_mtime_ns, state.st_size

    def _card(self, video: LibraryVideo) -> VideoCard | None:
        """Return the card of the machine's record; None where the file holds none."""
        try:
            record = read_record(self.folder / video.name)
        except StoreError:
            return None
        return _card(video.id, record, 0, video.stamp[0] / 1e9)

    def _card_now(self, card: VideoCard, revision: int) -> VideoCard:
        if revision == 0:
            return card
        return _card(card.id, self.corrected(card.id).record, revision, card.made)

    # ---------------------------------------------------------------- the database

    def _open(self, reads_only: bool) -> sqlite3.Connection:
        writable = os.access(self.folder, os.W_OK)
        if not (writable or reads_only):
            raise StoreError(
                f"{self.folder}: cannot be written, and corrections are kept in it; take a copy of it"
            )
        with self._guarded():
            place = self.path if writable else ":memory:"
            database = sqlite3.connect(
                place, timeout=BUSY, check_same_thread=False, isolation_level=None
            )
            if not writable and self.path.is_file():
                _copy_store(self.path, database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute("BEGIN IMMEDIATE")
            form = database.execute("PRAGMA user_version").fetchone()[0]
            if form <= FORM:
                # A table that was added since is made too: earlier versions leave it alone.
                for statement in filter(None, map(str.strip, TABLES.split(";"))):
                    database.execute(statement)
                facts = [("id", uuid.uuid4().hex), ("port", "0")]
                database.executemany("INSERT OR IGNORE INTO library VALUES (?, ?)", facts)
                database.execute(f"PRAGMA user_version = {FORM}")
            database.execute("COMMIT")
            if writable:
                self.path.chmod(0o600)
        if form > FORM:
            raise StoreError(
                f"{self.path}: of a later Stepline (form {form}, this one knows {FORM}); update Stepline"
            )
        return database

    @contextlib.contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Yield the database within a transaction, which is on disk at the end."""
        with self._guarded():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Have one thread at a time work on the database."""
        with self._lock:
            try:
                yield
            except (sqlite3.Error, OSError) as error:
                raise StoreError(
                    f"{self.path}: {error}; free some space, or see who else works on it"
                ) from error


def _copy_store(path: Path, database: sqlite3.Connection) -> None:
    """Copy a store and what its log holds yet; SQLite reads neither where it cannot write beside
    them."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        with contextlib.closing(sqlite3.connect(copy)) as store:
            store.backup(database)


def _card(id: str, record: Record, revision: int, made: float) -> VideoCard:
    from stepline.outputs.text import shown_span

    first = next(
        (step.at for step in record.steps if shown_span(step) is not None and step.at is not None),
        0.0,
    )
    return VideoCard(
        id=id,
        title=record.video.title or record.id,
        duration=record.video.duration,
        state="corrected" if revision else "new",
        picture=f"/api/videos/{id}/pictures/{first:.1f}.jpg"
        if record.video.path is not None
        else None,
        steps=len(record.steps),
        shown=sum(step.status == "shown" for step in record.steps),
        revision=revision,
        made=made,
    )


def _insert_job(
    database: sqlite3.Connection, source: str, options: dict[str, JsonValue], priority: int
) -> int:
    row = (source, json.dumps(options), "waiting", priority, time.time())
    done = database.execute(
        "INSERT INTO job(source, options, state, priority, made) VALUES (?, ?, ?, ?, ?)", row
    )
    return int(done.lastrowid or 0)


def _job(row: Sequence[Any]) -> Job:
    id, source, options, state, priority, made, begun, ended, error, video = row
    return Job(
        id=id,
        source=source,
        options=parse_json(options),
        state=state,
        priority=priority,
        made=made,
        begun=begun,
        ended=ended,
        error=error,
        video=video,
    )
