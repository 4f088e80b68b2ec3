"""The splits of "Rethinking Data Heterogeneity in FL": label skew over all classes (c-) or inside super clusters (sc-).

Clients belong to one super cluster each and draw labels only from it. c-niid and c-dir are NIID-Bench's label splits,
as the text says; `partition.pseudo-clusters=true` is what the authors' code ran for its tables: the sc- routine on
random clusters of the same sizes. Every client is tested on all test samples of its labels, or on `tests` of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsim.config import NonNegativeInt, PositiveFloat, PositiveInt
from fedsim.errors import ConfigError
from fedsim.partitions import dirichlet
from fedsim.partitions.allocation import (
    Counts,
    allocate,
    allocate_equally,
    apportion,
    by_class,
    draw_classes,
    reduced,
    require_classes,
    with_all_tests,
)
from fedsim.partitions.split import Clusters, Indices, Labels, Partition, Share

Allocation = Literal["proportional", "official-code"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    size: NonNegativeInt = 0  # training samples per client on average; 0: all there are
    tests: NonNegativeInt = 0  # test samples per client, of its labels; 0: all of them


@dataclass(frozen=True)
class CNiidParams(Scale):
    labels: NonNegativeInt = 0  # per client; 0: two, or a fifth of the classes if that is more (the paper's "(2)")
    pseudo_clusters: bool = False  # as in the authors' code: inside random clusters of the same sizes


@dataclass(frozen=True)
class ScNiidParams(Scale):
    labels: NonNegativeInt = 0  # labels of its super cluster per client; 0: as for c-niid
    clusters: str = "auto"  # auto (table 7, else discovered) | discover | spelled out: 0,1,8,9/2,3,4,5,6,7
    allocation: Allocation = "proportional"  # how many clients a cluster gets


@dataclass(frozen=True)
class CDirParams(Scale):
    alpha: PositiveFloat = 0.5  # smaller is more unequal
    min_size: PositiveInt = 10  # training samples of a client, at least
    pseudo_clusters: bool = False  # as in the authors' code: inside random clusters of the same sizes


@dataclass(frozen=True)
class ScDirParams(Scale):
    alpha: PositiveFloat = 0.5  # smaller is more unequal
    min_size: PositiveInt = 15  # training samples of a client, at least
    clusters: str = "auto"  # auto (table 7, else discovered) | discover | spelled out: 0,1,8,9/2,3,4,5,6,7
    allocation: Allocation = "proportional"  # how many clients a cluster gets


def c_niid(labels: Labels, clients: int, params: CNiidParams, rng: np.random.Generator) -> list[Share]:
    if params.pseudo_clusters:
        clusters = _shuffled(_super_clusters(labels, "auto"), rng)
        return _niid(labels, clusters, clients, params, "proportional", rng)
    require_classes("labels", params.labels, labels.classes)
    classes = np.arange(labels.classes)
    held = draw_classes(classes, clients, params.labels or _default_labels(len(classes)), rng)
    return with_all_tests(labels, allocate_equally(_pools(labels, clients, params, rng), held), params.tests, rng)


def sc_niid(labels: Labels, clients: int, params: ScNiidParams, rng: np.random.Generator) -> list[Share]:
    clusters = _super_clusters(labels, params.clusters)
    return _niid(labels, clusters, clients, params, params.allocation, rng)


def c_dir(labels: Labels, clients: int, params: CDirParams, rng: np.random.Generator) -> list[Share]:
    clusters: Clusters = (tuple(range(labels.classes)),)
    if params.pseudo_clusters:
        clusters = _shuffled(_super_clusters(labels, "auto"), rng)
    return _dir(labels, clusters, _members(clusters, clients, "proportional", rng), params, rng)


def sc_dir(labels: Labels, clients: int, params: ScDirParams, rng: np.random.Generator) -> list[Share]:
    clusters = _super_clusters(labels, params.clusters)
    members = _members(clusters, clients, params.allocation, rng)
    return _dir(labels, clusters, members, params, rng)


def _pools(labels: Labels, clients: int, scale: Scale, rng: np.random.Generator) -> list[Indices]:
    """The training samples of each class that are given out."""
    return reduced(by_class(labels.train, labels.classes, rng), clients, scale.size)


def _niid(
    labels: Labels,
    clusters: Clusters,
    clients: int,
    params: CNiidParams | ScNiidParams,
    allocation: Allocation,
    rng: np.random.Generator,
) -> list[Share]:
    """A few labels of its cluster for each client, each label's samples in equal parts to its holders."""
    each = params.labels
    smallest = min(map(len, clusters))
    if each > smallest:
        raise ConfigError(
            f"partition.labels={each} is more than the {smallest} labels of a super cluster; use {smallest} or fewer"
        )
    wanted = [each or min(_default_labels(len(cluster)), len(cluster)) for cluster in clusters]
    needed = _clients_needed(clusters, wanted, allocation)
    if clients < needed:
        raise ConfigError(
            f"{clients} clients with {min(wanted)} labels each cannot use every label of every super cluster; "
            f"use clients={needed} or more"
        )
    members = _members(clusters, clients, allocation, rng)
    drawn = [
        draw_classes(np.array(cluster), n, number, rng)
        for cluster, n, number in zip(clusters, members.tolist(), wanted, strict=True)
    ]
    held = [own for group in drawn for own in group]
    return with_all_tests(labels, allocate_equally(_pools(labels, clients, params, rng), held), params.tests, rng)


