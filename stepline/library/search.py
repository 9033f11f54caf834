"""Search over a folder of records: steps, sentences and text on screen, answered by moments of
videos.

There are two rankings, by words (BM25, SQLite's FTS5) and by meaning (cosine of MiniLM vectors),
joined by their ranks. Source: reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009). A
sentence, or a text on screen, answers by the step that rests on it. The index is a file next to the
records. An update reads only the records that changed. Letters: N moments, D width of a vector.
"""

import contextlib
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from stepline.errors import ModelError, SettingsError, StoreError
from stepline.files.atomic_files import cache_folder
from stepline.files.locks import lock_output
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.database import (
    check_database_files,
    is_full_disk,
    limit_row_size,
    schema_of_database,
    schema_of_statements,
)
from stepline.library.record_files import record_files
from stepline.outputs.text import shown_span
from stepline.pipeline.placing import ON_SCREEN
from stepline.progress import Progress
from stepline.records import Basis, Matrix, Record, Span, Status
from stepline.storage import read_record
from stepline.text import embed

Embedder: TypeAlias = Callable[[Sequence[str]], Matrix]  # texts to unit rows (N, D)
FileRow: TypeAlias = Sequence[int]  # of the index: id, first moment, number of moments
# of texts, as they are stored: vectors, and the similarity to null queries. None without an embedder
VectorBytes: TypeAlias = tuple[bytes, bytes] | tuple[None, None]
# ids (N,), vectors (N, D), and the similarity of each to null queries (N,)
MomentRows: TypeAlias = tuple[npt.NDArray[np.int64], Matrix, npt.NDArray[np.float32]]

MAX_WAIT_SECONDS = 60.0  # for another process that holds the index
RANK_DAMPING = 60  # k of reciprocal rank fusion, as in the paper
# share of the moments with a word, "the" and the like, from which the word is not searched
MAX_WORD_SHARE = 0.25
MAX_CANDIDATES = 200  # moments of each ranking that are joined
# cosine of a query and a moment from which that answers by its meaning (lab/search.py)
MIN_SIMILARITY = 0.3

# queries of words that no language has: how similar a text is to them says what it answers by chance
NULL_QUERY_COUNT = 64
NULL_QUERY_SEED = 99

INDEX_FILE = ".stepline-search.sqlite"  # next to the records
INDEX_VERSION = 3  # version of the tables below. An index of another one is made again

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

StepIds = TypeAdapter(list[int])  # of the moments that a sentence answers by


MomentKind: TypeAlias = Literal["step", "sentence", "screen"]


@dataclass(frozen=True)
class Moment:
    """A step, sentence or text on screen of one video.

    Attributes:
        video: id of the video.
        title: of the video.
        start: in seconds, None for a step that was not found.
        end: in seconds.
        status: verdict on a step, None for other kinds.
        basis: whether words or images decided the verdict.
        score: P(shown) of a step or sentence.
        file: path of the record, below the library's folder.
        link: path of the video's page at that second, None without a page.
    """

    video: str
    title: str
    kind: MomentKind
    text: str
    start: float | None
    end: float | None
    status: Status | None
    basis: Basis | None
    score: float | None
    file: str
    link: str | None


def list_moments(record: Record, name: str) -> list[tuple[Moment, list[int]]]:
    """Return the moments of a record, steps first, each with the indices of the steps that cite it.

    name: path of the record, below the library's folder.
    """
    rows: list[tuple[Moment, list[int]]] = []
    title = record.video.title or record.id

    def add(
        kind: MomentKind,
        text: str,
        span: Span | None,
        score: float | None,
        steps: list[int],
        verdict: tuple[Status | None, Basis | None] = (None, None),
    ) -> None:
        moment = Moment(
            record.video.id,
            title,
            kind,
            text,
            None if span is None else span.start,
            None if span is None else span.end,
            *verdict,
            score,
            name,
            None,
        )
        rows.append((moment, steps))

    # the steps, and which sentences they rest on
    citing_step_numbers: dict[int, list[int]] = {}
    for number, step in enumerate(record.steps):
        span = shown_span(step) or step.said
        add("step", step.text, span, step.score, [], (step.status, step.basis))
        for source in step.sources:
            citing_step_numbers.setdefault(source, []).append(number)

    # the sentences
    for number, sentence in enumerate(record.sentences):
        steps = citing_step_numbers.get(number, [])
        add("sentence", sentence.text, sentence.span, sentence.shown, steps)
    # Text on screen, which answers by the step whose picture holds it.
    for number, step in enumerate(record.steps):
        for remark in step.seen:
            text = remark.partition(ON_SCREEN)[2]
            if text:
                add("screen", text, None, None, [number])
    return rows


