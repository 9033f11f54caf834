"""What the rows and links of a library from elsewhere may try, and what many at once may."""

import json
import os
import shutil
import sqlite3
import stat
import time
from contextlib import closing, contextmanager

import pytest
from studio_server import ended_job, library, serving

from stepline.errors import StoreError
from stepline.library import SearchIndex
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.database import DATABASE_FILE, LibraryDatabase
from stepline.library.search import INDEX_FILE
from stepline.pipeline.request import StepsSettings
from stepline.settings import load_settings
from stepline.studio.events import Broadcast
from stepline.studio.jobs import JobRunner
from stepline.studio.store import Studio
from stepline.studio.uploads import PARTIAL_FOLDER, VIDEOS_FOLDER, Uploads

PRECIOUS = b"what a person wrote\n"
UPLOAD = "0123456789abcdef" * 2
LEMONADE = video_id("v0.json")
FAST = load_settings(StepsSettings, None, ["vision.backbone=none"])


@pytest.fixture
def folder(tmp_path):
    """A library whose database was made by Stepline and may be changed by a stranger."""
    path = tmp_path / "library"
    path.mkdir()
    Studio(path).close()
    return path


@pytest.fixture
def made(tmp_path, small_video):
    """A library of one video."""
    return library(tmp_path / "library", small_video)


@pytest.fixture
def index_file(made):
    """The file of its index, up to date."""
    with updated_index(made, None):
        pass
    return made / INDEX_FILE


def change(folder, statement, *values):
    """Do to the library's database what a stranger may."""
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as database, database:
        database.execute(statement, values)


def add_job(folder, source, options="{}", state="waiting"):
    insert = "INSERT INTO job(source, options, state, priority, made) VALUES (?,?,?,?,?)"
    change(folder, insert, source, options, state, 0, time.time())


def add_upload(folder, id=UPLOAD, job=1):
    change(folder, "INSERT INTO upload VALUES (?, 'a.mp4', 5, ?, '{}', ?)", id, time.time(), job)


def start_uploads(folder):
    studio = Studio(folder)
    try:
        return Uploads(studio, JobRunner(studio, Broadcast()))
    finally:
        studio.close()


def run_sql(path, *statements):
    """Do to a file of SQLite what a stranger may."""
    for statement in statements:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)


@contextmanager
def updated_index(made, *embedder):
    """The index of a library's words, up to date."""
    with closing(SearchIndex(made, *embedder)) as index:
        index.update()
        yield index


def test_a_row_of_an_upload_moves_no_file_of_the_library_elsewhere(folder, precious):
    (folder / PARTIAL_FOLDER).mkdir()
    (folder / PARTIAL_FOLDER / UPLOAD).write_bytes(b"evil")
    for source in (str(precious), str(precious.parent / "new.txt"), "videos/../../new.txt"):
        change(folder, "DELETE FROM job")
        change(folder, "DELETE FROM upload")
        add_job(folder, source)
        add_upload(folder)
        start_uploads(folder)
        assert precious.read_bytes() == PRECIOUS
        assert not (precious.parent / "new.txt").exists()


@pytest.mark.parametrize("id", ["../../precious.txt", "/precious.txt", "", "x" * 32])
def test_a_row_of_an_upload_deletes_and_moves_no_file_from_elsewhere(folder, precious, id):
    id = id.replace("/precious.txt", str(precious)) if id.startswith("/") else id
    add_job(folder, str(folder / VIDEOS_FOLDER / "a.mp4"))
    for job in (1, None):
        change(folder, "DELETE FROM upload")
        add_upload(folder, id, job)
        change(folder, "UPDATE upload SET made = 0")
        if job is None:
            with pytest.raises(StoreError, match="a row of its table upload is not Stepline's"):
                start_uploads(folder)
        else:
            start_uploads(folder)
        assert precious.read_bytes() == PRECIOUS
        assert not (folder / VIDEOS_FOLDER / "a.mp4").exists()


def test_an_upload_writes_over_no_video(folder):
    (folder / PARTIAL_FOLDER).mkdir()
    (folder / PARTIAL_FOLDER / UPLOAD).write_bytes(b"evil")
    (folder / VIDEOS_FOLDER).mkdir()
    video = folder / VIDEOS_FOLDER / "a.mp4"
    video.write_bytes(PRECIOUS)
    add_job(folder, str(video))
    add_upload(folder)
    start_uploads(folder)
    assert video.read_bytes() == PRECIOUS


