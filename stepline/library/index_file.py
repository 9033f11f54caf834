"""The file of a search index: where it is, and its tables."""

import hashlib
import os
from pathlib import Path

from stepline.files.atomic_files import cache_folder

INDEX_FILE = ".stepline-search.sqlite"  # next to the records
INDEX_FORM = 3  # version of the tables below. An index of another one is made again

# Words are indexed by triggers, so that no moment is without them.
INDEX_TABLES = """
CREATE TABLE file (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, stamp TEXT NOT NULL, video TEXT, title TEXT,
    first INTEGER NOT NULL, count INTEGER NOT NULL, vectors BLOB, least BLOB);
CREATE TABLE moment (
    id INTEGER PRIMARY KEY, file INTEGER NOT NULL REFERENCES file(id), kind TEXT NOT NULL, text TEXT NOT NULL,
    start REAL, end REAL, status TEXT, basis TEXT, score REAL, steps TEXT NOT NULL);
CREATE INDEX moment_file ON moment(file);
CREATE VIRTUAL TABLE words USING fts5(
    text, content='moment', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2');
CREATE TRIGGER moment_in AFTER INSERT ON moment BEGIN
    INSERT INTO words(rowid, text) VALUES (new.id, new.text); END;
CREATE TRIGGER moment_out AFTER DELETE ON moment BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text); END;
"""


def index_path(folder: Path) -> Path:
    """Return the path of a folder's index: in the folder, or in the cache where the folder cannot
    be written."""
    if os.access(folder, os.W_OK):
        return folder / INDEX_FILE
    # A name by the real path, so that every way to the folder leads to one index.
    real_path = os.path.realpath(folder)
    digest = hashlib.sha256(os.fsencode(real_path)).hexdigest()
    return cache_folder() / "search" / f"{digest[:16]}.sqlite"
