"""Distances and cosines of all pairs, beside their definitions."""

import numpy as np
import pytest

from fedsim.similarity import cosines, gram, off_diagonal, squared_distances
from fedsim.weights import BLOCK


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((5, 2 * BLOCK + 3)).astype(np.float32)


def test_products_of_all_pairs(rows: np.ndarray) -> None:
    wide = rows.astype(np.float64)
    np.testing.assert_allclose(gram(rows), wide @ wide.T, rtol=1e-12)
    shifted = wide - wide[1]
    np.testing.assert_allclose(gram(rows, origin=rows[1]), shifted @ shifted.T, rtol=1e-12, atol=1e-9)


def test_distances_of_all_pairs(rows: np.ndarray) -> None:
    wide = rows.astype(np.float64)
    expected = [[((a - b) ** 2).sum() for b in wide] for a in wide]
    np.testing.assert_allclose(squared_distances(rows), expected, rtol=1e-12)


def test_close_models_far_from_the_origin_are_told_apart() -> None:
    base = np.full(100_000, 1000, np.float32)
    near = base.copy()
    near[0] += 2**-10
    found = squared_distances(np.stack([base, near, base]))
    assert found[0, 1] == found[2, 1] == 2.0**-20
    assert found[0, 2] == 0


def test_cosines_of_all_pairs(rows: np.ndarray) -> None:
    rows[2] = -3 * rows[0]
    rows[4] = 0
    found = cosines(gram(rows))
    assert found[0, 2] == pytest.approx(-1)
    assert found[0, 1] == pytest.approx(rows[0] @ rows[1] / np.linalg.norm(rows[0]) / np.linalg.norm(rows[1]), abs=1e-6)
    assert np.diagonal(found).tolist() == [1] * 5
    assert not found[4, :4].any()


def test_pairs_of_different_rows() -> None:
    assert off_diagonal(np.arange(9).reshape(3, 3)).tolist() == [[1, 2], [3, 5], [6, 7]]