@pytest.mark.parametrize("name", [PARTIAL_FOLDER, VIDEOS_FOLDER])
def test_an_upload_goes_through_no_link(tmp_path, made, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (made / name).symlink_to(elsewhere)
    if name == PARTIAL_FOLDER:
        with pytest.raises(StoreError, match="--allow"):
            start_uploads(made)
        return
    with serving(made) as server:
        reply, data = server.ask("POST", "/api/uploads", {"name": "a.mp4", "size": 5})
        id = json.loads(data)["upload"]
        reply, data = server.ask("PATCH", f"/api/uploads/{id}", b"12345", Upload_Offset="0")
        assert reply.status == 409, data
    assert list(elsewhere.iterdir()) == []


def test_a_piece_goes_through_no_link(tmp_path, small_video, precious):
    with serving(library(tmp_path / "library", small_video)) as server:
        _, data = server.ask("POST", "/api/uploads", {"name": "a.mp4", "size": 500})
        id = json.loads(data)["upload"]
        pieces = server.studio.library.folder / PARTIAL_FOLDER / id
        pieces.parent.mkdir()
        pieces.symlink_to(precious)
        offset = str(len(os.readlink(pieces)))
        reply, data = server.ask("PATCH", f"/api/uploads/{id}", b"12345", Upload_Offset=offset)
        assert reply.status == 409, data
        assert b"is a link" in data
    assert precious.read_bytes() == PRECIOUS


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        *((path, "{}", "--allow") for path in ("/etc/passwd", "../outside.mp4", "link.mp4")),
        ("file:///etc/passwd", "{}", "file:"),
        ("v0.mp4", '{"captions": "/etc/passwd"}', "--allow"),
        ("v0.mp4", '{"weights": "/etc/passwd"}', "validation error"),
    ],
)
@pytest.mark.parametrize("state", ["waiting", "running"])
def test_a_row_of_a_job_reads_no_file_from_elsewhere(
    tmp_path, made, small_video, source, options, reason, state
):
    shutil.copyfile(small_video, tmp_path / "outside.mp4")
    (made / "link.mp4").symlink_to(tmp_path / "outside.mp4")
    Studio(made).close()
    add_job(made, source, options, state)
    with serving(made, settings=FAST) as server:
        job = ended_job(server)
        assert job["state"] == "failed"
        assert reason in job["error"]
        assert "\n" not in job["error"]


@pytest.mark.parametrize("options", ["[]", "{", "1e999", '{"a": NaN}'])
def test_an_invalid_row_of_a_job_is_an_error_with_a_cure(folder, options):
    add_job(folder, "v0.mp4", options)
    refused = pytest.raises(StoreError, match="a row of its table job is not Stepline's.*copy")
    with closing(Studio(folder)) as studio, refused:
        studio.jobs.list_jobs()


def test_links_that_lead_out_of_the_library_are_no_job_and_no_folder_for_one(
    tmp_path, made, small_video
):
    shutil.copyfile(small_video, tmp_path / "outside.mp4")
    (tmp_path / "elsewhere").mkdir()
    (made / "more").mkdir()
    (made / "more" / "link.mp4").symlink_to(tmp_path / "outside.mp4")
    with serving(made, settings=FAST) as server:
        server.ask("POST", "/api/videos", {"path": "more"})
        assert "a link that leads out" in ended_job(server)["error"]
        (made / "downloads").symlink_to(tmp_path / "elsewhere")
        server.ask("POST", "/api/videos", {"path": "v0.mp4"})
        assert "a link that leads out" in ended_job(server, 2)["error"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_row_of_an_event_is_signed_only_where_it_is_one(folder, caplog):
    rows = [
        ("x", "job", '{"event": "job", "id": 1}'),
        (UPLOAD, "job\r\nX-Evil: 1", '{"event": "job", "id": 1}'),
        (UPLOAD, "transfer", '{"event": "transfer", "id": 1}'),
        (UPLOAD, "job", '{"event": "job", "id": 1, "pay": 1000}'),
        (UPLOAD, "job", "pay 1000"),
        (UPLOAD, "video", '{"event": "video", "id": "a", "revision": 1}'),
    ]
    for row in rows:
        change(folder, "INSERT INTO event(id, name, body, made) VALUES (?, ?, ?, 0.0)", *row)
    studio = Studio(folder)
    assert studio.events.read_oldest().body == rows[-1][2]
    studio.close()
    assert "not an event of Stepline" in caplog.text


@pytest.mark.parametrize("port", ["x", "-1", "99999", "9" * 5000, "²"])
def test_an_invalid_port_is_an_error_with_a_cure(folder, port):
    change(folder, "UPDATE library SET value = ? WHERE name = 'port'", port)
    with (
        closing(LibraryDatabase(folder)) as database,
        pytest.raises(StoreError, match="table library"),
    ):
        _ = database.port


UNDO = '{"id": "%s", "video": "%s", "by": "a", "when": 0, "base": 0, "undoes": "%s"}'


@pytest.mark.parametrize(
    "bodies",
    [
        ["no correction"],
        [UNDO % ("c0", LEMONADE, "c0")],
        [UNDO % ("c0", LEMONADE, "c1"), UNDO % ("c1", LEMONADE, "c0")],
        [UNDO % ("other", "other", "x")],
    ],
)
def test_invalid_rows_of_corrections_are_an_error_with_a_cure(made, bodies):
    Studio(made).close()
    for number, body in enumerate(bodies):
        row = (f"c{number}", LEMONADE, body)
        change(made, "INSERT INTO correction(id, video, body) VALUES (?, ?, ?)", *row)
    with (
        closing(CorrectedLibrary(made)) as corrected,
        pytest.raises(StoreError, match="table correction"),
    ):
        corrected.corrected(LEMONADE)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER INSERT ON job BEGIN DELETE FROM correction; END",
        "CREATE VIEW evil AS SELECT * FROM correction",
        "CREATE VIRTUAL TABLE evil USING fts5(text)",
    ],
)
def test_a_database_that_runs_something_is_refused(folder, statement):
    change(folder, statement)
    with pytest.raises(StoreError, match="'evil'.*not Stepline's"):
        LibraryDatabase(folder)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("name", [DATABASE_FILE, INDEX_FILE])
