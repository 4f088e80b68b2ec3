"""Splits that ignore the labels: every client sees the same distribution, with equal sizes (`iid`) or not (`quantity`)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsim.config import at_least, positive
from fedsim.errors import ConfigError
from partitions.deal import cut, enough, exists, whole, with_tests
from partitions.split import Labels, Partition, Share


@dataclass(frozen=True)
class IidParams:
    classes: int = 0  # all clients own the same so many classes, drawn once; 0: every class

    def __post_init__(self) -> None:
        at_least("partition.classes", self.classes, 0)


def iid(labels: Labels, clients: int, params: IidParams, rng: np.random.Generator) -> list[Share]:
    """Shuffle, cut into equal parts (sizes differ by one at most)."""
    exists("classes", params.classes, labels.classes)
    owned = rng.permutation(labels.classes)[: params.classes or labels.classes]
    pool = np.flatnonzero(np.isin(labels.train, owned))
    enough(len(pool), clients)
    return with_tests(labels, np.array_split(rng.permutation(pool), clients), rng)


@dataclass(frozen=True)
class QuantityParams:
    law: Literal["dirichlet", "linear", "square", "exponential"] = "dirichlet"  # how sizes grow beyond the minimum
    alpha: float = 0.5  # of the Dirichlet law: smaller is more unequal
    min_size: int = 10

    def __post_init__(self) -> None:
        positive("partition.alpha", self.alpha)
        at_least("partition.min_size", self.min_size, 1)


def quantity(labels: Labels, clients: int, params: QuantityParams, rng: np.random.Generator) -> list[Share]:
    """Everyone gets the minimum; what is left goes out in the proportions of the law, to clients in random order."""
    samples = len(labels.train)
    if clients * params.min_size > samples:
        raise ConfigError(
            f"{samples} samples cannot give each of {clients} clients {params.min_size}; the nearest that works is "
            f"partition.min-size={samples // clients} or clients={samples // params.min_size}"
        )
    rank = np.arange(1, clients + 1, dtype=np.float64)
    if params.law == "dirichlet":
        weights = rng.dirichlet(np.full(clients, params.alpha))
    else:
        weights = {"linear": rank, "square": rank**2, "exponential": np.exp(rank - clients)}[params.law]
    sizes = params.min_size + whole(samples - clients * params.min_size, rng.permutation(weights))
    return with_tests(labels, cut(rng.permutation(samples), sizes), rng)


IID = Partition(
    "iid", "every client an equal random part; with partition.classes=k, of the same k classes", IidParams, iid
)
QUANTITY = Partition(
    "quantity", "random parts of unequal size: Dirichlet, linear, square or exponential", QuantityParams, quantity
)
