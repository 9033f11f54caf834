"""The database of a library: one SQLite file next to the records, with all that people and jobs add.

    database = LibraryDatabase(Path("out"))
    with database.write_transaction() as connection:
        connection.execute("INSERT INTO waveform VALUES (?, ?, ?)", row)

A change is on disk when its transaction ends: WAL, synchronous=FULL. The stores that use it:
CorrectedLibrary here, those of jobs, uploads, events and answers in studio/store.py.

The file may be a stranger's, as a library may be. It is never opened through a link, and nothing
that it defines is run. Each store checks the rows that it reads.
"""

import contextlib
import errno
import functools
import os
import shutil
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import RLock
from typing import Any

from stepline.errors import StoreError
from stepline.files.atomic_files import check_plain_file, open_plain_file
from stepline.limits import MAX_RECORD_BYTES

Row = tuple[Any, ...]

DATABASE_FILE = ".stepline-studio.sqlite"  # the file's name, in the folder of the records
DATABASE_VERSION = 1  # version of the tables below. A file of a later one is refused
LOCK_TIMEOUT_SECONDS = 30.0  # while another process locks the file
MAX_PORT = 65535
LOST_FILE_CURE = "put a copy of the file back, or delete it and with it all corrections"
# looks at a file of 0 bytes, 0.1 s apart: for milliseconds, a new database has none
NEW_FILE_CHECKS = 10
SQLITE_SUFFIXES = ("-wal", "-shm", "-journal")  # of the files that SQLite keeps next to a database
FULL_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
WRITE_ERRORS = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC"})

# The tables of all stores. Columns are read in this order.
DATABASE_TABLES = """
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
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,
    made REAL NOT NULL, refusals INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS library (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS waveform (video TEXT PRIMARY KEY, stamp TEXT NOT NULL, peaks BLOB NOT NULL);
"""


