"""Aggregators that treat every coordinate by itself."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from fedsim.aggregators.base import Aggregator, factors_of, require, shares_of
from fedsim.weights import Vec, blocks, weighted_sum


class Mean(Aggregator):
    """the weighted mean"""

    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        shares = shares_of(weights)
        return weighted_sum(vectors, (shares if scales is None else shares * np.asarray(scales)).tolist())


class CoordinateAggregator(Aggregator):
    """Works on blocks of coordinates, so that memory stays flat; clients count equally."""

    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        require(self, len(vectors))
        factors = factors_of(scales, len(vectors)).astype(np.float32)
        found = np.empty(vectors[0].size, np.float32)
        for block in blocks(found.size):
            found[block] = self.combine(np.stack([f * v[block] for f, v in zip(factors, vectors, strict=True)]))
        return found

    @abstractmethod
    def combine(self, values: Vec) -> NDArray[Any]:
        """One value for each column of clients x coordinates; may reorder `values`."""


class Median(CoordinateAggregator):
    """the median of every coordinate; clients count equally"""

    def combine(self, values: Vec) -> NDArray[Any]:
        return np.asarray(np.median(values, axis=0, overwrite_input=True))


@dataclass(frozen=True)
class TrimParams:
    trim: Annotated[float, Interval(ge=0, lt=0.5)] = 0.2  # share of the clients that is left out at either end


class TrimmedMean(CoordinateAggregator):
    """the mean of every coordinate without its smallest and largest values; clients count equally (Yin et al. 2018)"""

    params = TrimParams

    @property
    def least(self) -> int:
        return ceil(1 / self._params.trim) if self._params.trim else 1

    @property
    def bound(self) -> str:
        return f"aggregator.trim={self._params.trim:g} leaves out nobody of fewer than {self.least} clients"

    def combine(self, values: Vec) -> NDArray[Any]:
        cut = int(self._params.trim * len(values))
        if cut:
            values.partition((cut, len(values) - cut - 1), axis=0)
        return np.asarray(values[cut : len(values) - cut].mean(axis=0, dtype=np.float64))
