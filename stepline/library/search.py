"""Search over a folder of records: steps, sentences and text on screen, answered by moments of
videos.

There are two rankings, by words (BM25, SQLite's FTS5) and by meaning (cosine of MiniLM vectors),
joined by their ranks. Source: reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009). A
sentence, or a text on screen, answers by the step that rests on it. The index is a file next to the
records. An update reads only the records that changed. Letters: N moments, D width of a vector.
"""

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from stepline.errors import ModelError, SettingsError, StoreError
from stepline.files.locks import lock_output
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.database import (
    check_database_files,
    database_definitions,
    definitions_of,
    distrust,
    is_full_disk,
)
from stepline.library.index_file import INDEX_FORM, INDEX_TABLES, index_path
from stepline.library.made_queries import MADE_QUERY_COUNT, MADE_QUERY_SEED, made_words
from stepline.library.moments import Moment, moments
from stepline.library.record_files import RecordFolder
from stepline.progress import Progress
from stepline.records import Matrix
from stepline.storage import read_record
from stepline.text import embed

Embedder: TypeAlias = Callable[[Sequence[str]], Matrix]  # texts to unit rows (N, D)
FileRow: TypeAlias = Sequence[int]  # of the index: id, first moment, number of moments
# of texts, as they are stored: vectors, and the likeness to made words. None without an embedder
VectorBytes: TypeAlias = tuple[bytes, bytes] | tuple[None, None]
# ids (N,), vectors (N, D), and the likeness of each to made words (N,)
MomentRows: TypeAlias = tuple[npt.NDArray[np.int64], Matrix, npt.NDArray[np.float32]]

MAX_WAIT_SECONDS = 60.0  # for another process that holds the index
RANK_DAMPING = 60  # k of reciprocal rank fusion, as in the paper
# share of the moments with a word, "the" and the like, from which the word is not searched
MAX_WORD_SHARE = 0.25
MAX_CANDIDATES = 200  # moments of each ranking that are joined
# cosine of a query and a moment from which that answers by its meaning (lab/search.py)
LEAST_LIKENESS = 0.3

StepIds = TypeAdapter(list[int])  # of the moments that a sentence answers by


@dataclass(frozen=True)
class IndexUpdate:
    """What an update did, in files: those that it read, those that are gone, and those that hold no
    record."""

    read: int
    gone: int
    other: int


@dataclass(frozen=True)
class StoredVectors:
    """The texts of a file's moments, and what `_encode` made of them."""

    texts: list[str]
    vectors: bytes
    least: bytes


