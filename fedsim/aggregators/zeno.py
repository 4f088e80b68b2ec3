"""Zeno: updates that public data does not confirm are left out (Zeno++, Xie et al. 2020, arXiv 1903.07020).

(1)  u_k = delta_k * ||v|| / ||delta_k||
(2)  k is accepted if  lr * <v, u_k> - rho * ||u_k||^2 + lr * eps >= 0
(3)  the weighted mean of the accepted u_k; no update if there are none

v is the server's own update: local training on the public data from the global model, as long as that of a client; it is
made anew after every `every` steps. With eps = 0, (2) asks for a cosine of v and delta_k of at least rho / lr. This is the
synchronous version (Zeno+) of the Sageflow paper. The changes of BatchNorm statistics are compared with those of v in the
same way. Scales of an algorithm (the discount of a stale update) multiply u_k.

Deviations: the paper compares gradients, and steps along them by lr. Clients send updates of many steps here, so v is one as
well: lengths agree, and (1) takes away what a client boosted. The authors make v anew after every 10 results; a round has
more, so `every` is 1 here: over several rounds the updates that agree with an old v lead nowhere. The authors' code
subtracts rho times the square of the length before (1); (2) takes that after it, as the paper does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.aggregators.base import Coefficients, PublicAggregator, factors_of, shares_of
from fedsim.config import NonNegativeFloat, PositiveFloat, PositiveInt
from fedsim.weights import Vec, weighted_sum


@dataclass(frozen=True)
class ZenoParams:
    rho: NonNegativeFloat = 0.001  # weight of the squared length of an update
    lr: PositiveFloat = 0.1  # weight of its agreement with the server's own update
    eps: NonNegativeFloat = 0.0  # how much disagreement is tolerated
    every: PositiveInt = 1  # server steps between two updates of the server's own


class Zeno(PublicAggregator):
    """the weighted mean of the updates that agree with one made on public data, shortened to its length"""

    params = ZenoParams

    @property
    def every(self) -> int:
        return int(self._params.every)

    def compared(
        self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None, reference: Vec
    ) -> Vec:
        params, factors, length = self._params, factors_of(scales, len(vectors)), _products([reference], reference)[0]
        lengths = np.sqrt([_products([vector], vector)[0] for vector in vectors])
        stretch = factors * np.sqrt(length) / np.maximum(lengths, np.finfo(np.float64).tiny)  # (1)
        agreement = stretch * _products(vectors, reference)
        accepted = params.lr * (agreement + params.eps) >= params.rho * factors**2 * length  # (2)
        if not accepted.any():
            return np.zeros_like(reference)
        shares = shares_of(np.where(accepted, weights, 0.0).tolist())
        return weighted_sum(vectors, (shares * stretch).tolist())  # (3)


def _products(vectors: Sequence[Vec], reference: Vec) -> Coefficients:
    return np.array([np.einsum("d,d->", vector, reference, dtype=np.float64) for vector in vectors])
