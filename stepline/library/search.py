"""Search of a folder of records: a query gives the moments of videos that answer it.

A moment is a step, a sentence or a text on screen. There are two rankings, by words (BM25, SQLite's
FTS5) and by meaning (cosine of MiniLM vectors), which are joined by reciprocal rank fusion (Cormack,
Clarke and Buettcher, SIGIR 2009). Answers that have the whole query as a phrase come first. Where a
sentence or a text on screen matches, the answer is the step that cites it. The index is a file next
to the records. An update reads only the records that changed. Letters: N moments, D width of a
vector.
"""

import contextlib
import hashlib
import json
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from stepline.errors import ModelError, SettingsError, StoreError
from stepline.files.atomic_files import cache_folder
from stepline.files.locks import lock_output
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.database import (
    check_database_files,
    limit_row_size,
    schema_of_database,
    schema_of_statements,
    sqlite_errors,
)
from stepline.library.record_files import is_existing_file, record_files
from stepline.outputs.text import shown_span
from stepline.pipeline.placing import ON_SCREEN_PREFIX
from stepline.progress import Progress
from stepline.records import Basis, Matrix, Probability, Record, Seconds, Span, Status
from stepline.storage import DamagedRecordError, read_record
from stepline.text import embed
from stepline.writing.quantities import STOP_WORDS

Embedder = Callable[[Sequence[str]], Matrix]  # texts to unit rows (N, D)
# a row of the table `file`: id, id of its first moment, number of its moments
FileRow = Sequence[int]
# stored vectors of texts, and their similarity to null queries. None without an embedder
VectorBytes = tuple[bytes, bytes] | tuple[None, None]
# ids (N,), vectors (N, D), and the similarity of each to null queries (N,)
MomentRows = tuple[npt.NDArray[np.int64], Matrix, npt.NDArray[np.float32]]

LOCK_TIMEOUT_SECONDS = 60.0  # while another process locks the index
RANK_DAMPING = 60  # k of reciprocal rank fusion, as in the paper
# share of the moments with a word, "the" and the like, from which the word is not searched
MAX_WORD_SHARE = 0.25
MAX_CANDIDATES = 200  # moments of each ranking that are joined
# cosine of a query and a moment from which that answers by its meaning (lab/search.py)
MIN_SIMILARITY = 0.3

# queries of words that no language has: how similar a text is to them says what it answers by chance
NULL_QUERY_COUNT = 256
NULL_QUERY_SEED = 99

INDEX_FILE = ".stepline-search.sqlite"  # next to the records
INDEX_VERSION = 7  # version of the tables below. An index of another one is made again

# Letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese, which have no spaces between words.
SPACELESS_LETTER = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)

# Words are indexed by triggers, so that no moment is without them.
INDEX_TABLES = """
CREATE TABLE file (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, stamp TEXT NOT NULL, video TEXT, title TEXT,
    first INTEGER NOT NULL, count INTEGER NOT NULL, vectors BLOB, least BLOB, damage TEXT, digest TEXT);
CREATE TABLE moment (
    id INTEGER PRIMARY KEY, file INTEGER NOT NULL REFERENCES file(id), kind TEXT NOT NULL, text TEXT NOT NULL,
    start REAL, end REAL, score REAL, status TEXT, basis TEXT, doubt TEXT, steps TEXT NOT NULL, spaced TEXT NOT NULL);
CREATE INDEX moment_file ON moment(file);
CREATE VIRTUAL TABLE words USING fts5(
    spaced, content='moment', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2');
CREATE TRIGGER moment_in AFTER INSERT ON moment BEGIN
    INSERT INTO words(rowid, spaced) VALUES (new.id, new.spaced); END;
CREATE TRIGGER moment_out AFTER DELETE ON moment BEGIN
    INSERT INTO words(words, rowid, spaced) VALUES ('delete', old.id, old.spaced); END;
"""

StepIds = TypeAdapter(list[int])  # of the moments that a sentence answers by


MomentKind = Literal["step", "sentence", "screen"]


