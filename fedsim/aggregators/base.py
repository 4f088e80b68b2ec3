"""The contract of an aggregator, and what those that combine whole vectors have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.config import NoParams, RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.similarity import Matrix, gram
from fedsim.weights import Vec, weighted_sum

Coefficients = NDArray[np.float64]


class Aggregator(ABC):
    """Made from its parameters."""

    params: ClassVar[type[Any]] = NoParams

    def __init__(self, params: Any) -> None:
        self._params = params

    @abstractmethod
    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        """One vector from scales[k] * vectors[k] (scales: 1 if not given) with positive weights[k]."""

    @property
    def least(self) -> int:
        """The fewest vectors that its guarantee needs."""
        return 1

    @property
    def bound(self) -> str:
        """In words, with numbers, why it needs so many."""
        return ""


class LinearAggregator(Aggregator):
    """The result is a combination of the vectors whose coefficients follow from their inner products.

    The products are one Gram matrix in float64, and all further work is on N x N numbers: no distance needs another pass
    over the vectors.
    """

    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        require(self, len(vectors))
        factors, shares = factors_of(scales, len(vectors)), shares_of(weights)
        products = gram(vectors) * np.outer(factors, factors)
        return weighted_sum(vectors, (self.coefficients(products, shares) * factors).tolist())

    @abstractmethod
    def coefficients(self, products: Matrix, shares: Coefficients) -> Coefficients:
        """One coefficient for each vector, from the vectors' inner products and their shares, which sum to 1."""


def factors_of(scales: Sequence[float] | None, count: int) -> Coefficients:
    return np.ones(count) if scales is None else np.asarray(scales, np.float64)


def shares_of(weights: Sequence[float]) -> Coefficients:
    scale = np.asarray(weights, np.float64)
    return np.asarray(scale / scale.sum(), np.float64)


def require(aggregator: Aggregator, count: int) -> None:
    """Raises FedsimError if there are fewer vectors than the aggregator needs."""
    if count < aggregator.least:
        raise FedsimError(f"{aggregator.bound}, but this step has only {count} results")


def aggregator_of(config: RunConfig) -> Aggregator:
    """The run's aggregator; raises ConfigError if a round cannot have as many clients as it needs."""
    made: Aggregator = config.part("aggregator")(config.params("aggregator"))
    cohort = max(1, round(config.participation * config.clients))
    if cohort < made.least:
        raise ConfigError(
            f"{made.bound}, but clients={config.clients} with participation={config.participation:g} are {cohort} per round"
        )
    return made
