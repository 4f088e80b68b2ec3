"""Gram matrices, distances and cosines of all pairs of vectors, accumulated in float64, block by block."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedsim.weights import Vec, blocks_of

Matrix = NDArray[np.float64]
Rows = NDArray[np.float32]
STRIPES = 16


def gram(rows: Rows | Sequence[Vec], parts: Iterable[slice] | None = None, origin: Vec | None = None) -> Matrix:
    """The inner product of every pair of rows minus `origin`, over the columns in `parts` (default: all).

    Copies at most N x BLOCK values per core. Stripes of columns are distributed over the cores, one BLAS thread each:
    several threads per product wait for each other after every block, which is ten times slower on a busy machine. The
    stripes do not depend on the number of cores, so the result is the same on every machine.
    """
    every = list(blocks_of([slice(0, len(rows[0]))] if parts is None else parts))
    length = -(-len(every) // STRIPES)
    stripes = [every[start : start + length] for start in range(0, len(every), length)]

    def product(stripe: Sequence[slice]) -> Matrix:
        return _gram(rows, stripe, origin)

    if len(stripes) == 1:
        return product(stripes[0])
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        total: Matrix = np.sum(list(pool.map(product, stripes)), axis=0)
    return total


def _gram(rows: Rows | Sequence[Vec], blocks: Sequence[slice], origin: Vec | None) -> Matrix:
    total = np.zeros((len(rows), len(rows)))
    for block in blocks:
        values = np.empty((len(rows), block.stop - block.start))
        for value, row in zip(values, rows, strict=True):
            value[:] = row[block]
        if origin is not None:
            values -= origin[block]
        total += values @ values.T  # numpy computes only one half of a symmetric product
    return total


def squared_distances(rows: Rows) -> Matrix:
    """||rows[i] - rows[j]||^2, with an exact zero on the diagonal.

    Products are computed relative to the first row: models with a common start are close to each other and far from
    zero, and differences of large products would lose the digits in which they differ.
    """
    return distances_of(gram(rows, origin=rows[0]))


def distances_of(products: Matrix) -> Matrix:
    """The squared distances of all pairs, from their Gram matrix."""
    norms = np.diagonal(products)
    distances = np.maximum(norms[:, None] + norms[None, :] - 2 * products, 0)
    np.fill_diagonal(distances, 0)
    return distances


def cosines(products: Matrix) -> Matrix:
    """The cosines of all pairs, from their Gram matrix. A zero row has cosine 1 with itself and 0 with the others."""
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
