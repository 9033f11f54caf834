"""A text base built from sources: read, merge, embed. The manifest is written last.

BASE/parts/0001/work/ holds what a build still needs: the documents as they were read, and blocks of
vectors. So a build that was killed continues, and ends with the same bytes.

Two steps are merged when their words are the same after normalisation, in the same order (units in
one spelling, without articles). The first step read represents all of them. Memory: about 40 bytes
per step read, and what sorting takes.
"""

import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stepline.errors import StoreError
from stepline.files.atomic_files import check_writable, remove_partial_files, write_atomic
from stepline.files.digests import hash_text, sha256
from stepline.files.parquet import write_rows
from stepline.limits import parse_json
from stepline.sieve_swap.text_base.base import (
    DOCUMENT_GROUP_ROWS,
    LAYOUT_VERSION,
    PART_NAME,
    STEP_GROUP_ROWS,
    BuildEntry,
    Document,
    RejectionCount,
    SourceEntry,
    TableRow,
    TextBase,
    TextBaseManifest,
    encoder_identity,
    open_base,
    read_manifest,
    read_table,
    write_manifest,
)
from stepline.sieve_swap.text_base.readers import read_source, source_files
from stepline.sieve_swap.text_base.settings import TextBaseSettings
from stepline.sieve_swap.text_base.vectors import read_vectors, write_vectors
from stepline.text import embed
from stepline.writing.extractive.english import word_set

log = logging.getLogger(__name__)

MAX_EXAMPLES = 3  # locations that the manifest names for each reason

READ_COLUMNS: dict[str, str] = {
    "id": "string",
    "title": "string",
    "source": "string",
    "licence": "string",
    "texts": "list:string",
    "origin": "int32",  # number of the source
}
STEP_COLUMNS: dict[str, str] = {
    "id": "string",
    "text": "string",
    "document": "string",
    "position": "int32",
    "source": "string",
    "licence": "string",
}
DOCUMENT_COLUMNS: dict[str, str] = {
    "id": "string",
    "title": "string",
    "source": "string",
    "licence": "string",
    "texts": "list:string",
    "rows": "list:int64",
}


def build_base(
    sources: Sequence[Path],
    folder: Path,
    settings: TextBaseSettings = TextBaseSettings(),
    *,
    licence: str | None = None,
) -> TextBase:
    """Build a text base from how-to texts in a folder, and return it.

    An existing base of the same sources and settings is opened without changes. A build that was
    killed is continued.

    Args:
        sources: files and folders of how-to texts.
        folder: folder of the base.
        settings: settings of reading and embedding the texts.
        licence: licence of the texts whose source states none. None: unknown.

    Raises StoreError if the folder holds a base of other sources or settings. Raises DatasetError
    if a source cannot be read.
    """
    check_writable(folder)
    remove_partial_files(folder)
    entries = [_source_entry(source, licence) for source in sources]
    encoder_sha256, width = encoder_identity(settings.encoder)
    facts = [
        LAYOUT_VERSION,
        [entry.model_dump() for entry in entries],
        settings.model_dump(),
        [encoder_sha256, width],
    ]
    plan = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    part = folder / "parts" / PART_NAME
    manifest = read_manifest(folder)
    if manifest is None:
        _resume_work(part, plan)
        entry = _build_part(part, sources, entries, plan, width, settings, licence)
        manifest = TextBaseManifest(
            encoder=settings.encoder,
            encoder_sha256=encoder_sha256,
            width=width,
            precision=settings.precision,
            documents=entry.documents,
            steps=entry.steps,
            parts=(entry,),
        )
        write_manifest(manifest, folder)
    elif manifest.parts[0].plan != plan:
        raise StoreError(
            f"{folder}: a text base of other sources or settings; give another --out, or remove it"
        )
    shutil.rmtree(part / "work", ignore_errors=True)
    return open_base(folder)


def open_or_build_base(path: Path, folder: Path, settings: TextBaseSettings) -> TextBase:
    """Return the text base in `path`, or build one if `path` holds how-to texts instead.

    Args:
        path: folder of a base, or file or folder of how-to texts.
        folder: folder in which a base is built.
        settings: settings of reading and embedding the texts.
    """
    if path.is_dir() and read_manifest(path) is not None:
        return open_base(path)
    return build_base([path], folder, settings)


def _source_entry(source: Path, licence: str | None) -> SourceEntry:
    """Return the manifest's entry of a source, before the source is read."""
    digests = hashlib.sha256()
    files = source_files(source)
    for file in files:
        name = file.name if file == source else file.relative_to(source)
        digests.update(f"{name} {sha256(file)}\n".encode())
    return SourceEntry(
        name=Path(os.path.realpath(source)).name,
        sha256=digests.hexdigest(),
        bytes=sum(file.stat().st_size for file in files),
        licence=licence,
    )


