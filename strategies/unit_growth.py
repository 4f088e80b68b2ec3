"""Matching of hidden units that may also be new: MAP inference under a Beta-Bernoulli process, for `fedma_growth`.

(1)  match(l, i) = sum_d [(s w_l + T_i)^2 / (s + P_i) - T_i^2 / P_i] + log(c_i / (J - c_i))
(2)  new(l, r)   = sum_d [(s w_l + s0 m)^2 / (s0 + s) - s0 m^2] - 2 log r + 2 log(gamma / J),   as the r-th new unit

w_l is a unit of the client that is placed, s = 1 / sigma^2, s0 = 1 / sigma0^2, m the prior mean: 0, of a bias 0.1.
Global unit i holds c_i units of other clients (counted up to 10 in (1)): T_i = s0 m + s * their sum, P_i = s0 + s
c_i. J is the number of clients. A client's units go to different places, so that the sum of the scores is largest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedsim.config import NonNegativeInt, PositiveFloat, PositiveInt
from fedsim.strategies.matching import Order

Rows = NDArray[np.float64]
POPULAR, BIAS_MEAN = 10, 0.1


@dataclass(frozen=True)
class GrowthParams:
    gamma: PositiveFloat = 7.0  # how readily units are new
    sigma: PositiveFloat = 1.0  # standard deviation of a client's unit from the global one
    sigma0: PositiveFloat = 1.0  # standard deviation of a global unit
    sweeps: NonNegativeInt = 5  # how often every client's units are placed again
    most: PositiveInt = 700  # global units of a layer, at most


class GrowingLayer:
    """The global units of a layer while clients' units are placed."""

    def __init__(self, params: GrowthParams, clients: int, width: int, prior: Rows) -> None:
        self._params, self._clients, self._prior = params, clients, prior
        self._sums = np.zeros((max(params.most, width), prior.size))
        self._counts = np.zeros(len(self._sums), np.int64)

    def place(self, rows: Rows) -> Order:
        """Adds a client's units; returns the place of each."""
        used, free = np.flatnonzero(self._counts), np.flatnonzero(self._counts == 0)[: len(rows)]
        scores = np.hstack([self._match(rows, used), self._new(rows, len(free))])
        places: Order = np.concatenate([used, free])[linear_sum_assignment(scores, maximize=True)[1]]
        self._sums[places] += rows
        self._counts[places] += 1
        return places

    def remove(self, rows: Rows, places: Order) -> None:
        self._sums[places] -= rows
        self._counts[places] -= 1
        self._sums[self._counts == 0] = 0

    def _match(self, rows: Rows, used: Order) -> Rows:
        """(1)"""
        s, s0 = self._params.sigma**-2, self._params.sigma0**-2
        total, precision = s0 * self._prior + s * self._sums[used], s0 + s * self._counts[used]
        own, lengths = s * s * np.square(rows).sum(axis=1)[:, None], np.square(total).sum(axis=1)
        popular = np.minimum(self._counts[used], POPULAR)
        likelihood = (own + 2 * s * rows @ total.T + lengths) / (s + precision) - lengths / precision
        return np.asarray(likelihood + np.log(popular / (self._clients - popular).clip(min=1)))

    def _new(self, rows: Rows, count: int) -> Rows:
        """(2)"""
        s, s0 = self._params.sigma**-2, self._params.sigma0**-2
        fit = np.square(s * rows + s0 * self._prior).sum(axis=1) / (s0 + s) - s0 * np.square(self._prior).sum()
        return np.asarray(
            fit[:, None] - 2 * np.log(np.arange(1, count + 1)) + 2 * np.log(self._params.gamma / self._clients)
        )


def grown(
    rows: Sequence[Any], sizes: Sequence[int], params: GrowthParams, bias: bool, rng: np.random.Generator
) -> tuple[list[Order], int]:
    """The place of every unit of every client among the global units, and their number. Clients with most samples come
    first; then each is placed again, in random order, `sweeps` times."""
    found = [np.asarray(own, np.float64) for own in rows]
    prior = np.zeros(found[0].shape[1])
    prior[-1] = BIAS_MEAN if bias else 0.0
    layer = GrowingLayer(params, len(found), len(found[0]), prior)
    places: list[Order] = [np.zeros(0, np.int64)] * len(found)
    for client in np.argsort(-np.asarray(sizes), kind="stable").tolist():
        places[client] = layer.place(found[client])
    for _ in range(params.sweeps):
        for client in rng.permutation(len(found)).tolist():
            layer.remove(found[client], places[client])
            places[client] = layer.place(found[client])
    used, numbers = np.unique(np.concatenate(places), return_inverse=True)
    return np.split(numbers.astype(np.int64), np.cumsum([len(own) for own in places])[:-1]), len(used)