class LibraryDatabase:
    """The SQLite file of one library, for any number of threads.

    Args:
        folder: folder of the records' JSON files.
        is_read_only: whether nothing will be changed. If so, the folder need not be writable: the
            file of such a folder is copied into memory.

    Raises StoreError if `folder` is not a folder, or the file cannot be read or written.
    """

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        if not folder.is_dir():
            raise StoreError(
                f"{folder}: no such folder; give the output folder of `stepline steps`"
            )
        self.folder = Path(os.path.realpath(folder))
        self.path = self.folder / DATABASE_FILE
        self._lock = RLock()
        self._connection = self._open(is_read_only)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @property
    def identity(self) -> str:
        """Random id of the library. Browsers use it to distinguish libraries at one address."""
        return str(self._stored_fact("id"))

    @property
    def port(self) -> int:
        """TCP port at which the library was last served, 0 before the first time."""
        port = str(self._stored_fact("port"))
        if port.isascii() and port.isdecimal() and int(port[:6]) <= MAX_PORT:
            return int(port)
        raise self.row_error("library")

    def store_port(self, port: int) -> None:
        """Store the TCP port, to be used again: browsers keep unsent corrections per address."""
        self.write("UPDATE library SET value = ? WHERE name = 'port'", str(port))

    def _stored_fact(self, name: str) -> Any:
        return self.rows("SELECT value FROM library WHERE name = ?", name)[0][0]

    def row_error(self, table: str) -> StoreError:
        """Return the StoreError for a row that fails validation. table: name of its table."""
        return StoreError(
            f"{self.path}: a row of its table {table} is not Stepline's; {LOST_FILE_CURE}"
        )

    def rows(self, query: str, *values: object) -> list[Row]:
        """Return the rows of an SQL query. values: values of its placeholders `?`."""
        with self.locked_connection():
            return self._connection.execute(query, values).fetchall()

    def row(self, query: str, *values: object) -> Row | None:
        """Return the first row of an SQL query, None if there is none.

        values: values of its placeholders `?`.
        """
        rows = self.rows(query, *values)
        return rows[0] if rows else None

    @contextlib.contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection inside a transaction that is committed, synced to disk, at the end.
        An error rolls it back."""
        with self.locked_connection():
            # IMMEDIATE locks before anything is read, so that it is still true at the write.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def write(self, statement: str, *values: object) -> int:
        """Run one SQL statement in a transaction of its own. Return the number of changed rows.

        values: values of its placeholders `?`.
        """
        with self.write_transaction() as connection:
            return connection.execute(statement, values).rowcount

    @contextlib.contextmanager
    def locked_connection(self) -> Iterator[None]:
        """Lock the connection for one thread, and raise SQLite errors as StoreError."""
        cure = "see who else works on it, or put a copy of the file back"
        with self._lock, sqlite_errors(self.path, cure):
            yield

    def _open(self, is_read_only: bool) -> sqlite3.Connection:
        writable = os.access(self.folder, os.W_OK)
        if not (writable or is_read_only):
            raise StoreError(
                f"{self.folder}: cannot be written, and corrections are kept in it; take a copy of "
                "it"
            )

        # where nothing can be written, a copy in memory
        with self.locked_connection():
            # Nothing is followed or run that the file could bring along.
            check_database_files(self.path)
            if _is_empty_file(self.path):
                raise StoreError(
                    f"{self.path}: 0 bytes, as a full disk leaves them; {LOST_FILE_CURE}"
                )
            if writable:
                _make_private(self.path)
            connection = sqlite3.connect(
                self.path if writable else ":memory:",
                timeout=LOCK_TIMEOUT_SECONDS,
                check_same_thread=False,
                isolation_level=None,
            )
            if not writable and self.path.is_file():
                _copy_file(self.path, connection)
            limit_row_size(connection)
            connection.execute("PRAGMA trusted_schema = OFF")
            # In WAL, readers do not wait for a writer. FULL: a change survives a loss of power.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            self._check_schema(connection)
            version = _create_missing_tables(connection)
        if version > DATABASE_VERSION:
            raise StoreError(
                f"{self.path}: of a later Stepline (form {version}, this one knows "
                f"{DATABASE_VERSION}); update Stepline"
            )
        return connection

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        """Raise StoreError if the file defines more than tables and indexes.

        Triggers, views and virtual tables run code as they are read or changed.
        """
        foreign = connection.execute(
            "SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE "
            "'%VIRTUAL%TABLE%'"
        ).fetchone()
        if foreign is not None:
            connection.close()
            raise StoreError(
                f"{self.path}: it defines {foreign[0]!r}, which is not Stepline's; put a copy of "
                "the file back, or delete it"
            )


@contextlib.contextmanager
def sqlite_errors(path: Path, cure: str) -> Iterator[None]:
    """Raise the errors of SQLite and of files in this context as StoreError.

    Args:
        path: path of the database, for the message.
        cure: what the user can do, unless the disk is full.
    """
    try:
        yield
    # Python's sqlite3 decodes SQLite's messages, which quote what the file defines.
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        is_full = getattr(error, "sqlite_errorname", None) in WRITE_ERRORS
        if is_full or getattr(error, "errno", None) in FULL_DISK_ERRORS:
            cure = "free some space"
        raise StoreError(f"{path}: {error}; {cure}") from error


def check_database_files(path: Path) -> None:
    """Raise StoreError if a database file, or a file that SQLite keeps next to it, is a link.

    SQLite would write through the link.
    """
    for suffix in ("", *SQLITE_SUFFIXES):
        check_plain_file(path.with_name(path.name + suffix))


def limit_row_size(connection: sqlite3.Connection) -> None:
    """Limit the size of SQLite values to the size of a record, since the file is not trusted.

    connection: connection to the database.
    """
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_RECORD_BYTES)
    connection.execute("PRAGMA cell_size_check = ON")


def _is_empty_file(path: Path) -> bool:
    """Return whether a file is there with 0 bytes, and not because it is being made."""
    for _ in range(NEW_FILE_CHECKS):
        if not path.exists() or path.stat().st_size:
            return False
        time.sleep(0.1)
    return True


def _make_private(path: Path) -> None:
    """Make a database, and the files that SQLite keeps next to it, readable only by their owner."""
    # SQLite gives the files next to it the mode that it finds here.
    open_plain_file(path).close()
    for suffix in ("", *SQLITE_SUFFIXES):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).chmod(0o600)


def _create_missing_tables(connection: sqlite3.Connection) -> int:
    """Create the tables that are missing, unless the file has a later version. Return its version."""
    connection.execute("BEGIN IMMEDIATE")
    # Checked inside the transaction, since two processes may open a new library together.
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version <= DATABASE_VERSION:
        # Earlier versions of Stepline ignore a table that was added since.
        for statement in DATABASE_TABLES.split(";"):
            connection.execute(statement)
        facts = [("id", uuid.uuid4().hex), ("port", "0")]
        connection.executemany("INSERT OR IGNORE INTO library VALUES (?, ?)", facts)
        connection.execute(f"PRAGMA user_version = {DATABASE_VERSION}")
    connection.execute("COMMIT")
    return version


def _copy_file(path: Path, connection: sqlite3.Connection) -> None:
    """Copy a database file with its write-ahead log into an open database in memory.

    SQLite reads neither in a folder that it cannot write.

    Args:
        path: path of the file.
        connection: connection to the database in memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        # The log holds changes that are not in the file yet.
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        with contextlib.closing(sqlite3.connect(copy)) as source:
            source.backup(connection)


def schema_of_database(database: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Return (type, name, SQL statement) of each table, index and trigger of a database."""
    rows = database.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
    return frozenset(rows)


@functools.cache
def schema_of_statements(tables: str) -> frozenset[tuple[str, str, str]]:
    """Return the schema that SQL statements create, as `schema_of_database` does.

    tables: SQL statements, separated by ";".
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.executescript(tables)
        return schema_of_database(database)
