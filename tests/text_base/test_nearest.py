"""The nearest rows, exact in any tiling."""

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.sieve_swap.text_base import vectors as vector_search
from stepline.sieve_swap.text_base.vectors import nearest_exact


def unit(rows):
    rows = np.asarray(rows, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


AXES = unit([[1, 0], [0, 1], [1, 0], [3, 4]])


def test_the_nearest_is_the_greatest_cosine_and_a_tie_goes_to_the_lower_row():
    rows, cosines = nearest_exact(unit([[1, 0], [1, 1]]), AXES, 3)
    assert rows.tolist() == [[0, 2, 3], [3, 0, 1]]
    assert cosines[0] == pytest.approx([1, 1, 0.6])
    assert cosines[1] == pytest.approx([1.4 / 2**0.5, 0.5**0.5, 0.5**0.5])


def test_what_does_not_exist_is_row_minus_one():
    rows, cosines = nearest_exact(unit([[-1, 0]]), AXES[:1], 2)
    assert (rows.tolist(), cosines.tolist()) == ([[0, -1]], [[-1.0, -1.0]])
    assert nearest_exact(np.empty((0, 2), np.float32), AXES)[0].shape == (0, 1)


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_tiles_of_any_size_find_what_one_product_finds(monkeypatch, k, kind):
    monkeypatch.setattr(vector_search, "TILE_VECTORS", 7)
    monkeypatch.setattr(vector_search, "TILE_QUERIES", 5)
    rng = np.random.default_rng(1)
    base = unit(rng.standard_normal((60, 8))).astype(kind)
    queries = unit(rng.standard_normal((13, 8)))
    scores = queries @ base.astype(np.float32).T
    rows, cosines = nearest_exact(queries, base, k)
    assert rows.tolist() == np.argsort(-scores, axis=1, kind="stable")[:, :k].tolist()
    np.testing.assert_allclose(cosines, -np.sort(-scores, axis=1)[:, :k], atol=1e-6)


def test_widths_that_differ_are_an_error():
    with pytest.raises(ShapeError, match="the widths must agree"):
        nearest_exact(AXES, np.ones((2, 3), np.float32))


def test_only_the_rows_named_are_searched():
    rows, cosines = nearest_exact(unit([[1, 0]]), AXES, 2, np.array([1, 2]))
    assert rows.tolist() == [[2, 1]]
    assert cosines[0] == pytest.approx([1, 0])
