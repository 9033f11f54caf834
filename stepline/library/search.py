"""Search over a folder of records: steps, sentences and text on screen, answered by moments of
videos.

Two rankings are made, of words (BM25, SQLite's FTS5) and of meaning (cosine of MiniLM vectors), and
joined by their ranks (reciprocal rank fusion; Cormack, Clarke and Buettcher, SIGIR 2009). A
sentence, or a text on screen, answers by the step that rests on it. The index is a file beside the
records, and what changes among them is read again, nothing else. Letters: N moments, D width of a
vector.
"""

import contextlib
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.atomic_files import files_below
from stepline.errors import ModelError, SettingsError, StoreError
from stepline.limits import parse_json
from stepline.locks import lock_output
from stepline.pipeline.placing import ON_SCREEN
from stepline.progress import Progress
from stepline.records import Matrix, Record, Span, Status, Step
from stepline.storage import read_record
from stepline.text import embed
from stepline.weights import cache_folder

MomentKind: TypeAlias = Literal["step", "sentence", "screen"]
MomentRows: TypeAlias = tuple[
    np.ndarray[tuple[int], np.dtype[np.int64]], Matrix, npt.NDArray[np.float32]
]
Embedder: TypeAlias = Callable[[Sequence[str]], Matrix]  # texts to unit rows (N, D)

INDEX = ".stepline-search.sqlite"  # beside the records
FORM = 2  # of the tables below; an index of another is made anew
RANK_DAMPING = 60  # k of reciprocal rank fusion; the paper's
# share of the moments that hold a word from which it is not searched, "the" and the like
COMMON = 0.25
CANDIDATES = 200  # moments of each ranking that are joined
# cosine of a query and a moment from which that answers by its meaning; benchmarks/search.py
LEAST_LIKENESS = 0.3
MADE_WORDS, MADE_SEED = 64, 99  # queries of words that no language has, and what draws them

TABLES = """
CREATE TABLE file (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, stamp TEXT NOT NULL, video TEXT, title TEXT,
    first INTEGER NOT NULL, count INTEGER NOT NULL, vectors BLOB, least BLOB);
CREATE TABLE moment (
    id INTEGER PRIMARY KEY, file INTEGER NOT NULL REFERENCES file(id), kind TEXT NOT NULL, text TEXT NOT NULL,
    start REAL, end REAL, status TEXT, score REAL, steps TEXT NOT NULL);
CREATE INDEX moment_file ON moment(file);
CREATE VIRTUAL TABLE words USING fts5(
    text, content='moment', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2');
CREATE TRIGGER moment_in AFTER INSERT ON moment BEGIN
    INSERT INTO words(rowid, text) VALUES (new.id, new.text); END;
CREATE TRIGGER moment_out AFTER DELETE ON moment BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text); END;
"""


@dataclass(frozen=True)
class Moment:
    """An answer: what is done, said or written, and when, in seconds; no times where a step is not
    found.

    status, score: the verdict on a step, P(shown) of a sentence. file: the record, link: the page
    at that second, both as seen from the folder that was searched; link is None where the record
    has no page beside it.
    """

    video: str
    title: str
    kind: MomentKind
    text: str
    start: float | None
    end: float | None
    status: Status | None
    score: float | None
    file: str
    link: str | None


@dataclass(frozen=True)
class IndexUpdate:
    """What an update has done, in files: read for the first time or anew, gone, and those that hold
    no record."""

    read: int
    gone: int
    other: int


class Corrections(Protocol):
    """What people corrected in the records of a folder, by the record's file as seen from it."""

    def revision_of(self, name: str) -> int:
        """Return how many corrections a record has."""
        ...

    def corrected_record(self, name: str) -> Record:
        """Return a record as people have corrected it."""
        ...


