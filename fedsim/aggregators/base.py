"""The contract of an aggregator. Clients import it too: nothing heavy here."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.config import NoParams, RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.weights import Vec

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


class PublicAggregator(Aggregator):
    """Compares updates of a model with one that the server makes itself, by training on the public data."""

    @property
    @abstractmethod
    def every(self) -> int:
        """Server steps after which the server makes its own update anew."""

    @abstractmethod
    def compared(
        self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None, reference: Vec
    ) -> Vec:
        """As a call, with the server's own update beside."""

    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        raise FedsimError(f"{type(self).__name__} combines updates of the global model only, not other vectors")


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
    if config.cohort < made.least:
        clients = f"clients={config.clients} with participation={config.participation:g}"
        raise ConfigError(f"{made.bound}, but {clients} are {config.cohort} per round")
    return made
