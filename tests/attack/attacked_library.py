"""The library that is attacked, what lies around it, and what must not change there."""

import hashlib
import json
import sqlite3
from contextlib import closing

from file_bytes import file_bytes
from studio_server import library

from stepline.library.corrected_library import video_id
from stepline.library.database import DATABASE_FILE
from stepline.studio.store import Studio

SECRET = "the secret"
OTHER_TITLE = "Of another library"
# that another library has too
OTHER_IDS = {
    "video",
    "upload",
    "ended upload",
    "job",
    "removed video",
    "removed job",
    "run",
    "clip",
}
# folders below the root that a studio may change
STUDIO_FOLDERS = {"cache", "tmp", "library", "open"}


class AttackedLibrary:
    """A library in `folder`, below a root that also holds a secret and a library that nobody
    serves.

    names: the ids that a valid request needs, by what they name. other_names: the same of the
    library that is not served.
    """

    def __init__(self, root, video):
        self.root = root
        self.secret = root / "secret.txt"
        self.secret.write_text(SECRET)
        self.folder = library(root / "library", video, ("Lemonade", "Tea", "Removed"))
        self.variables = {}
        for name, folder in (("STEPLINE_CACHE", "cache"), ("TMPDIR", "tmp"), ("HOME", "home")):
            (root / folder).mkdir()
            self.variables[name] = str(root / folder)
        (self.folder / "broken.mp4").write_bytes(b"PK\x03\x04" + bytes(4096))
        (self.folder / "link.mp4").symlink_to(self.secret)
        (self.folder / "link.events.jsonl").symlink_to(self.secret)
        (self.folder / "run.events.jsonl").write_text('{"event": "finished"}\n')
        self.other = self._made_other_library(video)
        self.names = {}

    def open_library(self, video):
        """Write the library of the studio that strangers reach, and return its folder."""
        folder = library(self.root / "open", video, ("Lemonade",))
        (folder / "run.events.jsonl").write_text('{"event": "finished"}\n')
        return folder

    def folder_of_table(self):
        """Return a library of which only the routes are looked at."""
        return self.other

    def _made_other_library(self, video):
        folder = library(self.root / "other", video, (OTHER_TITLE,))
        (folder / "v0.json").rename(folder / "other.json")
        (folder / "elsewhere.events.jsonl").write_text('{"event": "finished"}\n')
        studio = Studio(folder)
        upload = studio.uploads.add("other.mp4", 1000, {})
        jobs = [studio.jobs.add("other.mp4", {}) for _ in range(900)]
        studio.close()
        video, job = video_id("other.json"), str(jobs[-1].id)
        self.other_names = {"video": video, "removed video": video, "job": job, "removed job": job}
        self.other_names |= {"upload": upload.id, "ended upload": upload.id}
        self.other_names |= {"run": "elsewhere", "clip": "99.mp4"}
        return folder

    def fill(self, studio):
        """Have the studio begin what a valid request needs."""

        def begin(path, status, body, name):
            reply, data = studio.ask("POST", f"/api/{path}", body)
            assert reply.status == status, data
            return str(json.loads(data)[name])

        for name, film in (("upload", "film.mp4"), ("ended upload", "ended.mp4")):
            self.names[name] = begin("uploads", 201, {"name": film, "size": 1000}, "upload")
        for name in ("job", "removed job"):
            self.names[name] = begin("videos", 200, {"path": "broken.mp4"}, "job")
        self.names |= {"video": video_id("v0.json"), "removed video": video_id("v2.json")}
        self.names |= {"run": "run", "second": "4.0", "static": "login.js"}

    def surroundings(self):
        """Name -> digest of every file below the root that no studio may change."""
        digests = {}
        for path in sorted(self.root.rglob("*")):
            parts = path.relative_to(self.root).parts
            if parts[0] not in STUDIO_FOLDERS and not path.is_dir():
                digests["/".join(parts)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return digests


def stored_rows(folder):
    """What people and programs have put into a library: table -> rows."""
    file = f"file:{folder / DATABASE_FILE}?mode=ro"
    with closing(sqlite3.connect(file, uri=True)) as connection:
        tables = ("correction", "upload", "library")
        rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
        # A job that another test began may come to its end meanwhile.
        jobs = connection.execute("SELECT id, source, options, priority FROM job")
        return rows | {"job": jobs.fetchall()}


def library_files(folder):
    """Name -> bytes of every file of a library but the database's."""
    return file_bytes(folder, lambda path: not path.name.startswith(".stepline"))