@dataclass(frozen=True)
class Moment:
    """A step, sentence or text on screen of one video.

    Attributes:
        video: id of the video.
        title: title of the video.
        kind: "step", "sentence" or "screen" (text on the screen).
        text: text of the step, the sentence or the screen.
        start: second of the video at which it is shown, else spoken. None if neither is known.
        end: second of the video at which it ends, None like `start`.
        status: status of a step, None for other kinds.
        basis: which evidence made the step `seen`.
        doubt: why a placed step may not be shown.
        score: P(the picture shows it) of a seen step, or of a sentence by a detector, else None.
        file: path of the record's JSON file, relative to the library's folder.
        link: relative path of the video's HTML page, with "#t=SECOND". None without a page.
    """

    video: str
    title: str
    kind: MomentKind
    text: str
    start: Seconds | None
    end: Seconds | None
    file: str
    score: Probability | None = None
    status: Status | None = None
    basis: Basis | None = None
    doubt: str | None = None
    link: str | None = None


MOMENT_FIELDS = tuple(field.name for field in fields(Moment) if field.name != "link")
MomentRow = TypeAdapter(Moment)  # an index may be a stranger's


def list_moments(record: Record, name: str) -> list[tuple[Moment, list[int]]]:
    """Return the moments of a record, steps first, each with the indices of the steps that cite it.

    name: path of the record's JSON file, relative to the library's folder.
    """
    title = record.video.title or record.id

    def moment(
        kind: MomentKind, text: str, span: Span | None, score: float | None = None, **verdict: Any
    ) -> Moment:
        return Moment(
            video=record.video.id,
            title=title,
            kind=kind,
            text=text,
            start=None if span is None else span.start,
            end=None if span is None else span.end,
            score=score,
            file=name,
            **verdict,
        )

    # the steps, and which sentences they cite
    rows: list[tuple[Moment, list[int]]] = []
    citing_step_numbers = defaultdict(list)
    for number, step in enumerate(record.steps):
        span = shown_span(step) or step.said
        verdict = step.model_dump(include={"status", "basis", "doubt"})
        score = step.score if step.status == "seen" else None
        rows.append((moment("step", step.text, span, score, **verdict), []))
        for source in step.sources:
            citing_step_numbers[source].append(number)

    for number, sentence in enumerate(record.sentences):
        sentence_moment = moment("sentence", sentence.text, sentence.span, sentence.shown)
        rows.append((sentence_moment, citing_step_numbers[number]))
    # Where a text on screen matches, the answer is the step whose picture has that text.
    for number, step in enumerate(record.steps):
        for remark in step.seen:
            text = remark.partition(ON_SCREEN_PREFIX)[2]
            if text:
                rows.append((moment("screen", text, None), [number]))
    return rows


@dataclass(frozen=True)
class IndexUpdate:
    """What an update of the search index read.

    Attributes:
        read_count: number of new or changed JSON files that were read.
        damaged: error messages of the records in the folder that cannot be read.
    """

    read_count: int
    damaged: tuple[str, ...]


