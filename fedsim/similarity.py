"""How alike the rows of one N x d float32 matrix are: products of all pairs, accumulated in float64, block by block."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.vector import blocks

Matrix = NDArray[np.float64]
Rows = NDArray[np.float32]


def gram(rows: Rows, origin: Rows | None = None) -> Matrix:
    """The inner product of every pair of rows, seen from `origin`; only N x BLOCK values are ever copied."""
    count, size = rows.shape
    total = np.zeros((count, count))
    for block in blocks(size):
        part = rows[:, block].astype(np.float64)
        if origin is not None:
            part -= origin[block]
        total += part @ part.T  # numpy sees the symmetry and computes one half
    return total


def squared_distances(rows: Rows) -> Matrix:
    """||rows[i] - rows[j]||^2, with an exact zero on the diagonal.

    Products are taken from the first row, not from zero: models from one start lie close together and far from the
    origin, and the difference of large numbers would lose the digits that tell them apart.
    """
    products = gram(rows, rows[0])
    norms = np.diagonal(products)
    distances = np.maximum(norms[:, None] + norms[None, :] - 2 * products, 0)
    np.fill_diagonal(distances, 0)
    return distances


def cosines(rows: Rows) -> Matrix:
    """The cosine of the angle between every pair of rows; a row of zeros is at right angles to all others."""
    products = gram(rows)
    lengths = np.sqrt(np.diagonal(products))
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    found = np.clip(products * scale[:, None] * scale[None, :], -1, 1)
    np.fill_diagonal(found, 1)
    return found


def off_diagonal(matrix: NDArray[Any]) -> NDArray[Any]:
    """The entries of every pair of different rows, N x (N - 1)."""
    count = len(matrix)
    kept: NDArray[Any] = matrix[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    return kept
