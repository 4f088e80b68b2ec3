"""Small datasets with known contents, and what every split of them must satisfy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim import registry
from fedsim.config import build
from fedsim.partitions.catalogue import Single
from fedsim.partitions.split import Labels, Share

PRICES = Single("prices", "real-valued targets", objective="regression")
CLUSTERS = ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7))
USERS = 40


def labels(per_class: int = 60, tests: int = 20, classes: int = 10, **more: Any) -> Labels:
    """Every class equally often, in no particular order."""
    rng = np.random.default_rng(99)
    train, test = (rng.permutation(np.repeat(np.arange(classes), n)) for n in (per_class, tests))
    users = np.arange(len(train) + len(test)) % USERS
    return Labels(train, test, classes, users=users.astype(str), super_clusters=lambda choice: CLUSTERS, **more)


def side_by_side(sizes: Sequence[int], tests: Sequence[int], names: tuple[str, ...]) -> Labels:
    """Several ten-class datasets whose labels lie apart."""
    train = np.concatenate([np.arange(n) % 10 + 10 * i for i, n in enumerate(sizes)])
    test = np.concatenate([np.arange(n) % 10 + 10 * i for i, n in enumerate(tests)])
    source = np.concatenate([train, test]) // 10
    return Labels(train, test, 10 * len(sizes), sources=names, source=source)


def split(name: str, given: Labels, clients: int, seed: int = 0, **params: Any) -> list[Share]:
    partition = registry.find("partition", name)
    values = build(partition.params, params, "partition")
    shares: list[Share] = partition.split(given, clients, values, np.random.default_rng(seed))
    return shares


def disjoint(parts: Sequence[np.ndarray]) -> bool:
    together = np.concatenate(parts)
    return len(np.unique(together)) == len(together)


def held(given: Labels, share: Share) -> set[int]:
    """The labels of a client's training data."""
    return set(given.pooled[share.train].tolist())