class SearchIndex:
    """A full-text and vector index of a folder of records, for use in one thread.

    Args:
        folder: folder of the records' JSON files.
        embedder: function from N texts to unit vectors (N, D). None: search by words only.
        corrections: library whose corrected records are indexed. None: the files are indexed as
            they are.

    Raises StoreError if there is no such folder, or the index cannot be written.
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
        # folders outside the library to which links in it may lead
        self._allowed = () if corrections is None else corrections.allowed
        self._database = self._open()
        self._moment_rows: MomentRows | None = None
        self._null_queries: Matrix | None = None

    def close(self) -> None:
        """Close the file of the index."""
        self._database.close()

    @property
    def uses_vectors(self) -> bool:
        """Whether searches also rank by the cosine of vectors, not only by words."""
        return self._embedder is not None

    def update(self, progress: Progress | None = None) -> IndexUpdate:
        """Index new and changed records, remove deleted ones, and return what was read.

        progress: called with ("indexing", files read, files to read). None for no reports.
        """
        with lock_output(self.path.with_suffix(".lock"), self.folder, wait=True), self._errors():
            stamps = self._stamps()
            # Files without vectors are read again once there is an embedder. So are damaged
            # records, as a file that may be read by now.
            indexed = {}
            files = self._rows(
                "SELECT name, stamp, vectors IS NULL AND count > 0, damage IS NOT NULL FROM file"
            )
            for name, stamp, lacks_vectors, is_damaged in files:
                is_old = (lacks_vectors and self.uses_vectors) or is_damaged
                indexed[name] = None if is_old else stamp
            changed = [name for name, stamp in stamps.items() if indexed.get(name) != stamp]
            gone = indexed.keys() - stamps.keys()
            for name in gone:
                self._remove(name)
            for number, name in enumerate(changed, start=1):
                self._remove(name)
                self._add(name, stamps[name])
                if progress is not None:
                    progress("indexing", float(number), float(len(changed)))
            rows = self._rows("SELECT damage FROM file WHERE damage IS NOT NULL ORDER BY name")
        if gone or changed:
            self._moment_rows = None
        return IndexUpdate(len(changed), tuple(str(damage) for (damage,) in rows))

    def _stamps(self) -> dict[str, str]:
        """Return file name -> version stamp of each JSON file in the folder.

        The stamp changes with the file and with its corrections.
        """
        revisions = {} if self._corrections is None else self._corrections.revisions()
        stamps = {}
        for name, (modified, size) in record_files(self.folder, self._allowed).items():
            stamps[name] = f"{modified} {size}"
            revision = revisions.get(video_id(name)) if revisions else None
            if revision:
                stamps[name] += f" {revision}"
        return stamps

    def search(
        self, query: str, max_moments: int = 5, names: Collection[str] | None = None
    ) -> list[Moment]:
        """Return the moments that answer a query, the best first.

        Args:
            query: words, or a sentence.
            max_moments: maximal number of moments.
            names: record files to search, as paths relative to the folder. None for all.

        Raises SettingsError for a query without a word.
        """
        terms = query_terms(query)
        with self._errors():
            # the files whose moments may answer
            files = None
            if names is not None:
                rows = self._rows("SELECT name, id, first, count FROM file")
                files = [row for name, *row in rows if name in names]
            similarity, by_meaning = self._search_vectors(query, files)

            # reciprocal rank fusion of both rankings
            scores: dict[int, float] = defaultdict(float)
            for ranking in (self._search_words(terms, files), by_meaning):
                answers = self._moments_to_answer_with(ranking, similarity)
                for rank, answer in enumerate(answers, start=1):
                    scores[answer] += 1 / (RANK_DAMPING + rank)
            exact = self._answers_with_phrase(terms, scores)
            best = sorted(scores, key=lambda answer: (answer not in exact, -scores[answer], answer))
            return [self._load_moment(answer) for answer in best[:max_moments]]

    def _search_words(self, terms: Sequence[str], files: Sequence[FileRow] | None) -> list[int]:
        """Return the ids of the moments with any query word, ranked by BM25.

        Function words, and words in more than MAX_WORD_SHARE of the moments, are ignored, unless
        all words are.

        Args:
            terms: words of the query.
            files: files to search, None for all.
        """
        counts = {}
        query = "SELECT count(*) FROM words WHERE words MATCH ?"
        words = dict.fromkeys(term.lower() for term in terms)
        for term in [word for word in words if word not in STOP_WORDS] or words:
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
        return [row for (row,) in self._rows(query, pattern, MAX_CANDIDATES)]

    def _search_vectors(
        self, query: str, files: Sequence[FileRow] | None
    ) -> tuple[dict[int, float], list[int]]:
        """Return the moments whose vectors are most similar to the vector of a query.

        The first value is moment id -> cosine with the query, for the MAX_CANDIDATES most similar
        moments. The second value lists the ids that count as answers, the most similar first. Their
        cosine is at least MIN_SIMILARITY and at least their cosine with any null query. So queries
        in invented words, or about other things, have no answer.

        files: files to search, None for all.
        """
        if self._embedder is None:
            return {}, []
        ids, vectors, min_similarity = self._vectors()
        if files is not None:
            rows = _rows_of_files(ids, files)
            ids = ids[rows]
            vectors = vectors[rows]
            min_similarity = min_similarity[rows]
        if not len(ids):
            return {}, []

        # the moments that are most like the query
        vector = self._embedder([query])[0]  # (D,)
        scores = vectors @ vector  # (N,)
        count = min(MAX_CANDIDATES, len(ids))
        top = np.argpartition(-scores, count - 1)[:count]
        similarity = {int(ids[row]): float(scores[row]) for row in top}
        answers = [row for row in top if scores[row] >= max(MIN_SIMILARITY, min_similarity[row])]
        answers.sort(key=lambda row: (-scores[row], ids[row]))
        return similarity, [int(ids[row]) for row in answers]

    def _moments_to_answer_with(
        self, ranking: Sequence[int], similarity: dict[int, float]
    ) -> list[int]:
        """Return the ids of the moments to answer with: the steps that cite a moment, else itself.

        Args:
            ranking: ids of the moments found, the best first.
            similarity: moment id -> cosine with the query, by which the steps of one moment are
                sorted.
        """
        placeholders = ", ".join("?" * len(ranking))
        rows = dict(
            self._rows(f"SELECT id, steps FROM moment WHERE id IN ({placeholders})", *ranking)
        )
        answers: list[int] = []
        for row in ranking:
            try:
                ids = StepIds.validate_json(rows[row], strict=True)
            except ValidationError as error:
                raise sqlite3.DatabaseError("it holds invalid steps") from error
            answers += sorted(ids, key=lambda step: -similarity.get(step, -1.0)) or [row]
        return list(dict.fromkeys(answers))

    def _answers_with_phrase(self, terms: Sequence[str], answers: Collection[int]) -> set[int]:
        """Return the answers whose text has the query's words in a row, if it has two or more.

        Args:
            terms: words of the query.
            answers: ids of moments.
        """
        if len(terms) < 2:
            return set()
        ids = ", ".join(map(str, answers))
        rows = self._rows(f"SELECT id, text FROM moment WHERE id IN ({ids})")
        phrase = _joined_words(terms)
        return {id for id, text in rows if phrase in _joined_words(_words(text))}

    def _load_moment(self, answer: int) -> Moment:
        (row,) = self._rows(
            "SELECT video, title, kind, text, start, end, name, score, status, basis, doubt "
            "FROM moment JOIN file ON file.id = moment.file WHERE moment.id = ?",
            answer,
        )
        # The page is looked for now, since it may come or go without the record.
        try:
            moment = MomentRow.validate_python(dict(zip(MOMENT_FIELDS, row, strict=True)))
        except ValidationError as error:
            raise sqlite3.DatabaseError("it holds an invalid moment") from error
        page = Path(moment.file).with_suffix(".html")
        if not is_existing_file(self.folder / page):
            return moment
        link = page.as_posix()
        if moment.start is not None:
            link += f"#t={int(moment.start)}"
        return replace(moment, link=link)

    def _vectors(self) -> MomentRows:
        """Return three arrays for all N moments of the index, sorted by id: ids (N,), vectors (N,
        D), and the similarity of each to null queries (N,)."""
        if self._moment_rows is None:
            files = self._rows(
                "SELECT first, count, vectors, least FROM file "
                "WHERE count > 0 AND vectors IS NOT NULL ORDER BY first"
            )
            if not files:
                return np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
            ids = []
            vectors = []
            min_similarity = []
            try:
                # One matrix of all files, so that a search is one product.
                for first_id, count, vector_bytes, min_similarity_bytes in files:
                    vectors.append(np.frombuffer(vector_bytes, np.float16).reshape(count, -1))
                    min_similarity.append(
                        np.frombuffer(min_similarity_bytes, np.float32).reshape(count)
                    )
                    ids.append(np.arange(first_id, first_id + count, dtype=np.int64))
                matrix = np.concatenate(vectors).astype(np.float32)
            except (ValueError, TypeError, OverflowError) as error:
                raise sqlite3.DatabaseError("it holds invalid vectors") from error
            self._moment_rows = (np.concatenate(ids), matrix, np.concatenate(min_similarity))
        return self._moment_rows

    def _encode(self, texts: Sequence[str]) -> VectorBytes:
        """Return N texts as bytes to store: vectors (N, D) float16, and similarities (N,) float32.

        The similarity of a text is its largest cosine with a null query, a text of invented words.
        """
        if not texts or self._embedder is None:
            return None, None
        if self._null_queries is None:
            queries = random_queries(NULL_QUERY_COUNT, NULL_QUERY_SEED)
            self._null_queries = self._embedder(queries)  # (M, D)
        vectors = self._embedder(texts)  # (N, D)
        min_similarity = (vectors @ self._null_queries.T).max(axis=1).astype(np.float32)  # (N,)
        return vectors.astype(np.float16).tobytes(), min_similarity.tobytes()

    def _add(self, name: str, stamp: str) -> None:
        """Index the moments of a record. A file without a record, or with a damaged one, is noted,
        and not read again.

        Args:
            name: path of the file, relative to the folder.
            stamp: version stamp of the file, from `_stamps`.
        """
        rows: list[tuple[Moment, list[int]]] = []
        video: str | None = None
        title: str | None = None
        damage: str | None = None
        try:
            record = read_record(self.folder / name)
            if self._corrections is not None and self._corrections.revision(video_id(name)):
                record = self._corrections.corrected_record(name)
            rows = list_moments(record, name)
            video = record.video.id
            title = record.video.title or record.id
        except DamagedRecordError as error:
            damage = str(error)
        except StoreError:  # other JSON
            pass
        encoded = self._encode([moment.text for moment, _ in rows])
        # the rows, all or none
        with self._database:
            ((first,),) = self._rows("SELECT coalesce(max(id), 0) + 1 FROM moment")
            file = self._database.execute(
                "INSERT INTO file(name, stamp, video, title, first, count, vectors, least, damage) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (name, stamp, video, title, first, len(rows), *encoded, damage),
            ).lastrowid
            for id, (moment, steps) in enumerate(rows, start=first):
                self._database.execute(
                    "INSERT INTO moment VALUES (:id, :file, :kind, :text, :start, :end, :score, "
                    ":status, :basis, :doubt, :steps, :spaced)",
                    vars(moment)
                    | {
                        "id": id,
                        "file": file,
                        "steps": json.dumps([first + step for step in steps]),
                        "spaced": _with_spaces(moment.text),
                    },
                )
            digest = _rows_digest(self._database, file)
            self._database.execute("UPDATE file SET digest = ? WHERE id = ?", (digest, file))

    def _remove(self, name: str) -> None:
        with self._database:
            self._database.execute(
                "DELETE FROM moment WHERE file = (SELECT id FROM file WHERE name = ?)", (name,)
            )
            self._database.execute("DELETE FROM file WHERE name = ?", (name,))

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._database.execute(query, values).fetchall()

    def _open(self) -> sqlite3.Connection:
        """Return a connection to the index. A damaged or changed index, or one of another version,
        is replaced by an empty one."""
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            check_database_files(self.path)
            database = sqlite3.connect(self.path, timeout=LOCK_TIMEOUT_SECONDS)
            try:
                limit_row_size(database)
                version = database.execute("PRAGMA user_version").fetchone()[0]
                # A stranger's index may define triggers that run as it is read.
                is_valid = (
                    version == INDEX_VERSION
                    and schema_of_database(database) == schema_of_statements(INDEX_TABLES)
                    and _is_unchanged(database)
                )
            except sqlite3.OperationalError as error:
                # Other errors are of the disk or of a lock. Errors of Python's own have no name.
                if getattr(error, "sqlite_errorname", "SQLITE_ERROR") != "SQLITE_ERROR":
                    raise
                is_valid = False
            except (sqlite3.DatabaseError, UnicodeDecodeError):
                is_valid = False
            if not is_valid:
                database.close()
                self.path.unlink()
                database = sqlite3.connect(self.path, timeout=LOCK_TIMEOUT_SECONDS)
                database.executescript(
                    f"BEGIN; {INDEX_TABLES} PRAGMA user_version = {INDEX_VERSION}; COMMIT;"
                )
            return database

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that raises the errors of the index as StoreError."""
        cure = "delete this index, it is made again from the records"
        if not os.access(self.path.parent, os.W_OK):
            cure = "set STEPLINE_CACHE to a folder that can be written"
        return sqlite_errors(self.path, cure)


