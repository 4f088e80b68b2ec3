"""Robust aggregation of 100 updates with a million parameters each.

The reference are the matrix products that the method cannot do without, in float32 on one matrix: all inner products of the
updates, and one combination of them. Time is processor time over all threads; memory is compared with the updates.
"""

import tracemalloc
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.comparison import Comparison, Row
from benchmarks.fedamp import seconds
from fedsim import registry

CLIENTS, SIZE, TURNS = 100, 1_000_000, 5
TIME_LIMIT, MEMORY_LIMIT = 3.0, 0.5


def run() -> list[Row]:
    matrix = np.random.default_rng(0).standard_normal((CLIENTS, SIZE), np.float32)
    updates, weights = [row.copy() for row in matrix], np.full(CLIENTS, 1 / CLIENTS, np.float32)

    def products() -> None:
        np.matmul(matrix, matrix.T)
        np.matmul(weights, matrix)

    return [row for name in ("rfa", "multi-krum") for row in _rows(name, updates, weights, products)]


def _rows(name: str, updates: list[Any], weights: Any, products: Any) -> list[Row]:
    kind = registry.find("aggregator", name)
    aggregator = kind(kind.params())

    def aggregate() -> None:
        aggregator(updates, weights)

    with threadpool_limits(1, "blas"):  # threads of BLAS use processor time while they wait for each other
        pairs = [(seconds(aggregate), seconds(products)) for _ in range(TURNS)]
    memory = f"{name} temporaries, 100 x 1e6, vs the updates"
    return [
        Comparison.of(f"{name}, 100 x 1e6, vs the matrix products", pairs, "s", TIME_LIMIT),
        Comparison(memory, _megabytes(aggregate), CLIENTS * SIZE * 4e-6, "MB", MEMORY_LIMIT),
    ]


def _megabytes(work: Any) -> float:
    """Peak memory of what `work` allocates."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6
