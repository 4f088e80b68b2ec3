"""Signatures of data, the angles between them, and agglomerative clusters of what such distances relate.

Those of "Rethinking Data Heterogeneity in FL": a client's signature is the first p left singular vectors of its
uncentered data matrix (one column per sample).
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
from scipy.spatial.distance import squareform
from threadpoolctl import threadpool_limits

from fedsim.errors import ConfigError, unknown

Matrix = NDArray[np.float64]
Samples = NDArray[Any]  # N x anything
Clusters = tuple[tuple[int, ...], ...]
Mode = Literal["min_entry", "principal", "ordered", "published"]
Linkage = Literal["wpgma", "upgma", "complete"]

_SCIPY_METHOD: dict[Linkage, str] = {"wpgma": "weighted", "upgma": "average", "complete": "complete"}


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


def halves(distances: Matrix, linkage: Linkage = "complete") -> NDArray[np.bool_]:
    """The last two clusters: which of the members are not with the first one."""
    names = hierarchy.cut_tree(merges(distances, linkage), n_clusters=2)[:, 0]
    return np.asarray(names != names[0])


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