def moments_as_json(answers: Sequence[Moment]) -> str:
    """Return moments as a JSON list."""
    return json.dumps([asdict(moment) for moment in answers], ensure_ascii=False, indent=2)


@dataclass(frozen=True)
class IndexUpdate:
    """Numbers of files after an update of the index.

    Attributes:
        read: new or changed files that were indexed.
        removed: deleted files that were taken out of the index.
        without_record: JSON files of the folder that hold no record.
    """

    read: int
    removed: int
    without_record: int


class SearchIndex:
    """A full-text and vector index of a folder of records, for one thread.

    Args:
        folder: of the records.
        embedder: texts to unit vectors (N, D). None searches by words only.
        corrections: the library whose corrected records are indexed; None for the files as they are.
    Raises StoreError where there is no folder, or the index cannot be written.
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
        self._allowed = allowed
        self._database = self._open()
        self._moment_rows: MomentRows | None = None
        self._null_queries: Matrix | None = None

    def close(self) -> None:
        """Close the file of the index."""
        self._database.close()

    @property
    def meaning(self) -> bool:
        """Whether the index has vectors, so that search also uses cosine similarity."""
        return self._embedder is not None

    def update(self, progress: Progress | None = None) -> IndexUpdate:
        """Index new and changed records, and remove deleted ones from the index."""
        with (
            lock_output(self.path.with_suffix(".lock"), self.folder, wait=True),
            self._locked_connection(),
        ):
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
                self._remove(name)
                self._add(name, stamps[name])
                if progress is not None:
                    progress("indexing", float(number), float(len(changed)))
            ((other,),) = self._rows("SELECT count(*) FROM file WHERE video IS NULL")
        if stale or changed:
            self._moment_rows = None
        return IndexUpdate(len(changed), len(gone), other)

    def _stamps(self) -> dict[str, str]:
        """Return for each JSON file of the folder a text that changes with it and its
        corrections."""
        revisions = {} if self._corrections is None else self._corrections.revisions()
        stamps = {}
        for name, (modified, size) in record_files(self.folder, self._allowed).items():
            stamps[name] = f"{modified} {size}"
            revision = revisions.get(video_id(name)) if revisions else None
            if revision:
                stamps[name] += f" {revision}"
        return stamps

    def search(
        self, query: str, most: int = 5, names: Collection[str] | None = None
    ) -> list[Moment]:
        """Return the moments that answer a query, the best first.

        Args:
            query: words, or a sentence.
            most: number of moments at most.
            names: of the record files to search, None for all.
        Raises SettingsError for a query without a word.
        """
        terms = query_terms(query)
        with self._locked_connection():
            # the files whose moments may answer
            files = None
            if names is not None:
                rows = self._rows("SELECT name, id, first, count FROM file")
                files = [row for name, *row in rows if name in names]
            similarity, by_meaning = self._search_vectors(query, files)

            # reciprocal rank fusion of both rankings
            scores: dict[int, float] = {}
            for ranking in (self._search_words(terms, files), by_meaning):
                for rank, answer in enumerate(
                    self._moments_to_answer_with(ranking, similarity), start=1
                ):
                    scores[answer] = scores.get(answer, 0.0) + 1 / (RANK_DAMPING + rank)
            best = sorted(scores, key=lambda answer: (-scores[answer], answer))
            return [self._load_moment(answer) for answer in best[:most]]

    def _search_words(self, terms: Sequence[str], files: Sequence[FileRow] | None) -> list[int]:
        """Return the moments with any query word, ranked by BM25. Very common words are ignored."""
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

    def _search_vectors(
        self, query: str, files: Sequence[FileRow] | None
    ) -> tuple[dict[int, float], list[int]]:
        """Return the cosine of the query with each moment that is most like it, and, best first,
        the moments that mean it.

        A moment must be more similar to it than `MIN_SIMILARITY` and than null queries are. So
        queries in invented words, or about other things, have no answer.
        """
        if self._embedder is None:
            return {}, []
        ids, vectors, min_similarity = self._vectors()
        if files is not None:
            places = _rows_of_files(ids, files)
            ids = ids[places]
            vectors = vectors[places]
            min_similarity = min_similarity[places]
        if not len(ids):
            return {}, []

        # the moments that are most like the query
        vector = self._embedder([query])[0]  # (D,)
        scores = vectors @ vector  # (N,)
        count = min(MAX_CANDIDATES, len(ids))
        top = np.argpartition(-scores, count - 1)[:count]
        similarity = {}
        answers = []
        for row in top:
            similarity[int(ids[row])] = float(scores[row])
            if scores[row] >= max(MIN_SIMILARITY, min_similarity[row]):
                answers.append(row)
        answers.sort(key=lambda row: (-scores[row], ids[row]))
        return similarity, [int(ids[row]) for row in answers]

    def _moments_to_answer_with(
        self, ranking: Sequence[int], similarity: dict[int, float]
    ) -> list[int]:
        """Return the moments to answer with: instead of a sentence its steps, the one most similar
        to the query first."""
        placeholders = ", ".join("?" * len(ranking))
        rows = dict(
            self._rows(f"SELECT id, steps FROM moment WHERE id IN ({placeholders})", *ranking)
        )
        answers: list[int] = []
        for row in ranking:
            try:
                ids = StepIds.validate_json(rows[row], strict=True)
            except ValidationError as error:
                raise _damaged_index_error(self.path, "invalid steps") from error
            answers += sorted(ids, key=lambda step: -similarity.get(step, -1.0)) or [row]
        return list(dict.fromkeys(answers))

    def _load_moment(self, answer: int) -> Moment:
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
            min_similarity = [np.zeros(0, np.float32)]
            vectors = []
            files = self._rows(
                "SELECT first, count, vectors, least FROM file "
                "WHERE count > 0 AND vectors IS NOT NULL ORDER BY first"
            )
            if not files:
                return ids[0], np.zeros((0, 0), np.float32), min_similarity[0]
            try:
                # One matrix of all files, so that a search is one product.
                for first, count, vector_bytes, min_similarity_bytes in files:
                    rows = np.frombuffer(vector_bytes, np.float16)
                    vectors.append(rows.reshape(count, -1))
                    min_similarity.append(
                        np.frombuffer(min_similarity_bytes, np.float32).reshape(count)
                    )
                    ids.append(np.arange(first, first + count, dtype=np.int64))
                matrix = np.concatenate(vectors).astype(np.float32)
            except (ValueError, TypeError) as error:
                raise _damaged_index_error(self.path, "invalid vectors") from error
            self._moment_rows = (np.concatenate(ids), matrix, np.concatenate(min_similarity))
        return self._moment_rows

    def _encode(self, texts: Sequence[str]) -> VectorBytes:
        """Return the stored vectors of texts, and the similarity of each to the null query that is
        most similar to it."""
        if not texts or self._embedder is None:
            return None, None
        if self._null_queries is None:
            queries = random_queries(NULL_QUERY_COUNT, NULL_QUERY_SEED)
            self._null_queries = self._embedder(queries)  # (M, D)
        vectors = self._embedder(texts)  # (N, D)
        min_similarity = (vectors @ self._null_queries.T).max(axis=1).astype(np.float32)  # (N,)
        return vectors.astype(np.float16).tobytes(), min_similarity.tobytes()

    def _add(self, name: str, stamp: str) -> None:
        """Index the moments of a record. A file without a record is noted, and not read again.

        name: of the file, below the folder. stamp: of the file.
        """
        rows: list[tuple[Moment, list[int]]] = []
        video: str | None = None
        title: str | None = None
        with contextlib.suppress(StoreError):
            record = read_record(self.folder / name)
            if self._corrections is not None and self._corrections.revision(video_id(name)):
                record = self._corrections.corrected_record(name)
            rows = list_moments(record, name)
            video = record.video.id
            title = record.video.title or record.id
        encoded = self._encode([moment.text for moment, _ in rows])
        # the rows, all or none
        with self._database:
            ((first,),) = self._rows("SELECT coalesce(max(id), 0) + 1 FROM moment")
            file = self._database.execute(
                "INSERT INTO file(name, stamp, video, title, first, count, vectors, least) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (name, stamp, video, title, first, len(rows), *encoded),
            ).lastrowid
            for id, (moment, steps) in enumerate(rows, start=first):
                numbers = json.dumps([first + step for step in steps])
                verdict = (moment.status, moment.basis, moment.score)
                self._database.execute(
                    "INSERT INTO moment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        id,
                        file,
                        moment.kind,
                        moment.text,
                        moment.start,
                        moment.end,
                        *verdict,
                        numbers,
                    ),
                )

    def _remove(self, name: str) -> None:
        with self._database:
            file = "(SELECT id FROM file WHERE name = ?)"
            self._database.execute(f"DELETE FROM moment WHERE file = {file}", (name,))
            self._database.execute("DELETE FROM file WHERE name = ?", (name,))

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._database.execute(query, values).fetchall()

    def _open(self) -> sqlite3.Connection:
        """Open the index. A damaged one, or one of another form, is made again from the records."""
        with self._locked_connection():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            check_database_files(self.path)
            database = sqlite3.connect(self.path, timeout=MAX_WAIT_SECONDS)
            try:
                limit_row_size(database)
                form = database.execute("PRAGMA user_version").fetchone()[0]
                # A stranger's index may define what runs as it is read.
                if schema_of_database(database) != schema_of_statements(INDEX_TABLES):
                    form = None
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorname not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                    raise
                form = None
            if form != INDEX_VERSION:
                database.close()
                self.path.unlink()
                database = sqlite3.connect(self.path, timeout=MAX_WAIT_SECONDS)
                version = f"PRAGMA user_version = {INDEX_VERSION}"
                database.executescript(f"BEGIN; {INDEX_TABLES} {version}; COMMIT;")
            return database

    @contextlib.contextmanager
    def _locked_connection(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            cure = "delete this index, it is made again from the records"
            if is_full_disk(error):
                cure = "free some space"
            raise StoreError(f"{self.path}: {error}; {cure}") from error


def _damaged_index_error(path: Path, reason: str) -> StoreError:
    cure = "delete this index, it is made again from the records"
    return StoreError(f"{path}: it holds {reason}; {cure}")


def _rows_of_files(ids: npt.NDArray[np.int64], files: Sequence[FileRow]) -> npt.NDArray[np.int64]:
    """Return the places of the moments of some files among sorted ids."""
    # Moments of a file have ids in a row.
    places = [np.zeros(0, np.int64)]
    for _, first, count in files:
        start, end = np.searchsorted(ids, (first, first + count))
        places.append(np.arange(start, end, dtype=np.int64))
    return np.sort(np.concatenate(places))


def index_path(folder: Path) -> Path:
    """Return the path of a folder's index: in the folder, or in the cache where the folder cannot
    be written."""
    if os.access(folder, os.W_OK):
        return folder / INDEX_FILE
    # A name by the real path, so that every way to the folder leads to one index.
    real_path = os.path.realpath(folder)
    digest = hashlib.sha256(os.fsencode(real_path)).hexdigest()
    return cache_folder() / "search" / f"{digest[:16]}.sqlite"


def random_queries(count: int, seed: int) -> list[str]:
    """Return random nonsense queries of one to four words, two to four syllables each."""
    rng = np.random.default_rng(seed)
    queries = []
    for _ in range(count):
        words = []
        for _ in range(rng.integers(1, 5)):
            # A consonant and a vowel per syllable.
            choices = ("bdfgklmnprstvz", "aeiou") * rng.integers(2, 5)
            words.append("".join(rng.choice(list(letters)) for letters in choices))
        queries.append(" ".join(words))
    return queries


def query_terms(query: str) -> list[str]:
    """Return the words of a query. Raises SettingsError for a query without words."""
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
