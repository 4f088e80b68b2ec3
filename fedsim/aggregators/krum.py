"""Krum, Multi-Krum (Blanchard et al. 2017, arXiv 1703.02757) and Bulyan (El Mhamdi et al. 2018, arXiv 1802.07927).

(1)  score(k) = sum of the squared distances from vector k to its n - f - 2 nearest others
(2)  Krum: the vector with the lowest score; Multi-Krum: the weighted mean of the m = n - f lowest
(3)  Bulyan: takes n - 2f vectors, each time the one that Krum chooses of those left, then in every coordinate the mean
     of the n - 4f values closest to their median

n is the number of vectors, f (`malicious`) how many of them may be malicious. (1) needs n > 2f + 2, (3) n > 4f + 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.aggregators.base import Aggregator, Coefficients, factors_of, require
from fedsim.aggregators.linear import LinearAggregator
from fedsim.config import NonNegativeInt
from fedsim.similarity import Matrix, distances_of, gram
from fedsim.weights import Vec, blocks


@dataclass(frozen=True)
class KrumParams:
    malicious: NonNegativeInt = 1  # f: malicious clients that are tolerated


@dataclass(frozen=True)
class MultiKrumParams(KrumParams):
    selected: NonNegativeInt = 0  # m: clients that are averaged; 0: n - f


def scores(distances: Matrix, malicious: int) -> Coefficients:
    """(1), for squared distances with a zero diagonal; one neighbour at least."""
    nearest = max(1, len(distances) - malicious - 2)
    return np.asarray(np.sort(distances, axis=1)[:, 1 : nearest + 1].sum(axis=1), np.float64)


class FromNeighbours(Aggregator):
    """Its guarantee needs more than `per_malicious` * f + 2 vectors."""

    params = KrumParams
    per_malicious: ClassVar[int] = 2

    @property
    def least(self) -> int:
        return self.per_malicious * int(self._params.malicious) + 3

    @property
    def bound(self) -> str:
        need = f"more than {self.per_malicious}f + 2 = {self.least - 1} clients"
        return f"aggregator.malicious={self._params.malicious} needs {need}"


class Krum(FromNeighbours, LinearAggregator):
    """the vector closest to its neighbours"""

    def selected(self, count: int) -> int:
        return 1

    def coefficients(self, products: Matrix, shares: Coefficients) -> Coefficients:
        lowest = np.argsort(scores(distances_of(products), self._params.malicious), kind="stable")
        chosen = lowest[: self.selected(len(shares))]
        found = np.zeros_like(shares)
        found[chosen] = shares[chosen] / shares[chosen].sum()  # (2)
        return found


class MultiKrum(Krum):
    """the weighted mean of the vectors closest to their neighbours"""

    params = MultiKrumParams

    def selected(self, count: int) -> int:
        return int(self._params.selected or count - self._params.malicious)


class Bulyan(FromNeighbours):
    """per coordinate the mean of the values around the median, of vectors that Krum chose; clients count equally"""

    per_malicious = 4

    def __call__(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        require(self, len(vectors))
        factors = factors_of(scales, len(vectors))
        distances = distances_of(gram(vectors) * np.outer(factors, factors))
        chosen = self._chosen(distances)
        kept = len(chosen) - 2 * self._params.malicious
        found = np.empty(vectors[0].size, np.float32)
        for block in blocks(found.size):
            values = np.stack([np.float32(factors[k]) * vectors[k][block] for k in chosen])
            found[block] = around_median(values, kept)  # (3)
        return found

    def _chosen(self, distances: Matrix) -> list[int]:
        left, chosen, malicious = list(range(len(distances))), list[int](), self._params.malicious
        for _ in range(len(distances) - 2 * malicious):
            best = int(np.argmin(scores(distances[np.ix_(left, left)], malicious))) if len(left) > 1 else 0
            chosen.append(left.pop(best))
        return chosen


def around_median(values: Vec, kept: int) -> NDArray[np.float64]:
    """In every column the mean of the `kept` values closest to the median: neighbours in sorted order."""
    ordered = np.sort(values, axis=0)
    median, count = np.median(ordered, axis=0), len(values)
    best, total = np.full(values.shape[1], np.inf), np.zeros(values.shape[1])
    for start in range(count - kept + 1):
        ends = ordered[start], ordered[start + kept - 1]
        reach = np.maximum(median - ends[0], ends[1] - median)
        closer = reach < best
        best[closer] = reach[closer]
        total[closer] = ordered[start : start + kept, closer].mean(axis=0, dtype=np.float64)
    return total