def _resume_work(part: Path, plan: str) -> None:
    """Keep the unfinished files of a build with the same plan. Those of another plan are deleted.

    Args:
        part: folder of the build.
        plan: sha256 of the sources and settings of the build.
    """
    note = part / "work" / "plan.json"
    if not note.is_file() or parse_json(note.read_text(encoding="utf-8")) != plan:
        shutil.rmtree(part, ignore_errors=True)
    (part / "work").mkdir(parents=True, exist_ok=True)
    write_atomic(note, json.dumps(plan))
    for folder in (part, part / "work"):
        remove_partial_files(folder)


def _build_part(
    part: Path,
    sources: Sequence[Path],
    entries: Sequence[SourceEntry],
    plan: str,
    width: int,
    settings: TextBaseSettings,
    licence: str | None,
) -> BuildEntry:
    """Read, merge and embed the texts of a build, and return the manifest's entry of the build.

    Args:
        part: folder of the build.
        sources: files and folders of how-to texts.
        entries: manifest's entry of each source, without counts.
        plan: sha256 of the sources and settings of the build.
        width: D, the width of a vector.
        settings: settings of reading and embedding the texts.
        licence: licence of the texts whose source states none. None: unknown.
    """
    documents = part / "work" / "documents.parquet"
    tallies_file = documents.with_suffix(".json")
    if not tallies_file.is_file():
        tallies = _read_sources(sources, documents, settings, licence)
        write_atomic(tallies_file, json.dumps(tallies))
    tallies = parse_json(tallies_file.read_text(encoding="utf-8"))
    step_count, read_count = _write_tables(documents, part)
    _write_embeddings(part, step_count, width, settings)
    finished_entries = []
    for entry, (document_count, line_count, dropped) in zip(entries, tallies, strict=True):
        rejections = tuple(
            RejectionCount(reason=reason, count=count, examples=tuple(examples))
            for reason, (count, examples) in sorted(dropped.items())
        )
        counts = {"documents": document_count, "steps": line_count, "dropped": rejections}
        finished_entries.append(entry.model_copy(update=counts))
    return BuildEntry(
        name=part.name,
        plan=plan,
        documents=sum(entry.documents for entry in finished_entries),
        steps=step_count,
        read=read_count,
        same=read_count - step_count,
        sources=tuple(finished_entries),
        files={file.name: sha256(file) for file in sorted(part.iterdir()) if file.is_file()},
    )


# Of one source: documents, steps, and by reason of rejection the count and the first locations.
SourceTally = tuple[int, int, dict[str, tuple[int, list[str]]]]


def _read_sources(
    sources: Sequence[Path], path: Path, settings: TextBaseSettings, licence: str | None
) -> list[SourceTally]:
    """Write the documents of all sources as one Parquet table, and return the counts of each
    source. A document whose id was read before is left out and counted.

    Args:
        sources: files and folders of how-to texts.
        path: path of the table.
        settings: limits on the length of documents and steps.
        licence: licence of the texts whose source states none. None: unknown.
    """
    tallies: list[SourceTally] = []
    seen_ids: set[int] = set()

    def documents() -> Iterator[TableRow]:
        for origin, source in enumerate(sources):
            counts: Counter[str] = Counter()
            examples: dict[str, list[str]] = {}
            step_count = document_count = 0
            for item in read_source(source, settings, licence):
                if isinstance(item, Document) and hash_text(item.id) not in seen_ids:
                    seen_ids.add(hash_text(item.id))
                    document_count += 1
                    step_count += len(item.steps)
                    texts = [step.text for step in item.steps]
                    row = {name: getattr(item, name, None) for name in READ_COLUMNS}
                    yield row | {"texts": texts, "origin": origin}
                    continue
                if isinstance(item, Document):
                    reason, location = "duplicate id", item.id
                else:
                    reason = item.reason
                    location = f"{item.location}: {item.value}".removesuffix(": ")
                counts[reason] += 1
                examples.setdefault(reason, []).append(location)
                del examples[reason][MAX_EXAMPLES:]
            dropped = {reason: (count, examples[reason]) for reason, count in counts.items()}
            tallies.append((document_count, step_count, dropped))
            log.info("read %d documents of %s", document_count, source)

    write_rows(documents(), READ_COLUMNS, path, group_rows=DOCUMENT_GROUP_ROWS)
    return tallies


