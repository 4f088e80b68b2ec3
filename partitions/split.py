"""The contract of every split: labels in, one share of sample indices per client out.

All indices live in one pooled space: 0 .. n_train-1 is the dataset's training part, n_train .. its official test part.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Clusters = tuple[tuple[int, ...], ...]
P = TypeVar("P")


class Share(NamedTuple):
    """What one client holds."""

    train: Indices
    test: Indices
    turns: int = 0  # quarter turns its images are rotated by


@dataclass(frozen=True)
class Labels:
    """All a split may know about a dataset."""

    train: Indices
    test: Indices
    classes: int
    users: NDArray[np.str_] | None = None  # who each pooled sample came from, where the dataset says so
    sources: tuple[str, ...] = ("",)  # the datasets it is made of
    source: Indices | None = None  # which of them each pooled sample came from; None: there is only one
    super_clusters: Callable[[str], Clusters] | None = None  # groups of classes that look alike: see `superclusters.of`

    @property
    def pooled(self) -> Indices:
        return np.concatenate([self.train, self.test])


@dataclass(frozen=True)
class Partition(Generic[P]):
    name: str
    about: str
    params: type[P]
    split: Callable[[Labels, int, P, np.random.Generator], list[Share]]