class SearchIndex:
    """The index of a folder of records, which one thread uses.

    embedder: None searches by words alone. corrections: the library whose corrected records are
    searched instead. Raises StoreError where there is no folder, or the index cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        embedder: Embedder | None = embed,
        corrections: CorrectedLibrary | None = None,
    ) -> None:
        if not folder.is_dir():
            raise StoreError(
                f"{folder}: no such folder; give the output folder of `stepline steps`"
            )
        self.folder = folder
        self.path = index_path(folder)
        self._embedder = embedder
        self._corrections = corrections
        # the folders that links of the folder may lead to
        allowed = () if corrections is None else corrections.allowed
        self._record_folder = RecordFolder(folder, allowed)
        self._database = self._open()
        self._moment_rows: MomentRows | None = None
        self._made_queries: Matrix | None = None

    def close(self) -> None:
        """Close the file of the index."""
        self._database.close()

    @property
    def meaning(self) -> bool:
        """Whether moments are found by their meaning too, and not by their words alone."""
        return self._embedder is not None

    def update(self, progress: Progress | None = None) -> IndexUpdate:
        """Read the records that are new or have changed, and forget those that are gone."""
        with lock_output(self.path.with_suffix(".lock"), self.folder, wait=True), self._guarded():
            stamps = self._stamps()
            # Files without vectors are read again once there is an embedder.
            current = {}
            stale = []
            files = self._rows("SELECT name, stamp, vectors IS NULL AND count > 0 FROM file")
            for name, stamp, lacks_vectors in files:
                if stamps.get(name) == stamp and not (lacks_vectors and self.meaning):
                    current[name] = stamp
                else:
                    stale.append(name)
            changed = [name for name in stamps if name not in current]
            # A file that is gone has no stamp, and is not read.
            gone = set(stale) - set(changed)
            for name in gone:
                self._remove(name)
            for number, name in enumerate(changed, start=1):
                stored = self._stored_vectors(name)
                self._remove(name)
                self._add(name, stamps[name], stored)
                if progress is not None:
                    progress("indexing", float(number), float(len(changed)))
            ((other,),) = self._rows("SELECT count(*) FROM file WHERE video IS NULL")
        if stale or changed:
            self._moment_rows = None
        return IndexUpdate(len(changed), len(gone), other)

    def _stamps(self) -> dict[str, str]:
        """Return for each JSON file of the folder a text that changes with it and its
        corrections."""
        revisions: dict[str, int] = {}
        if self._corrections is not None:
            revisions = self._corrections.revisions()
        stamps = {}
        for name, (modified, size) in self._record_folder.files().items():
            stamps[name] = f"{modified} {size}"
            if not revisions:
                continue
            revision = revisions.get(video_id(name))
            if revision:
                stamps[name] += f" {revision}"
        return stamps

    def search(
        self, query: str, most: int = 5, names: Collection[str] | None = None
    ) -> list[Moment]:
        """Return the moments that answer a query, the best first.

        names: of the files whose moments may answer. None for all. Raises SettingsError for a query
        without a word.
        """
        terms = query_terms(query)
        with self._guarded():
            # the files whose moments may answer
            files = None
            if names is not None:
                rows = self._rows("SELECT name, id, first, count FROM file")
                files = [row for name, *row in rows if name in names]
            likeness, by_meaning = self._by_meaning(query, files)

            # reciprocal rank fusion of both rankings
            scores: dict[int, float] = {}
            for ranking in (self._by_words(terms, files), by_meaning):
                for rank, answer in enumerate(self._answers(ranking, likeness), start=1):
                    scores[answer] = scores.get(answer, 0.0) + 1 / (RANK_DAMPING + rank)
            best = sorted(scores, key=lambda answer: (-scores[answer], answer))
            return [self._moment(answer) for answer in best[:most]]

    def record_likeness(self, query: str, count: int) -> dict[str, float]:
        """Return how like a query the records are that have moments which answer it by meaning.

        It is the mean cosine of a record's `count` most similar moments. Raises SettingsError for a
        query without a word.
        """
        # Only to raise where the query has no word.
        query_terms(query)
        if self._embedder is None:
            return {}
        vector = self._embedder([query])[0]  # (D,)
        with self._guarded():
            ids, vectors, least = self._vectors()
            if not len(ids):
                return {}
            rows = self._rows("SELECT moment.id, name FROM moment JOIN file ON file.id = file")
        files = dict(rows)
        cosines = vectors @ vector  # (N,)
        # All moments of a record count, not only those that answer.
        cosines_of: dict[str, list[float]] = {}
        for id, cosine in zip(ids.tolist(), cosines.tolist(), strict=True):
            cosines_of.setdefault(files[id], []).append(cosine)
        is_answer = cosines >= np.maximum(least, LEAST_LIKENESS)  # (N,)
        answer_ids = ids[is_answer].tolist()
        answers = {files[id] for id in answer_ids}
        likeness = {}
        # Its most similar moments speak for a record.
        for name in answers:
            best = sorted(cosines_of[name], reverse=True)[:count]
            likeness[name] = sum(best) / len(best)
        return likeness

    def titles(self) -> dict[str, str]:
        """Return the titles of the videos by the records' names."""
        with self._guarded():
            return dict(self._rows("SELECT name, title FROM file WHERE video IS NOT NULL"))

    def _by_words(self, terms: Sequence[str], files: Sequence[FileRow] | None) -> list[int]:
        """Return the moments with any of the words, by BM25. Very common words are left out."""
        counts = {}
        query = "SELECT count(*) FROM words WHERE words MATCH ?"
        for term in dict.fromkeys(term.lower() for term in terms):
            # A quoted term is a word to FTS5, never one of its operators.
            ((counts[term],),) = self._rows(query, f'"{term}"')
        ((total,),) = self._rows("SELECT coalesce(sum(count), 0) FROM file")

        # words that are nearly everywhere find nothing
        rare = [term for term, count in counts.items() if count <= MAX_WORD_SHARE * total]
        # Each word is common, so the least common one is searched.
        if not rare:
            rare = [min(counts, key=counts.__getitem__)]

        # any of the others, in the files that may answer
        condition = "words MATCH ?"
        if files is not None:
            ids = ", ".join(str(int(id)) for id, _, _ in files)
            condition += f" AND rowid IN (SELECT id FROM moment WHERE file IN ({ids}))"
        query = f"SELECT rowid FROM words WHERE {condition} ORDER BY rank LIMIT ?"
        pattern = " OR ".join(f'"{term}"' for term in rare)
        rows = self._rows(query, pattern, MAX_CANDIDATES)
        return [row for (row,) in rows]

    def _by_meaning(
        self, query: str, files: Sequence[FileRow] | None
    ) -> tuple[dict[int, float], list[int]]:
        """Return the cosine of the query with each moment that is most like it, and, best first,
        the moments that mean it.

        A moment must be more like it than `LEAST_LIKENESS` and than made words are. So queries in
        made words, or about other things, have no answer.
        """
        if self._embedder is None:
            return {}, []
        ids, vectors, least = self._vectors()
        if files is not None:
            places = _rows_of(ids, files)
            ids = ids[places]
            vectors = vectors[places]
            least = least[places]
        if not len(ids):
            return {}, []

        # the moments that are most like the query
        vector = self._embedder([query])[0]  # (D,)
        scores = vectors @ vector  # (N,)
        count = min(MAX_CANDIDATES, len(ids))
        top = np.argpartition(-scores, count - 1)[:count]
        likeness = {}
        answers = []
        for row in top:
            id = int(ids[row])
            likeness[id] = float(scores[row])
            if scores[row] >= max(LEAST_LIKENESS, least[row]):
                answers.append(row)
        answers.sort(key=lambda row: (-scores[row], ids[row]))
        return likeness, [int(ids[row]) for row in answers]

    def _answers(self, ranking: Sequence[int], likeness: dict[int, float]) -> list[int]:
        """Return the moments to answer with: instead of a sentence its steps, the one most like the
        query first."""
        marks = ", ".join("?" * len(ranking))
        rows = self._rows(f"SELECT id, steps FROM moment WHERE id IN ({marks})", *ranking)
        steps = {row: _step_ids(self.path, numbers) for row, numbers in rows}
        answers: list[int] = []
        for row in ranking:
            ids = sorted(steps[row], key=lambda step: -likeness.get(step, -1.0))
            answers += ids or [row]
        return list(dict.fromkeys(answers))

    def _moment(self, answer: int) -> Moment:
        (row,) = self._rows(
            "SELECT video, title, kind, text, start, end, status, basis, score, name, NULL "
            "FROM moment JOIN file ON file.id = moment.file WHERE moment.id = ?",
            answer,
        )
        # The page is looked for now, since it may come or go without the record.
        moment = Moment(*row)
        page = Path(moment.file).with_suffix(".html")
        if not (self.folder / page).is_file():
            return moment
        link = page.as_posix()
        if moment.start is not None:
            link += f"#t={int(moment.start)}"
        return replace(moment, link=link)

    def _vectors(self) -> MomentRows:
        """Return the vectors of all moments."""
        if self._moment_rows is None:
            ids = [np.zeros(0, np.int64)]
            least = [np.zeros(0, np.float32)]
            vectors = []
            files = self._rows(
                "SELECT first, count, vectors, least FROM file "
                "WHERE count > 0 AND vectors IS NOT NULL ORDER BY first"
            )
            if not files:
                return ids[0], np.zeros((0, 0), np.float32), least[0]
            try:
                # One matrix of all files, so that a search is one product.
                for first, count, vector_bytes, least_bytes in files:
                    rows = np.frombuffer(vector_bytes, np.float16)
                    vectors.append(rows.reshape(count, -1))
                    least.append(np.frombuffer(least_bytes, np.float32).reshape(count))
                    ids.append(np.arange(first, first + count, dtype=np.int64))
                matrix = np.concatenate(vectors).astype(np.float32)
            except (ValueError, TypeError) as error:
                raise _damage(self.path, "invalid vectors") from error
            self._moment_rows = (np.concatenate(ids), matrix, np.concatenate(least))
        return self._moment_rows

    def _encode(self, texts: Sequence[str]) -> VectorBytes:
        """Return the stored vectors of texts, and the likeness of each to the made query that is
        most like it."""
        if not texts or self._embedder is None:
            return None, None
        if self._made_queries is None:
            # What a text answers by chance, by queries that mean nothing.
            made_queries = made_words(MADE_QUERY_COUNT, MADE_QUERY_SEED)
            self._made_queries = self._embedder(made_queries)  # (M, D)
        vectors = self._embedder(texts)  # (N, D)
        likeness = vectors @ self._made_queries.T  # (N, M)
        least = likeness.max(axis=1).astype(np.float32)  # (N,)
        return vectors.astype(np.float16).tobytes(), least.tobytes()

    def _add(self, name: str, stamp: str, stored: StoredVectors | None) -> None:
        """Take the moments of a record into the index. A file without a record is noted, and not
        read again. stored: the vectors of the file's moments before."""
        rows: list[tuple[Moment, list[int]]] = []
        video: str | None = None
        title: str | None = None
        with contextlib.suppress(StoreError):
            record = read_record(self.folder / name)
            if self._corrections is not None and self._corrections.revision(video_id(name)):
                record = self._corrections.corrected_record(name)
            rows = moments(record, name)
            video = record.video.id
            title = record.video.title or record.id

        # vectors of the same texts are taken over
        texts = [moment.text for moment, _ in rows]
        if stored is not None and stored.texts == texts:
            encoded: VectorBytes = (stored.vectors, stored.least)
        else:
            encoded = self._encode(texts)

        # the rows, all or none
        with self._database:
            ((first,),) = self._rows("SELECT coalesce(max(id), 0) + 1 FROM moment")
            file = self._database.execute(
                "INSERT INTO file(name, stamp, video, title, first, count, vectors, least) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (name, stamp, video, title, first, len(rows), *encoded),
            ).lastrowid
            for id, (moment, steps) in enumerate(rows, start=first):
                times = (moment.start, moment.end)
                numbers = json.dumps([first + step for step in steps])
                self._database.execute(
                    "INSERT INTO moment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        id,
                        file,
                        moment.kind,
                        moment.text,
                        *times,
                        moment.status,
                        moment.basis,
                        moment.score,
                        numbers,
                    ),
                )

    def _stored_vectors(self, name: str) -> StoredVectors | None:
        """Return the vectors of a file, so that a new title or tag encodes no text again."""
        query = "SELECT id, vectors, least FROM file WHERE name = ? AND vectors IS NOT NULL"
        rows = self._rows(query, name)
        if not rows:
            return None
        ((file, vectors, least),) = rows
        texts = self._rows("SELECT text FROM moment WHERE file = ? ORDER BY id", file)
        return StoredVectors([text for (text,) in texts], vectors, least)

    def _remove(self, name: str) -> None:
        with self._database:
            file = "(SELECT id FROM file WHERE name = ?)"
            self._database.execute(f"DELETE FROM moment WHERE file = {file}", (name,))
            self._database.execute("DELETE FROM file WHERE name = ?", (name,))

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._database.execute(query, values).fetchall()

    def _open(self) -> sqlite3.Connection:
        """Open the index. A damaged one, or one of another form, is made again from the records."""
        with self._guarded():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            check_database_files(self.path)
            database = sqlite3.connect(self.path, timeout=MAX_WAIT_SECONDS)
            try:
                distrust(database)
                form = database.execute("PRAGMA user_version").fetchone()[0]
                # A stranger's index may define what runs as it is read.
                if database_definitions(database) != definitions_of(INDEX_TABLES):
                    form = None
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorname not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                    raise
                form = None
            if form != INDEX_FORM:
                database.close()
                self.path.unlink()
                database = sqlite3.connect(self.path, timeout=MAX_WAIT_SECONDS)
                version = f"PRAGMA user_version = {INDEX_FORM}"
                database.executescript(f"BEGIN; {INDEX_TABLES} {version}; COMMIT;")
            return database

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            cure = "delete this index, it is made again from the records"
            if is_full_disk(error):
                cure = "free some space"
            raise StoreError(f"{self.path}: {error}; {cure}") from error


