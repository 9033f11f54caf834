"""A text base built from sources, or added to: read, merge, embed, index. The manifest is written
last.

BASE/manifest.json lists what is there. BASE/parts/0001/ and on hold the tables, arrays and vectors
of one build or appending. BASE/parts/000N/work/ holds what a build still needs, so that a killed
one goes on where it was and ends with the same bytes.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from stepline.errors import StoreError
from stepline.files.atomic_files import check_writable, remove_partial_files, write_atomic
from stepline.files.digests import sha256
from stepline.limits import parse_json
from stepline.sieve_swap.text_base.base import TextBase, open_base
from stepline.sieve_swap.text_base.deduplicate import write_tables
from stepline.sieve_swap.text_base.encoding import encoder_facts, write_embeddings
from stepline.sieve_swap.text_base.index import add_index
from stepline.sieve_swap.text_base.manifest import (
    LAYOUT_VERSION,
    Manifest,
    PartEntry,
    RejectionCount,
    SourceEntry,
    digest,
    read_manifest,
    write_manifest,
)
from stepline.sieve_swap.text_base.read_sources import Tally, read_shards
from stepline.sieve_swap.text_base.readers import source_files
from stepline.sieve_swap.text_base.settings import TextBaseSettings

# settings that change what is in a part, besides the encoder
PLANNED_SETTINGS = {
    "merge",
    "longest_document",
    "longest_step",
    "shard",
    "block",
    "batch",
    "precision",
}


def build_base(
    sources: Sequence[Path],
    folder: Path,
    settings: TextBaseSettings | None = None,
    *,
    licence: str | None = None,
    append: bool = False,
) -> TextBase:
    """Return a text base made of the sources. One that a killed build left unfinished is finished.

    A base that holds these sources already is opened as it is. licence: of lines whose source
    states none.
    append: add to the base that is there. Raises StoreError when the folder holds a base of other
    sources and append is not asked for, DatasetError when a source cannot be read.
    """
    settings = settings or TextBaseSettings()
    check_writable(folder)
    remove_partial_files(folder)
    # What this build is made from, as one digest.
    entries = tuple(_source_entry(source, licence) for source in sources)
    facts = encoder_facts(settings.encoder)
    planned = settings.model_dump(include=PLANNED_SETTINGS)
    plan = digest([LAYOUT_VERSION, [entry.model_dump() for entry in entries], planned, facts])
    # A part, unless one of the same plan is there.
    manifest = read_manifest(folder)
    if manifest is None or plan not in {part.plan for part in manifest.parts}:
        manifest = _start_manifest(manifest, folder, settings, facts, append)
        manifest = _add_part(manifest, sources, entries, plan, folder, settings, licence)
    # What only an unfinished part needs is removed, and the index is made.
    for part in manifest.parts:
        shutil.rmtree(folder / "parts" / part.name / "work", ignore_errors=True)
    if settings.engine != "exact":
        add_index(folder, settings)
    return open_base(folder)


def prepared_base(path: Path, folder: Path, settings: TextBaseSettings | None = None) -> TextBase:
    """Return the base in `path`. Where `path` is a source instead, return the base built of it in
    `folder`."""
    if path.is_dir() and read_manifest(path) is not None:
        return open_base(path)
    return build_base([path], folder, settings)


def _start_manifest(
    manifest: Manifest | None,
    folder: Path,
    settings: TextBaseSettings,
    facts: tuple[str, int],
    append: bool,
) -> Manifest:
    """Return the manifest to add to: a new one, or the one that is there. Raises StoreError where
    they do not fit."""
    # Nothing is there yet.
    if manifest is None:
        return Manifest(
            encoder=settings.encoder,
            encoder_sha256=facts[0],
            width=facts[1],
            precision=settings.precision,
        )
    if not append:
        raise StoreError(
            f"{folder}: a text base of other sources or settings; "
            "add --append, or give another --out"
        )
    # Vectors of two encoders do not compare.
    if (manifest.encoder_sha256, manifest.precision) != (facts[0], settings.precision):
        raise StoreError(
            f"{folder}: embedded by {manifest.encoder} as {manifest.precision}; "
            "append with that encoder and precision"
        )
    return manifest


def _add_part(
    manifest: Manifest,
    sources: Sequence[Path],
    entries: Sequence[SourceEntry],
    plan: str,
    folder: Path,
    settings: TextBaseSettings,
    licence: str | None,
) -> Manifest:
    """Read, merge and embed one more part. Write and return the manifest that holds it."""
    parts = [folder / "parts" / part.name for part in manifest.parts]
    part = folder / "parts" / f"{len(parts) + 1:04d}"
    _resume_part(part, plan)
    # each stage goes on where a killed run ended
    shards, tallies = read_shards(sources, part / "work", settings, licence)
    counts = write_tables(shards, parts, part, tallies, settings)
    write_embeddings(part, counts.steps, manifest.width, settings)
    entry = PartEntry(
        name=part.name,
        plan=plan,
        documents=counts.documents,
        steps=counts.steps,
        read=counts.lines,
        same=counts.same,
        near=counts.near,
        sources=tuple(map(_finished_source_entry, entries, tallies, counts.by_source)),
        files={file.name: sha256(file) for file in sorted(part.iterdir()) if file.is_file()},
    )
    manifest = manifest.model_copy(
        update={
            "documents": manifest.documents + counts.documents,
            "steps": manifest.steps + counts.steps,
            "parts": (*manifest.parts, entry),
            "indexes": (),  # they do not hold the new lines
        }
    )
    write_manifest(manifest, folder)
    return manifest


def _resume_part(part: Path, plan: str) -> None:
    """Resume an unfinished part of the same plan, or delete one of another plan."""
    note = part / "work" / "plan.json"
    if not note.is_file() or parse_json(note.read_text(encoding="utf-8")) != plan:
        shutil.rmtree(part, ignore_errors=True)
    (part / "work").mkdir(parents=True, exist_ok=True)
    write_atomic(note, json.dumps(plan))
    for place in (part, part / "work"):
        remove_partial_files(place)


def _source_entry(source: Path, licence: str | None) -> SourceEntry:
    """Return the manifest entry of a source that is not read yet."""
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


def _finished_source_entry(
    entry: SourceEntry, tally: Tally, counts: tuple[int, int]
) -> SourceEntry:
    """Return the entry of a source that was read. counts: of its documents and lines."""
    documents, steps = counts
    dropped = tuple(
        RejectionCount(reason=reason, count=count, examples=tuple(tally.examples[reason]))
        for reason, count in sorted(tally.counts.items())
    )
    return entry.model_copy(update={"documents": documents, "steps": steps, "dropped": dropped})