def _clients_needed(clusters: Clusters, wanted: Sequence[int], allocation: Allocation) -> int:
    """The smallest number from which on every cluster gets enough clients to use all its labels."""
    labels = np.array([len(cluster) for cluster in clusters])
    needed = sum(map(len, clusters))
    while needed > len(clusters):
        members = _members(clusters, needed - 1, allocation, np.random.default_rng(0))
        if (members * np.array(wanted) < labels).any():
            break
        needed -= 1
    return needed


def _dir(
    labels: Labels, clusters: Clusters, members: Counts, params: CDirParams | ScDirParams, rng: np.random.Generator
) -> list[Share]:
    """Dirichlet proportions of the cluster's classes among the cluster's clients."""
    pools = _pools(labels, int(members.sum()), params, rng)
    own = [[pools[label] for label in cluster] for cluster in clusters]
    groups = [(np.array([len(p) for p in part]), n) for part, n in zip(own, members.tolist(), strict=True)]
    counts = dirichlet.counts(groups, params.alpha, params.min_size, rng)
    trains = [train for part, drawn in zip(own, counts, strict=True) for train in allocate(part, drawn)]
    return with_all_tests(labels, trains, params.tests, rng)


def _default_labels(classes: int) -> int:
    return max(2, -(-classes // 5))


def _super_clusters(labels: Labels, choice: str) -> Clusters:
    if labels.super_clusters is None:
        raise ConfigError("this split needs to know which classes look alike, and these labels come without samples")
    return labels.super_clusters(choice)


def _shuffled(clusters: Clusters, rng: np.random.Generator) -> Clusters:
    """Random clusters of the same sizes. (The authors' code draws overlapping ones by mistake; newer numpy refuses.)"""
    order = iter(rng.permutation(sum(map(len, clusters))).tolist())
    return tuple(tuple(next(order) for _ in cluster) for cluster in clusters)


def _members(clusters: Clusters, clients: int, allocation: Allocation, rng: np.random.Generator) -> Counts:
    """Clients per super cluster: in proportion to its classes (the text), or to 1 + its share of them (the code)."""
    if clients < len(clusters):
        raise ConfigError(
            f"{clients} clients cannot fill {len(clusters)} super clusters; use clients={len(clusters)} or more"
        )
    sizes = np.array([len(cluster) for cluster in clusters], np.float64)
    if allocation == "proportional":
        members = np.maximum(apportion(clients, sizes), 1)
    else:
        weights = 1 + sizes / sizes.sum()
        members = np.ceil(clients * weights / weights.sum()).astype(np.int64)
    while members.sum() > clients:
        larger = np.flatnonzero(members == members.max() if allocation == "proportional" else members > 1)
        members[rng.choice(larger)] -= 1
    return members


C_NIID = Partition("c-niid", "a few labels for each client, drawn from all classes", CNiidParams, c_niid)
SC_NIID = Partition("sc-niid", "a few labels for each client, drawn from its super cluster", ScNiidParams, sc_niid)
C_DIR = Partition("c-dir", "Dirichlet proportions over all classes", CDirParams, c_dir)
SC_DIR = Partition("sc-dir", "Dirichlet proportions inside each client's super cluster", ScDirParams, sc_dir)