def test_a_database_is_opened_through_no_link(tmp_path, precious, name, suffix):
    target = tmp_path / "library"
    target.mkdir()
    (target / f"{name}{suffix}").symlink_to(precious)
    with pytest.raises(StoreError, match="is a link.*remove it"):
        if name == DATABASE_FILE:
            LibraryDatabase(target)
        else:
            SearchIndex(target, None)
    assert precious.read_bytes() == PRECIOUS


def test_an_index_of_a_stranger_is_made_again(made, index_file):
    run_sql(
        index_file,
        "UPDATE moment SET text = 'buy lemons from evil'",
        "CREATE TRIGGER evil AFTER DELETE ON file BEGIN DELETE FROM moment; END",
    )
    with updated_index(made, None) as index:
        assert [moment.text for moment in index.search("evil")] == []
        assert index.search("lemons")


def test_invalid_vectors_and_steps_are_an_error_with_a_cure(made):
    with updated_index(made) as index:
        for field in ("moment SET steps = '{\"a\": 1}'", "file SET vectors = x'00'"):
            index._database.execute(f"UPDATE {field}")
            with pytest.raises(StoreError, match="delete this index"):
                index.search("lemons")


def modes(folder):
    with closing(LibraryDatabase(folder)) as database:
        database.store_port(1)
        return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_what_sqlite_keeps_is_readable_by_its_owner_alone(folder, tmp_path):
    for suffix in ("", "-wal"):
        (folder / f"{DATABASE_FILE}{suffix}").touch()
        (folder / f"{DATABASE_FILE}{suffix}").chmod(0o644)
    found = modes(folder)
    assert f"{DATABASE_FILE}-wal" in found
    assert set(found.values()) == {0o600}, found
    (tmp_path / "new").mkdir()
    assert set(modes(tmp_path / "new").values()) == {0o600}


def test_a_full_disk_is_reported_as_one(tmp_path, small_video, limited_file_size):
    made = library(tmp_path / "library", small_video, [f"Title {n} {'x' * 900}" for n in range(30)])
    with updated_index(made, None) as index:
        for path in made.glob("*.json"):
            os.utime(path, (1, 1))
        size = (made / INDEX_FILE).stat().st_size
        with limited_file_size(size - 4096), pytest.raises(StoreError, match="free some space$"):
            index.update()
    full = pytest.raises(StoreError, match="free some space$")
    with closing(Studio(made)) as studio, limited_file_size(40_000), full:
        for number in range(100):
            studio.jobs.add("x" * 2000, {"number": number})


def make_undecodable(path):
    """Give a table of a database a name in which a byte is not UTF-8, and a statement that fails."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        row = "('table', CAST(x'6576ff696c' AS TEXT), CAST(x'6576ff696c' AS TEXT), 2, 'CREATE TABLE (')"
        database.execute(f"INSERT INTO sqlite_master VALUES {row}")


def test_a_definition_that_is_not_utf8_is_an_error_with_a_cure(folder):
    make_undecodable(folder / DATABASE_FILE)
    with pytest.raises(StoreError, match="put a copy of the file back"):
        LibraryDatabase(folder)


def test_an_index_with_a_definition_that_is_not_utf8_is_made_again(made):
    SearchIndex(made, None).close()
    make_undecodable(made / INDEX_FILE)
    with updated_index(made, None) as index:
        assert index.search("lemons")


def test_any_changed_byte_of_an_index_ends_in_an_answer_or_a_store_error(made, index_file):
    right = index_file.read_bytes()
    for place in [*range(16, 100), *range(100, len(right), 997)]:
        damaged = bytearray(right)
        damaged[place] ^= 0xFF
        index_file.write_bytes(damaged)
        try:
            with updated_index(made, None) as index:
                index.search("lemons")
        except StoreError as error:
            assert "delete this index" in str(error), place


@pytest.mark.parametrize("column", ["start", "status", "text", "kind"])
def test_an_index_with_an_invalid_moment_is_made_again(made, index_file, column):
    invalid = (f"UPDATE moment SET {column} = x'ff'", "UPDATE words SET spaced = 'lemons'")
    run_sql(index_file, *invalid)
    with updated_index(made, None) as index:
        assert "Slice the lemons" in [moment.text for moment in index.search("lemons")]


def test_a_database_of_no_bytes_is_not_a_new_one(folder):
    (folder / DATABASE_FILE).write_bytes(b"")
    with pytest.raises(StoreError, match="0 bytes.*put a copy of the file back, or delete it"):
        CorrectedLibrary(folder)
    assert (folder / DATABASE_FILE).read_bytes() == b""