class SearchIndex:
    """The index of one folder. embedder: None where the weights of MiniLM are missing; then words
    alone are searched.

    corrections: of the records; one that has some is searched as corrected.
    Raises StoreError where the folder is none, or its index cannot be kept.
    """

    def __init__(
        self,
        folder: Path,
        embedder: Embedder | None = embed,
        corrections: Corrections | None = None,
    ) -> None:
        if not folder.is_dir():
            raise StoreError(f"{folder}: no folder; name the one that `stepline steps --out` wrote")
        self.folder, self._embedder, self._corrections = folder, embedder, corrections
        self.path = index_path(folder)
        self._database = self._open()
        self._rows: MomentRows | None = None
        self._made: Matrix | None = None

    def close(self) -> None:
        """Close the file of the index."""
        self._database.close()

    @property
    def meaning(self) -> bool:
        """Whether moments are found by their meaning too, not by their words alone."""
        return self._embedder is not None

    def update(self, progress: Progress | None = None) -> IndexUpdate:
        """Read the records that are new or have changed since, and forget those that have gone."""
        with lock_output(self.path.with_suffix(".lock"), self.folder, wait=True), self._guarded():
            found = self._stamps()
            rows = self._database.execute(
                "SELECT name, stamp, vectors IS NULL AND count > 0 FROM file"
            ).fetchall()
            lacking = {name for name, _, by_words in rows if by_words and self.meaning}
            known = {name: stamp for name, stamp, _ in rows if name not in lacking}
            gone = [name for name, _, _ in rows if name not in found]
            changed = [name for name, stamp in found.items() if known.get(name) != stamp]
            self._forget([*gone, *(name for name in changed if name in known or name in lacking)])
            for number, name in enumerate(changed):
                self._read(name, found[name])
                if progress is not None:
                    progress("indexing", float(number + 1), float(len(changed)))
            other = self._database.execute(
                "SELECT count(*) FROM file WHERE video IS NULL"
            ).fetchone()[0]
        if gone or changed:
            self._rows = None
        return IndexUpdate(len(changed), len(gone), other)

    def _stamps(self) -> dict[str, str]:
        """Return the JSON files of the folder by their path in it, with what changes when they
        do."""
        found = {}
        for path in files_below(self.folder):
            if path.suffix == ".json" and not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # it has gone between the two
                    state = path.stat()
                    name = path.relative_to(self.folder).as_posix()
                    revision = (
                        self._corrections.revision_of(name) if self._corrections is not None else 0
                    )
                    found[name] = f"{state.st_mtime_ns} {state.st_size}" + f" {revision}" * (
                        revision > 0
                    )
        return found

    def search(self, query: str, most: int = 5) -> list[Moment]:
        """Return the moments that answer a query, the best first.

        Raises SettingsError for a query without a word.
        """
        terms = re.findall(r"\w+", query)
        if not terms:
            raise SettingsError(f"search {query!r}: no word in it; say what is done")
        with self._guarded():
            likeness, meant = self._likeness(query)
            rankings = [self._by_words(terms), meant]
            scores: dict[int, float] = {}
            for ranking in rankings:
                for rank, answer in enumerate(self._answers(ranking, likeness), start=1):
                    scores[answer] = scores.get(answer, 0.0) + 1 / (RANK_DAMPING + rank)
            best = sorted(scores, key=lambda answer: (-scores[answer], answer))[:most]
            return [self._moment(answer) for answer in best]

    def _by_words(self, terms: Sequence[str]) -> list[int]:
        """Return the moments that hold any of the words, by BM25; words that very many hold tell
        nothing."""
        held = {}
        for term in dict.fromkeys(term.lower() for term in terms):
            counted = self._database.execute(
                "SELECT count(*) FROM words WHERE words MATCH ?", (f'"{term}"',)
            )
            held[term] = counted.fetchone()[0]
        (total,) = self._database.execute("SELECT coalesce(sum(count), 0) FROM file").fetchone()
        telling = [term for term, count in held.items() if count <= COMMON * total] or [
            min(held, key=held.__getitem__)
        ]
        wanted = " OR ".join(f'"{term}"' for term in telling)
        rows = self._database.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?",
            (wanted, CANDIDATES),
        )
        return [row for (row,) in rows]

    def _likeness(self, query: str) -> tuple[dict[int, float], list[int]]:
        """Return the cosine of the query and each of the moments most like it, and, best first,
        those that it means.

        Those that are less like it than LEAST_LIKENESS, or than made words are, answer nothing: so
        is a query in made words, or about other things.
        """
        if self._embedder is None:
            return {}, []
        ids, vectors, least = self._vectors()
        if not len(ids):
            return {}, []
        scores = vectors @ self._embedder([query])[0]  # (N,)
        count = min(CANDIDATES, len(ids))
        top = np.argpartition(-scores, count - 1)[:count]
        meant = [row for row in top if scores[row] >= max(LEAST_LIKENESS, least[row])]
        meant.sort(key=lambda row: (-scores[row], ids[row]))
        return {int(ids[row]): float(scores[row]) for row in top}, [int(ids[row]) for row in meant]

    def _answers(self, ranking: Sequence[int], likeness: dict[int, float]) -> list[int]:
        """Return the moments to answer with: instead of a sentence its steps, the one most like the
        query first."""
        marks = ", ".join("?" * len(ranking))
        rows = self._database.execute(
            f"SELECT id, steps FROM moment WHERE id IN ({marks})", list(ranking)
        )
        steps = {row: parse_json(named) for row, named in rows}
        best = (
            sorted(steps[row], key=lambda step: -likeness.get(step, -1.0)) or [row]
            for row in ranking
        )
        return list(dict.fromkeys(answer for answers in best for answer in answers))

    def _moment(self, answer: int) -> Moment:
        video, title, name, kind, text, start, end, status, score = self._database.execute(
            "SELECT video, title, name, kind, text, start, end, status, score FROM moment "
            "JOIN file ON file.id = moment.file WHERE moment.id = ?",
            (answer,),
        ).fetchone()
        page = Path(name).with_suffix(".html")
        link = page.as_posix() + ("" if start is None else f"#t={int(start)}")
        link_if_there = link if (self.folder / page).is_file() else None
        return Moment(video, title, kind, text, start, end, status, score, name, link_if_there)

    def _vectors(self) -> MomentRows:
        """Return the ids (N,) of the moments, their vectors (N, D), and how like each made words
        are (N,)."""
        if self._rows is None:
            rows = self._database.execute(
                "SELECT first, count, vectors, least FROM file WHERE count > 0 AND vectors IS NOT NULL ORDER BY first"
            ).fetchall()
            parts = [
                np.frombuffer(stored, dtype=np.float16).reshape(count, -1)
                for _, count, stored, _ in rows
            ]
            ids = [np.arange(first, first + count, dtype=np.int64) for first, count, _, _ in rows]
            least = [np.frombuffer(stored, dtype=np.float32) for _, _, _, stored in rows]
            if not rows:
                return np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
            self._rows = (
                np.concatenate(ids),
                np.concatenate(parts).astype(np.float32),
                np.concatenate(least),
            )
        return self._rows

    def _encoded(self, texts: Sequence[str]) -> tuple[bytes, bytes] | tuple[None, None]:
        """Return the vectors of texts as the index keeps them, and how like each the likest of made
        words are."""
        if not texts or self._embedder is None:
            return None, None
        if self._made is None:
            self._made = self._embedder(made_words(MADE_WORDS, MADE_SEED))  # (M, D)
        vectors = self._embedder(texts)  # (N, D)
        least = (vectors @ self._made.T).max(axis=1)  # (N,)
        return vectors.astype(np.float16).tobytes(), least.astype(np.float32).tobytes()

    def _read(self, name: str, stamp: str) -> None:
        """Take the moments of one record into the index; a file that holds none is noted, and not
        read again."""
        found, rests = list[Moment](), list[list[int]]()
        try:
            record: Record | None = read_record(self.folder / name)
            if self._corrections is not None and self._corrections.revision_of(name):
                record = self._corrections.corrected_record(name)
        except StoreError:
            record = None
        if record is not None:
            found, rests = moments(record, name)
        texts = [moment.text for moment in found]
        encoded = self._encoded(texts)
        with self._database:
            (first,) = self._database.execute(
                "SELECT coalesce(max(id), 0) + 1 FROM moment"
            ).fetchone()
            video = (record.video.id, record.video.title or record.id) if record else (None, None)
            row = (name, stamp, *video, first, len(found), *encoded)
            file = self._database.execute(
                "INSERT INTO file(name, stamp, video, title, first, count, vectors, least) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
            self._database.executemany(
                "INSERT INTO moment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        first + n,
                        file,
                        m.kind,
                        m.text,
                        m.start,
                        m.end,
                        m.status,
                        m.score,
                        json.dumps([first + step for step in rests[n]]),
                    )
                    for n, m in enumerate(found)
                ),
            )

    def _forget(self, names: Sequence[str]) -> None:
        with self._database:
            for name in names:
                file = "(SELECT id FROM file WHERE name = ?)"
                self._database.execute(f"DELETE FROM moment WHERE file = {file}", (name,))
                self._database.execute("DELETE FROM file WHERE name = ?", (name,))

    def _open(self) -> sqlite3.Connection:
        """Open the index; one that is damaged, or of another form, is made anew, for the records
        hold all of it."""
        with self._guarded():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.path, timeout=60.0)
            try:
                form = database.execute("PRAGMA user_version").fetchone()[0]
            except sqlite3.DatabaseError:
                form = -1
            if form != FORM:
                database.close()
                self.path.unlink()
                database = sqlite3.connect(self.path, timeout=60.0)
                database.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {FORM}; COMMIT;")
            return database

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{self.path}: {error}; delete this index, it is made again from the records"
            ) from error


