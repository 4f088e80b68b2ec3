"""How alike the rows of one N x d float32 matrix are: products of all pairs, accumulated in float64, block by block."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedsim.vector import BLOCK, blocks

STRIPES = 16

Matrix = NDArray[np.float64]
Rows = NDArray[np.float32]


def gram(rows: Rows, origin: Rows | None = None) -> Matrix:
    """The inner product of every pair of rows, seen from `origin`; only N x BLOCK values per core are ever copied.

    Stripes of the columns are spread over the cores, each product on one: BLAS's own threads wait for each other after
    every block, which on a busy machine costs ten times the work. The stripes are fixed, so the sum is the same anywhere.
    """
    size = rows.shape[1]
    ends = [size * part // STRIPES for part in range(STRIPES + 1)] if size > BLOCK else [0, size]
    stripes = [slice(start, end) for start, end in pairwise(ends)]

    def product(stripe: slice) -> Matrix:
        return _gram(rows[:, stripe], None if origin is None else origin[stripe])

    if len(stripes) == 1:
        return product(stripes[0])
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        total: Matrix = np.sum(list(pool.map(product, stripes)), axis=0)
    return total


def _gram(rows: Rows, origin: Rows | None) -> Matrix:
    total = np.zeros((len(rows), len(rows)))
    for block in blocks(rows.shape[1]):
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