def _write_tables(documents: Path, part: Path) -> tuple[int, int]:
    """Write the tables of documents and of distinct steps. Return the number of distinct steps and
    the number of all steps.

    Args:
        documents: table of the documents as they were read.
        part: folder of the build.
    """
    texts = (text for row in read_table(documents, ["texts"]) for text in row["texts"])
    keys = np.fromiter(map(hash_step_words, texts), dtype=np.uint64)
    # the first step of the same words, and the row of each step
    _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    is_first = np.zeros(len(keys), dtype=bool)
    is_first[firsts] = True
    rows = (np.cumsum(is_first) - 1)[firsts[inverse]]

    def different_steps() -> Iterator[TableRow]:
        flags = iter(is_first.tolist())
        for row in read_table(documents):
            for position, text in enumerate(row["texts"]):
                if next(flags):
                    own = {"id": f"{row['id']}#{position}", "text": text, "document": row["id"]}
                    yield row | own | {"position": position}

    def documents_with_rows() -> Iterator[TableRow]:
        row_numbers = iter(rows.tolist())
        for row in read_table(documents):
            yield row | {"rows": list(itertools.islice(row_numbers, len(row["texts"])))}

    path = part / "steps.parquet"
    write_rows(different_steps(), STEP_COLUMNS, path, group_rows=STEP_GROUP_ROWS)
    path = part / "documents.parquet"
    write_rows(documents_with_rows(), DOCUMENT_COLUMNS, path, group_rows=DOCUMENT_GROUP_ROWS)
    return len(firsts), len(keys)


def _write_embeddings(part: Path, count: int, width: int, settings: TextBaseSettings) -> None:
    """Write vectors.npy, with one unit vector per row of steps.parquet.

    Blocks that a killed build has finished are reused.

    Args:
        part: folder of the build.
        count: number of rows of steps.parquet.
        width: D, the width of a vector.
        settings: encoder, precision and sizes of blocks and batches.
    """
    texts = (row["text"] for row in read_table(part / "steps.parquet", ["text"]))
    blocks: list[Path] = []
    while lines := list(itertools.islice(texts, settings.block)):
        block = part / "work" / f"vectors-{len(blocks):05d}.npy"
        blocks.append(block)
        if not block.exists():
            vectors = embed(lines, model=settings.encoder, batch=settings.batch)
            write_vectors(block, [vectors], (len(lines), width), settings.precision)
            log.info("embedded %d of %d steps", min(count, len(blocks) * settings.block), count)
    pieces = map(read_vectors, blocks)
    write_vectors(part / "vectors.npy", pieces, (count, width), settings.precision)


# ---------------------------------------------------------------- steps of the same words

# The one name of a unit, then its other spellings.
UNIT_SPELLINGS = """
tbsp: tablespoon tablespoons tbsps tbs tbl tblsp
tsp: teaspoon teaspoons tsps
cup: cups
oz: ounce ounces
lb: pound pounds lbs
g: gram grams gr
kg: kilogram kilograms kilo kilos
ml: milliliter milliliters millilitre millilitres
litre: liter liters litres
qt: quart quarts qts
pt: pint pints pts
inch: inches
cm: centimeter centimeters centimetre centimetres
mm: millimeter millimeters millimetre millimetres
second: seconds sec secs
minute: minutes min mins
hour: hours hr hrs
day: days
fahrenheit: f
celsius: centigrade
"""
UNIT_OF_SPELLING: dict[str, str] = {}
for _line in UNIT_SPELLINGS.split("\n"):
    _unit, _, _spellings = _line.partition(":")
    UNIT_OF_SPELLING |= dict.fromkeys(_spellings.split(), _unit)
IGNORED_WORDS = word_set("a an the degrees degree deg")  # words that change nothing

_WORD_OR_NUMBER = re.compile(r"\d+(?:[./]\d+)*|[^\W\d_]+")
# "1½" becomes "1 1/2". NFKC alone would glue the two, with a slash of its own.
_FRACTION_CHARS = {
    ord(c): f" {unicodedata.normalize('NFKC', c).replace(chr(0x2044), '/')} "
    for c in "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}


def hash_step_words(text: str) -> int:
    """Return a 64-bit hash of a step's normalised words in their order."""
    return hash_text(" ".join(normalised_words(text)))


def normalised_words(text: str) -> list[str]:
    """Return the words by which two steps are compared.

    They are case-folded, without articles, and with one spelling per unit.
    """
    folded = unicodedata.normalize("NFKC", text.translate(_FRACTION_CHARS)).casefold()
    words = _WORD_OR_NUMBER.findall(folded.replace("°c", " celsius"))
    return [UNIT_OF_SPELLING.get(word, word) for word in words if word not in IGNORED_WORDS]