def _rows_digest(database: sqlite3.Connection, file: object) -> str:
    """Return the sha256 of what the index holds of a record: its row of `file` and its moments.

    Args:
        database: the index.
        file: id of the row.
    """
    digest = hashlib.sha256()
    for query in (
        "SELECT name, stamp, video, title, first, count, vectors, least, damage FROM file "
        "WHERE id = ?",
        "SELECT * FROM moment WHERE file = ? ORDER BY id",
    ):
        for values in database.execute(query, (file,)):
            for value in values:
                data = value if isinstance(value, bytes) else repr(value).encode()
                digest.update(b"%d " % len(data))
                digest.update(data)
    return digest.hexdigest()


def _is_unchanged(database: sqlite3.Connection) -> bool:
    """Return whether the index is undamaged: the rows of each file still have their stored digest.

    Raises sqlite3.DatabaseError if the full-text table does not match the rows.
    """
    for file, digest in database.execute("SELECT id, digest FROM file").fetchall():
        if digest != _rows_digest(database, file):
            return False
    with database:
        database.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    return True


def _rows_of_files(ids: npt.NDArray[np.int64], files: Sequence[FileRow]) -> npt.NDArray[np.int64]:
    """Return the indices in `ids` of the moments of some files, sorted.

    Args:
        ids: (N,) ids of moments, sorted.
        files: the files.
    """
    # The moments of a file have consecutive ids.
    rows = [np.zeros(0, np.int64)]
    for _, first, count in files:
        start, end = np.searchsorted(ids, (first, first + count))
        rows.append(np.arange(start, end, dtype=np.int64))
    return np.sort(np.concatenate(rows))


