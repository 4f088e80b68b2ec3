"""What aggregators that combine whole vectors have in common."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from fedsim.aggregators.base import Aggregator, Coefficients, factors_of, require, shares_of
from fedsim.similarity import Matrix, gram
from fedsim.weights import Vec, weighted_sum


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
