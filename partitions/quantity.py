"""Quantity skew: random parts of unequal size."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsim.config import PositiveFloat, PositiveInt
from fedsim.errors import ConfigError
from fedsim.partitions.allocation import apportion, cut, with_proportional_tests
from fedsim.partitions.split import Labels, Partition, Share


@dataclass(frozen=True)
class QuantityParams:
    law: Literal["dirichlet", "linear", "square", "exponential"] = "dirichlet"  # how sizes grow beyond the minimum
    alpha: PositiveFloat = 0.5  # of the Dirichlet law: smaller is more unequal
    min_size: PositiveInt = 10  # training samples of a client, at least


def quantity(labels: Labels, clients: int, params: QuantityParams, rng: np.random.Generator) -> list[Share]:
    """Every client gets `min_size` samples; the others are divided by the law among the clients in random order."""
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
    sizes = params.min_size + apportion(samples - clients * params.min_size, rng.permutation(weights))
    return with_proportional_tests(labels, cut(rng.permutation(samples), sizes), rng)


QUANTITY = Partition(
    "quantity",
    "random parts of unequal size: Dirichlet, linear, square or exponential",
    QuantityParams,
    quantity,
    needs_classes=False,
)
