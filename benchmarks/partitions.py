"""The time of every split of 60,000 samples over 1,000 clients, and of the proximity matrix of 100 clients.

The reference is the time that each may take: 3 s for a split, 30 s for the matrix.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.comparison import Comparison, Row
from fedsim import registry
from fedsim.config import build
from fedsim.errors import ConfigError
from fedsim.partitions import PARTITIONS, datasets, measures
from fedsim.partitions.catalogue import MIX4
from fedsim.partitions.split import Labels

SPLIT_SECONDS, MATRIX_SECONDS = 3.0, 30.0
SAMPLES, TESTS, CLIENTS, REPEATS = 60_000, 10_000, 1_000, 3
SETTINGS: dict[str, dict[str, Any]] = {"mix4": {"size": 40}, "sc-dir": {"alpha": 1.0, "min_size": 5}}


def run() -> list[Row]:
    labels = _labels()
    rows = []
    for name in PARTITIONS:
        pairs = [(_seconds(name, labels), SPLIT_SECONDS) for _ in range(REPEATS)]
        rows.append(Comparison.of(f"split {name}, 60k over 1,000 clients, vs 3 s", pairs, "s", 1.0))
    samples, what = _clients()
    start = time.perf_counter()
    measures.proximity(measures.signatures(samples))
    took = time.perf_counter() - start
    return [*rows, Comparison(f"100 x 100 proximity, {what}, vs 30 s", took, MATRIX_SECONDS, "s", 1.0)]


def _seconds(name: str, labels: Labels) -> float:
    partition = registry.find("partition", name)
    if name == "mix4":
        source = np.concatenate([np.arange(SAMPLES) * 4 // SAMPLES, np.arange(TESTS) * 4 // TESTS])
        labels = replace(labels, sources=MIX4.parts, source=source)
    params = build(partition.params, SETTINGS.get(name, {}), "partition")
    start = time.perf_counter()
    partition.split(labels, CLIENTS, params, np.random.default_rng(0))
    return time.perf_counter() - start


def _labels() -> Labels:
    """Ten equal classes, 5,000 users, and CIFAR-10's super clusters."""
    rng = np.random.default_rng(0)
    users = rng.integers(5_000, size=SAMPLES + TESTS).astype(str)
    train, test = (rng.permutation(np.arange(n) % 10) for n in (SAMPLES, TESTS))
    return Labels(train, test, 10, users, super_clusters=lambda choice: ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7)))


def _clients() -> tuple[list[np.ndarray], str]:
    """100 clients of 500 CIFAR-10 images, or of noise of the same shape where CIFAR-10 is not at hand."""
    try:
        dataset = datasets.load("cifar10")
        return [dataset.samples(np.arange(i, i + 500), normalized=False) for i in range(0, 50_000, 500)], "CIFAR-10"
    except ConfigError:
        rng = np.random.default_rng(0)
        return [rng.integers(0, 256, (500, 3, 32, 32)).astype(np.float32) for _ in range(100)], "noise like CIFAR-10"
