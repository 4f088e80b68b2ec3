"""How vectors of several clients become one: the run's `aggregator`, for every algorithm that averages.

A name stands for a class with `params` (a dataclass, set as `aggregator.KEY`) that is called with vectors, their weights
and optional scales, and returns one vector.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fedsim.config import NoParams, RunConfig
from fedsim.weights import Vec, blocks, weighted_sum

AGGREGATORS = {
    "mean": "fedsim.aggregators:Mean",
    "median": "fedsim.aggregators:Median",
}


class Aggregator(ABC):
    """Made from its parameters."""

    params: ClassVar[type[Any]] = NoParams

    def __init__(self, params: Any) -> None:
        self._params = params

    @abstractmethod
    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        """One vector from scales[k] * vectors[k] (scales: 1 if not given) with positive weights[k]."""


class Mean(Aggregator):
    """the weighted mean"""

    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        shares = np.asarray(weights, np.float64) / np.sum(np.asarray(weights, np.float64))
        return weighted_sum(vectors, (shares if scales is None else shares * np.asarray(scales)).tolist())


class Median(Aggregator):
    """the median of every coordinate; clients count equally"""

    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        factors = np.ones(len(vectors), np.float32) if scales is None else np.asarray(scales, np.float32)
        found = np.empty(vectors[0].size, np.float32)
        for block in blocks(found.size):
            found[block] = np.median([f * v[block] for f, v in zip(factors, vectors, strict=True)], axis=0)
        return found


def aggregator_of(config: RunConfig) -> Aggregator:
    """The run's aggregator."""
    made: Aggregator = config.part("aggregator")(config.params("aggregator"))
    return made