def index_path(folder: Path) -> Path:
    """Return the path of a folder's index file.

    It is in the folder, or in the user's cache if the folder cannot be written.
    """
    if os.access(folder, os.W_OK):
        return folder / INDEX_FILE
    # A name by the real path, so that every way to the folder leads to one index.
    digest = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()
    return cache_folder() / "search" / f"{digest[:16]}.sqlite"


def random_queries(count: int, seed: int) -> list[str]:
    """Return queries of one to four random words without meaning. Every second query has words of
    syllables, the others have words of random letters.

    Args:
        count: number of queries.
        seed: seed of the random generator.
    """
    rng = np.random.default_rng(seed)
    queries = []
    for number in range(count):
        words = []
        for _ in range(rng.integers(1, 5)):
            syllables = rng.integers(2, 5)
            # A consonant and a vowel per syllable, or what a hand on the keys may give.
            choices = ("bdfgklmnprstvz", "aeiou") * syllables
            if number % 2:
                choices = (ascii_lowercase,) * (2 * syllables)
            words.append("".join(rng.choice(list(letters)) for letters in choices))
        queries.append(" ".join(words))
    return queries


def query_terms(query: str) -> list[str]:
    """Return the words of a query. Raises SettingsError for a query without words."""
    terms = _words(query)
    if not terms:
        raise SettingsError(f"search {query!r}: no word in it; say what is done")
    return terms


def _with_spaces(text: str) -> str:
    """Return a text in which each letter of a script without spaces is a word of its own."""
    return SPACELESS_LETTER.sub(r" \g<0> ", text)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", _with_spaces(text))


def _joined_words(words: Sequence[str]) -> str:
    return f" {' '.join(words)} ".lower()


def open_index(folder: Path, corrections: CorrectedLibrary | None) -> SearchIndex:
    """Return the search index of a folder. Without the weights of MiniLM it searches words only.

    Args:
        folder: folder of the records' JSON files.
        corrections: library whose corrected records are indexed. None: the files are indexed as
            they are.
    """
    embedder: Embedder | None = embed
    try:
        embed(["whether the weights are there"])
    except ModelError:
        embedder = None
    return SearchIndex(folder, embedder, corrections)
