"""The nearest rows: exact in any tiling, approximate ones with the recall that they measure."""

import numpy as np
import pytest

from stepline.errors import ShapeError, StoreError
from stepline.sieve_swap.text_base import add_index, open_base
from stepline.sieve_swap.text_base import vectors as vector_search
from stepline.sieve_swap.text_base.manifest import Manifest, PartEntry, write_manifest
from stepline.sieve_swap.text_base.settings import TextBaseSettings
from stepline.sieve_swap.text_base.vectors import nearest_exact, write_vectors


def unit(rows):
    rows = np.asarray(rows, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


AXES = unit([[1, 0], [0, 1], [1, 0], [3, 4]])


def test_the_nearest_is_the_greatest_cosine_and_a_tie_goes_to_the_lower_row():
    rows, cosines = nearest_exact(unit([[1, 0], [1, 1]]), [(0, AXES)], 3)
    assert rows.tolist() == [[0, 2, 3], [3, 0, 1]]
    assert cosines[0] == pytest.approx([1, 1, 0.6])
    assert cosines[1] == pytest.approx([1.4 / 2**0.5, 0.5**0.5, 0.5**0.5])


def test_rows_count_from_where_a_block_begins_and_a_tie_holds_over_blocks():
    rows, _ = nearest_exact(unit([[1, 0]]), [(10, AXES[2:]), (5, AXES[:2])])
    assert rows.tolist() == [[5]]


def test_what_does_not_exist_is_row_minus_one():
    rows, cosines = nearest_exact(unit([[-1, 0]]), [(0, AXES[:1])], 2)
    assert (rows.tolist(), cosines.tolist()) == ([[0, -1]], [[-1.0, -1.0]])
    assert nearest_exact(np.empty((0, 2), np.float32), [(0, AXES)])[0].shape == (0, 1)


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_tiles_of_any_size_find_what_one_product_finds(monkeypatch, k, kind):
    monkeypatch.setattr(vector_search, "TILE_VECTORS", 7)
    monkeypatch.setattr(vector_search, "TILE_QUERIES", 5)
    rng = np.random.default_rng(1)
    base, queries = (
        unit(rng.standard_normal((60, 8))).astype(kind),
        unit(rng.standard_normal((13, 8))),
    )
    scores = queries @ base.astype(np.float32).T
    rows, cosines = nearest_exact(queries, [(0, base[:31]), (31, base[31:])], k)
    assert rows.tolist() == np.argsort(-scores, axis=1, kind="stable")[:, :k].tolist()
    np.testing.assert_allclose(cosines, -np.sort(-scores, axis=1)[:, :k], atol=1e-6)


def test_widths_that_differ_are_an_error():
    with pytest.raises(ShapeError, match="the widths must agree"):
        nearest_exact(AXES, [(0, np.ones((2, 3), np.float32))])


COUNT = 3_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A base of vectors in clusters; its tables are never read here."""
    folder = tmp_path_factory.mktemp("vectors")
    rng = np.random.default_rng(2)
    centers = rng.standard_normal((60, 16))
    vectors = unit(centers[rng.integers(60, size=COUNT)] + 0.5 * rng.standard_normal((COUNT, 16)))
    part = folder / "parts" / "0001"
    part.mkdir(parents=True)
    write_vectors(part / "vectors.npy", [vectors], vectors.shape, "float16")
    counts = {"documents": 0, "steps": COUNT, "read": COUNT, "same": 0, "near": 0}
    entry = PartEntry(name="0001", plan="", sources=(), files={}, **counts)
    write_manifest(
        Manifest(
            encoder="none",
            encoder_sha256="",
            width=16,
            precision="float16",
            steps=COUNT,
            parts=(entry,),
        ),
        folder,
    )
    return folder


def test_an_index_reaches_the_recall_that_it_states(folder):
    entry = add_index(folder, TextBaseSettings(recall=0.9))
    base = open_base(folder)
    queries = base.vectors(np.arange(0, COUNT, 7)) + np.float32(0.02)
    queries = unit(queries)
    true, _ = base.nearest(queries, engine="exact")
    rows, cosines = base.nearest(queries, engine="lists")
    assert entry.recall >= 0.9
    assert (rows == true).mean() >= 0.85  # other queries than the index was tuned on
    np.testing.assert_allclose(
        cosines[:, 0], (queries * base.vectors(rows[:, 0])).sum(1), atol=1e-3
    )


def test_all_lists_probed_find_exactly_what_exact_search_finds(folder):
    add_index(folder, TextBaseSettings(recall=0.9))
    base = open_base(folder)
    queries = base.vectors(range(50))
    rows, cosines = base.nearest(queries, 4, engine="lists", effort=10_000)
    true, best = base.nearest(queries, 4, engine="exact")
    np.testing.assert_allclose(cosines, best, atol=1e-6)
    assert (rows == true).mean() > 0.99  # equal cosines may be rounded apart


def test_the_same_vectors_give_the_same_bytes_of_an_index(folder):
    settings = TextBaseSettings(recall=0.5)
    first = add_index(folder, settings)
    assert add_index(folder, settings.model_copy(update={"recall": 0.51})).files == first.files


def test_an_index_that_is_missing_says_how_to_build_it(tmp_path, folder):
    base = open_base(folder)
    manifest = base.manifest.model_copy(update={"indexes": ()})
    write_manifest(manifest, folder)
    with pytest.raises(StoreError, match="has no index; `stepline text-base index"):
        open_base(folder).nearest(AXES[:, [0] * 16], engine="lists")


def test_an_index_of_an_earlier_version_is_not_searched(folder):
    entry = add_index(folder, TextBaseSettings(recall=0.9))
    manifest = open_base(folder).manifest
    other = entry.model_copy(update={"engine": "hnsw"})
    write_manifest(manifest.model_copy(update={"indexes": (other,)}), folder)
    base = open_base(folder)
    assert base.engine == "exact"
    assert base.nearest(base.vectors([3]))[0].tolist() == [[3]]


def test_queries_of_another_width_are_refused(folder):
    with pytest.raises(ShapeError, match=r"queries \(4, 2\): need \(N, 16\)"):
        open_base(folder).nearest(AXES)