def made_words(count: int, seed: int) -> list[str]:
    """Return queries of one to four words that no language has, of two to four syllables each."""
    rng = np.random.default_rng(seed)

    def word() -> str:
        return "".join(
            rng.choice(list(letters))
            for letters in ("bdfgklmnprstvz", "aeiou") * rng.integers(2, 5)
        )

    return [" ".join(word() for _ in range(rng.integers(1, 5))) for _ in range(count)]


def moments(record: Record, name: str) -> tuple[list[Moment], list[list[int]]]:
    """Return what can be found of a record, its steps first, and for each the places of the steps
    that rest on it."""
    found, rests = list[Moment](), list[list[int]]()

    def add(
        kind: MomentKind,
        text: str,
        span: Span | None,
        verdict: Step | float | None,
        steps: list[int],
    ) -> None:
        status = verdict.status if isinstance(verdict, Step) else None
        score = verdict.score if isinstance(verdict, Step) else verdict
        start, end = (span.start, span.end) if span is not None else (None, None)
        title = record.video.title or record.id
        found.append(
            Moment(record.video.id, title, kind, text, start, end, status, score, name, None)
        )
        rests.append(steps)

    citing: dict[int, list[int]] = {}
    for place, step in enumerate(record.steps):
        shown = (
            step.spans[0] if step.spans and step.status in (None, "shown", "unclear") else step.said
        )
        add("step", step.text, shown, step, [])
        for source in step.sources:
            citing.setdefault(source, []).append(place)
    for number, sentence in enumerate(record.sentences):
        add("sentence", sentence.text, sentence.span, sentence.shown, citing.get(number, []))
    for place, step in enumerate(record.steps):
        for remark in step.seen:
            if text := remark.partition(ON_SCREEN)[2]:
                add("screen", text, None, None, [place])
    return found, rests


def open_index(folder: Path, corrections: Corrections | None = None) -> SearchIndex:
    """Return the index of a folder, by meaning where the weights of MiniLM are there, else by
    words."""
    try:
        embed(["whether the weights are there"])
    except ModelError:
        return SearchIndex(folder, None, corrections)
    return SearchIndex(folder, corrections=corrections)


def as_json(found: Sequence[Moment]) -> str:
    """Return moments as a JSON list."""
    return json.dumps([asdict(moment) for moment in found], ensure_ascii=False, indent=2)


def index_path(folder: Path) -> Path:
    """Return where the index of a folder lies: in it, or in the cache where nothing can be written
    into it."""
    if os.access(folder, os.W_OK):
        return folder / INDEX
    digest = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]
    return cache_folder() / "search" / f"{digest}.sqlite"
