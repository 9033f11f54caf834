"""Approximate indexes of a base: built, their recall measured against exact search, opened."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from stepline.errors import StoreError
from stepline.models import sha256
from stepline.records import Matrix
from stepline.sieve_swap.text_base import faiss_index, inverted_lists
from stepline.sieve_swap.text_base.exact import Rows, nearest_exact
from stepline.sieve_swap.text_base.faiss_index import FaissIndex, build_faiss
from stepline.sieve_swap.text_base.inverted_lists import InvertedLists, build_lists
from stepline.sieve_swap.text_base.manifest import CurvePoint, IndexEntry, Manifest, read_manifest, write_manifest
from stepline.sieve_swap.text_base.settings import Engine, TextBaseSettings
from stepline.sieve_swap.text_base.vectors import VectorStore

PROBES = 500  # lines whose nearest other line is asked for, to measure recall


class Index(Protocol):
    """What finds the nearest rows, more or less surely by its effort."""

    def efforts(self) -> list[int]:
        """Return the efforts worth trying, ascending."""

    def search(self, queries: Matrix, k: int, effort: int) -> tuple[Rows, Matrix]:
        """Return rows (N, k) and cosines (N, k), best first; -1 where nothing was found."""


def add_index(folder: Path, settings: TextBaseSettings, progress: Callable[[], None] = lambda: None) -> IndexEntry:
    """Build the index that `settings.engine` names, measure it, and enter it into the manifest; return its entry.

    An index that is there for these vectors and this recall stays. Raises StoreError when the folder holds no base.
    """
    manifest = present_manifest(folder)
    for entry in manifest.indexes:
        if (entry.engine, entry.steps, entry.wanted) == (settings.engine, manifest.steps, settings.recall):
            return entry
    vectors = open_vectors(folder, manifest)
    place = folder / "indexes" / settings.engine
    place.mkdir(parents=True, exist_ok=True)
    chosen = {"seed": settings.seed, "memory": settings.memory << 20, "progress": progress}
    if settings.engine == "lists":
        build_lists(vectors, place, **chosen)  # type: ignore[arg-type]
        names: tuple[str, ...] = inverted_lists.FILES
    else:
        build_faiss(vectors, place, settings.engine, **chosen)  # type: ignore[arg-type]
        names = faiss_index.FILES
    curve, probes = measured(open_index(folder, settings.engine), vectors, settings)
    entry = IndexEntry(
        engine=settings.engine,
        steps=len(vectors),
        effort=curve[-1].effort if curve else 1,
        recall=curve[-1].recall if curve else 1.0,
        wanted=settings.recall,
        probes=probes,
        curve=curve,
        files={name: sha256(place / name) for name in names},
    )
    others = tuple(found for found in manifest.indexes if found.engine != settings.engine)
    write_manifest(manifest.model_copy(update={"indexes": (*others, entry)}), folder)
    return entry


def measured(index: Index, vectors: VectorStore, settings: TextBaseSettings) -> tuple[tuple[CurvePoint, ...], int]:
    """Return recall@1 by effort, up to the least effort that reaches the recall asked for, and how many were asked.

    Asked is the nearest other line of seeded lines: queries as real as the base itself. A neighbour as near as the
    exact one counts, too.
    """
    count = len(vectors)
    if count < 2:
        return (), 0
    probes = np.sort(np.random.default_rng(settings.seed).choice(count, size=min(PROBES, count), replace=False))
    queries = vectors.take(probes)
    true = _other(probes, *nearest_exact(queries, vectors.blocks(), 2))
    curve: list[CurvePoint] = []
    for effort in index.efforts():
        found = _other(probes, *index.search(queries, 2, effort))
        curve.append(CurvePoint(effort=effort, recall=round(float((found >= true - 1e-5).mean()), 4)))
        if curve[-1].recall >= settings.recall:
            break
    return tuple(curve), len(probes)


def _other(probes: Rows, rows: Rows, cosines: Matrix) -> Matrix:
    """Return the cosine of the best of two rows that is not the probe itself; -1 where none was found."""
    return np.where(rows[:, 0] == probes, cosines[:, 1], cosines[:, 0]).astype(np.float32)


def open_index(folder: Path, engine: Engine) -> Index:
    """Return an index of a base. Raises StoreError where it is missing or damaged, ModelError without FAISS."""
    place = folder / "indexes" / engine
    return InvertedLists(place) if engine == "lists" else FaissIndex(place, engine)


def open_vectors(folder: Path, manifest: Manifest) -> VectorStore:
    """Return the vectors of a base."""
    files = [folder / "parts" / part.name / "vectors.npy" for part in manifest.parts]
    return VectorStore(files, manifest.width, manifest.precision)


def present_manifest(folder: Path) -> Manifest:
    """Return the manifest of a base. Raises StoreError, with the cure, where there is none."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise StoreError(f"{folder}: no text base here; `stepline text-base build SOURCE --out {folder}` makes one")
    return manifest
