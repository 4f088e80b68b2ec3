"""RFA: the geometric median by the smoothed Weiszfeld algorithm (Pillutla et al. 2022, arXiv 1912.13445).

(1)  v <- sum_k a_k w_k
(2)  b_k = a_k / max(eps, ||v - w_k||),   v <- sum_k b_k w_k / sum_k b_k,   repeated

a_k are the weights' shares. v stays a combination of the w_k, so ||v - w_k|| follows from the Gram matrix of the w_k.
(2) ends after `iterations`, or when sum_k a_k ||v - w_k|| changes by less than one part in 1e6. The default is that of the
authors' code, where an iteration is a round trip; here more of them cost nothing, and far outliers need them.
"""

from dataclasses import dataclass

import numpy as np

from fedsim.aggregators.base import Coefficients
from fedsim.aggregators.linear import LinearAggregator
from fedsim.config import PositiveFloat, PositiveInt
from fedsim.similarity import Matrix

TOLERANCE = 1e-6


@dataclass(frozen=True)
class MedianParams:
    iterations: PositiveInt = 4  # of Weiszfeld's algorithm
    eps: PositiveFloat = 1e-5  # distances count as at least this


class GeometricMedian(LinearAggregator):
    """the geometric median (RFA), by the smoothed Weiszfeld algorithm"""

    params = MedianParams

    def coefficients(self, products: Matrix, shares: Coefficients) -> Coefficients:
        found, before = shares, np.inf  # (1)
        for _ in range(self._params.iterations):
            distances = to_combination(products, found)
            objective = float(shares @ distances)
            if abs(before - objective) <= TOLERANCE * objective:
                break
            weights = shares / np.maximum(self._params.eps, distances)
            found, before = weights / weights.sum(), objective  # (2)
        return found


def to_combination(products: Matrix, coefficients: Coefficients) -> Coefficients:
    """The distances of all vectors from the combination of them with these coefficients."""
    mixed = products @ coefficients
    return np.sqrt(np.maximum(coefficients @ mixed - 2 * mixed + np.diagonal(products), 0))
