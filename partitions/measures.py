"""How far apart clients (or classes) are: principal angles of their data, earth mover's distance, CKA, label entropy.

Signatures, angles and clusters are those of `fedsim.angles`, which servers use too.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from fedsim.angles import (
    Linkage,
    Matrix,
    Mode,
    Samples,
    cluster,
    cut_into,
    flat,
    merges,
    order_by_cluster,
    proximity,
    signature,
    signatures,
)

__all__ = [
    "Linkage",
    "Matrix",
    "Mode",
    "Pooled",
    "cluster",
    "cut_into",
    "flat",
    "label_entropy",
    "merges",
    "order_by_cluster",
    "proximity",
    "representation_cka",
    "signature",
    "signatures",
]

QUANTILES = 1000  # of the projected samples, to compare distributions
DIRECTIONS = 64  # principal directions of the pooled data that CKA compares
POOLED = 3000  # samples that the pooled directions are computed from


class Pooled:
    """Distances between clients that need directions common to all: the principal ones of their data together."""

    def __init__(self, clients: Sequence[Samples]):
        self._clients = clients
        quota = max(1, POOLED // len(clients))
        self._subset = np.concatenate([flat(x[:: -(-len(x) // quota)]) for x in clients])

    def emd(self, p: int = 3) -> Matrix:
        """Mean over the first p directions of the 1-D earth mover's distance, in deviations of the pooled data."""
        mean = self._subset.mean(axis=0)
        [axes] = signatures([self._subset - mean], min(p, *self._subset.shape))
        projected = [(flat(x) - mean) @ axes for x in self._clients]
        spread = np.concatenate(projected).std(axis=0)
        spread[spread == 0] = 1
        levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
        found = np.stack([np.quantile(x / spread, levels, axis=0, method="inverted_cdf") for x in projected])
        return np.asarray(squareform(pdist(found.reshape(len(projected), -1), "cityblock")) / found[0].size)

    def cka(self) -> Matrix:
        """Linear CKA over the values of a sample (pixels), a similarity: the cosine between the clients' Gram matrices.

        Values take the place of CKA's examples, so every sample is centered over its values: an image loses its mean
        brightness. (Centered over samples instead, on CIFAR-10, 1 - CKA cannot tell C-NIID from SC-NIID.)
        The Gram matrices, values x values, are projected on the strongest directions of the pooled data.
        """
        centered = ((values := flat(x)) - values.mean(axis=1, keepdims=True) for x in self._clients)
        subset = self._subset - self._subset.mean(axis=1, keepdims=True)
        [axes] = signatures([subset], min(DIRECTIONS, *subset.shape))
        projected = (x @ axes for x in centered)
        return _cosines([x.T @ x for x in projected])


def representation_cka(representations: Sequence[Samples]) -> Matrix:
    """Linear CKA over examples, between every two representations (N x features) of the same N inputs."""
    centered = (values - values.mean(axis=0) for values in map(flat, representations))
    return _cosines([x @ x.T for x in centered])


def _cosines(matrices: Sequence[Matrix]) -> Matrix:
    """Between every two Gram matrices, whose cosines are never negative."""
    rows = np.stack(matrices).reshape(len(matrices), -1)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(norms > 0, norms, 1)
    cosines = np.clip(rows @ rows.T, 0, 1)
    np.fill_diagonal(cosines, 1)
    return np.asarray(cosines)


def label_entropy(counts: NDArray[np.int64]) -> Matrix:
    """Per client, in bits: 0 for one class, log2(k) for k classes in equal parts."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(0 - (shares * logs).sum(axis=1))  # 0 - 0.0 is 0.0, where -(0.0) would be -0.0