def _damage(path: Path, reason: str) -> StoreError:
    cure = "delete this index, it is made again from the records"
    return StoreError(f"{path}: it holds {reason}; {cure}")


def _step_ids(path: Path, numbers: str) -> list[int]:
    """Return the ids of steps that an index stores as JSON."""
    try:
        return StepIds.validate_json(numbers, strict=True)
    except ValidationError as error:
        raise _damage(path, "invalid steps") from error


def _rows_of(ids: npt.NDArray[np.int64], files: Sequence[FileRow]) -> npt.NDArray[np.int64]:
    """Return the places of the moments of some files among sorted ids."""
    # Moments of a file have ids in a row.
    places = [np.zeros(0, np.int64)]
    for _, first, count in files:
        start, end = np.searchsorted(ids, (first, first + count))
        places.append(np.arange(start, end, dtype=np.int64))
    return np.sort(np.concatenate(places))


def query_terms(query: str) -> list[str]:
    """Return the words of a query. Raises SettingsError where it has none."""
    terms = re.findall(r"\w+", query)
    if not terms:
        raise SettingsError(f"search {query!r}: no word in it; say what is done")
    return terms


def open_index(folder: Path, corrections: CorrectedLibrary | None = None) -> SearchIndex:
    """Return the index of a folder, by meaning where the weights of MiniLM are there, else by
    words."""
    embedder: Embedder | None = embed
    try:
        embed(["whether the weights are there"])
    except ModelError:
        embedder = None
    return SearchIndex(folder, embedder, corrections)
