"""Aggregators that shorten what is too long before they average.

Norm clipping (Sun et al. 2019, arXiv 1911.07963):        sum_k a_k x_k min(1, r / ||x_k||)
Centered clipping (Karimireddy et al. 2021, 2012.10333):  v <- v + sum_k a_k (x_k - v) min(1, r / ||x_k - v||), repeated

a_k are the weights' shares; with an infinite radius both are the weighted mean. r is `radius`, or the median of the lengths.
Deviation: centered clipping starts from v = 0, no update, in every step; the paper starts from the last step's result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.aggregators.base import Aggregator, Coefficients, factors_of, shares_of
from fedsim.aggregators.geometric_median import to_combination
from fedsim.aggregators.linear import LinearAggregator
from fedsim.config import PositiveFloat, PositiveInt
from fedsim.similarity import Matrix
from fedsim.weights import Vec, weighted_sum


@dataclass(frozen=True)
class ClipParams:
    radius: PositiveFloat | None = None  # largest length; none: the median of the clients' lengths


@dataclass(frozen=True)
class CenteredParams(ClipParams):
    iterations: PositiveInt = 3  # how often the center is moved


class NormClip(Aggregator):
    """the weighted mean of updates that are shortened to a common largest length"""

    params = ClipParams

    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        factors = factors_of(scales, len(vectors))
        lengths = np.abs(factors) * [np.sqrt(np.einsum("d,d->", v, v, dtype=np.float64)) for v in vectors]
        shortened = shares_of(weights) * factors * shortening(lengths, self._params.radius)
        return weighted_sum(vectors, shortened.tolist())


class CenteredClip(LinearAggregator):
    """the weighted mean of differences to a center, shortened; the center moves there"""

    params = CenteredParams

    def coefficients(self, products: Matrix, shares: Coefficients) -> Coefficients:
        center = np.zeros_like(shares)
        for _ in range(self._params.iterations):
            kept = shares * shortening(to_combination(products, center), self._params.radius)
            center = (1 - kept.sum()) * center + kept
        return center


def shortening(lengths: Coefficients, radius: float | None) -> Coefficients:
    """The factors that shorten vectors of these lengths to the radius, or to the median length."""
    limit = float(np.median(lengths)) if radius is None else radius
    return np.asarray(limit / np.maximum(lengths, max(limit, np.finfo(np.float64).tiny)), np.float64)
