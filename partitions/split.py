"""The contract of every split: labels in, one share of sample indices per client out.

Indices are pooled: 0 .. n_train-1 are the dataset's training samples, n_train and above its official test samples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Indices = NDArray[np.int64]
Clusters = tuple[tuple[int, ...], ...]
P = TypeVar("P")


class Share(NamedTuple):
    """What one client holds."""

    train: Indices
    test: Indices
    transform: str = ""  # of its samples: a name of `transforms.TRANSFORMS`; empty: none


@dataclass(frozen=True)
class Labels:
    """All a split may know about a dataset. A dataset without class labels counts as one class."""

    train: Indices
    test: Indices
    classes: int
    users: NDArray[np.str_] | None = None  # the user each pooled sample belongs to, where the dataset says so
    sources: tuple[str, ...] = ("",)  # the datasets it is made of
    source: Indices | None = None  # which of them each pooled sample comes from; None: there is only one
    super_clusters: Callable[[str], Clusters] | None = None  # groups of similar classes: see `superclusters.of`

    @property
    def pooled(self) -> Indices:
        return np.concatenate([self.train, self.test])


@dataclass(frozen=True)
class Partition(Generic[P]):
    """A way of splitting, as the registry knows it."""

    name: str
    about: str
    params: type[P]
    split: Callable[[Labels, int, P, np.random.Generator], list[Share]]
    needs_classes: bool = True  # False: it also splits samples without class labels, such as those of a regression
