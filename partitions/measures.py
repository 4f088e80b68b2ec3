"""How far apart clients (or classes) are: principal angles of their data, earth mover's distance, CKA, label entropy.

Signatures and angles are those of "Rethinking Data Heterogeneity in FL": a client's signature is the first p left
singular vectors of its uncentered data matrix (one column per sample).
  Eq. 2  smallest angle.  `min_entry`: min over entries of arccos|u_a . v_b|, which made the published tables;
         `principal`: the strict smallest principal angle, arccos of the largest singular value of U'V.
  Eq. 3  trace of angles. `ordered`: sum over a of arccos|u_a . v_a|, as written; `published`: p times Eq. 2, which is
         what the printed numbers are (the authors' reordering step picks one pair p times).
Singular vectors are defined up to sign, so inner products are always taken without it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.sparse.linalg import svds
from scipy.spatial.distance import pdist, squareform
from threadpoolctl import threadpool_limits

from fedsim.errors import ConfigError, unknown
from fedsim.partitions.split import Clusters

Matrix = NDArray[np.float64]
Samples = NDArray[Any]  # N x anything
Mode = Literal["min_entry", "principal", "ordered", "published"]
Linkage = Literal["wpgma", "upgma", "complete"]

_SCIPY_METHOD: dict[Linkage, str] = {"wpgma": "weighted", "upgma": "average", "complete": "complete"}
QUANTILES = 1000  # of the projected samples, to compare distributions
DIRECTIONS = 64  # principal directions of the pooled data that CKA compares
POOLED = 3000  # samples that the pooled directions are computed from


def flat(x: Samples) -> Matrix:
    """N x all values of a sample, as float64."""
    return x.reshape(len(x), -1).astype(np.float64)


def signature(x: Samples, p: int = 3) -> Matrix:
    """dim x p: the first p left singular vectors of the uncentered data, the strongest first."""
    samples = flat(x)
    smaller = min(samples.shape)
    if p > smaller:
        raise ConfigError(
            f"{samples.shape[0]} samples of {samples.shape[1]} values have no {p} directions; use {smaller} or fewer"
        )
    if p > smaller // 4 or smaller < 50:  # too small for the iterative solver, and cheap anyway
        return np.asarray(np.linalg.svd(samples, full_matrices=False)[2][:p].T)
    _, strength, vectors = svds(samples, k=p, v0=np.ones(smaller))
    return np.asarray(vectors[np.argsort(-strength)].T)


def signatures(groups: Iterable[Samples], p: int = 3) -> list[Matrix]:
    """One per group. On one thread, which is faster for the solver's many small products."""
    with threadpool_limits(1):
        return [signature(x, p) for x in groups]


def proximity(signatures: Sequence[Matrix], mode: Mode = "min_entry") -> Matrix:
    """The angle in degrees between every two signatures; the diagonal is exactly zero."""
    stack = np.stack(signatures)  # n x dim x p
    n, dim, p = stack.shape
    columns = stack.transpose(1, 0, 2).reshape(dim, n * p)
    inner = (columns.T @ columns).reshape(n, p, n, p).transpose(0, 2, 1, 3)  # inner[i, j] = U_i' U_j
    if mode == "min_entry":
        angles = _degrees(np.abs(inner).max(axis=(2, 3)))
    elif mode == "principal":
        angles = _degrees(np.linalg.norm(inner, 2, axis=(2, 3)))
    elif mode == "ordered":
        angles = _degrees(np.diagonal(inner, axis1=2, axis2=3)).sum(axis=-1)
    elif mode == "published":
        angles = p * proximity(signatures)
    else:
        unknown("mode", mode, ("min_entry", "principal", "ordered", "published"))
    np.fill_diagonal(angles, 0)
    return angles


def _degrees(cosines: Matrix) -> Matrix:
    return np.asarray(np.degrees(np.arccos(np.clip(np.abs(cosines), 0, 1))))


def merges(distances: Matrix, linkage: Linkage = "wpgma") -> Matrix:
    """The agglomeration, one row per merge: the two clusters, the height, the size (scipy's linkage matrix)."""
    if linkage not in _SCIPY_METHOD:
        unknown("linkage", linkage, _SCIPY_METHOD)
    return np.asarray(hierarchy.linkage(squareform(distances, checks=False), _SCIPY_METHOD[linkage]))


def cluster(distances: Matrix, threshold: float | None = None, linkage: Linkage = "wpgma") -> Clusters:
    """Merge the closest until they are further apart than `threshold`; None: cut at the widest gap of merge heights."""
    if len(distances) == 1:
        return ((0,),)
    tree = merges(distances, linkage)
    if threshold is None:
        threshold = _widest_gap(tree[:, 2])
    names = hierarchy.fcluster(tree, threshold, "distance")
    groups = [tuple(np.flatnonzero(names == name).tolist()) for name in np.unique(names)]
    return tuple(sorted(groups))


def cut_into(count: int, distances: Matrix) -> tuple[Clusters, tuple[float, float]]:
    """So many clusters, and the thresholds that give them: from the last merge before to the first one after."""
    heights = [0.0, *merges(distances)[:, 2].tolist(), np.inf]
    low, high = heights[len(distances) - count : len(distances) - count + 2]
    return cluster(distances, low), (low, high)


def _widest_gap(heights: Matrix) -> float:
    """The middle of the widest gap between merge heights that leaves two members per cluster or more on average."""
    first = len(heights) // 2  # as many merges halve the number of clusters
    if first + 1 >= len(heights):
        return float(heights[-1])
    after = first + int(np.argmax(np.diff(heights)[first:]))
    return float(heights[after : after + 2].mean())


def order_by_cluster(distances: Matrix) -> list[int]:
    """The clients in an order that puts those close to each other side by side."""
    return list(range(len(distances))) if len(distances) < 3 else hierarchy.leaves_list(merges(distances)).tolist()


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
