"""The classical label skews: McMahan's shards, a few classes per client, and Dirichlet proportions."""

from dataclasses import dataclass

import numpy as np

from fedsim.config import NonNegativeInt, PositiveFloat, PositiveInt
from fedsim.errors import ConfigError
from fedsim.partitions import dirichlet
from fedsim.partitions.allocation import (
    allocate,
    allocate_equally,
    by_class,
    draw_classes,
    reduced,
    require_classes,
    with_proportional_tests,
)
from fedsim.partitions.split import Labels, Partition, Share


@dataclass(frozen=True)
class ShardsParams:
    per_client: PositiveInt = 2  # shards per client; with the paper's 100 clients there are 200
    size: NonNegativeInt = 0  # training samples per client; 0: all there are


def shards(labels: Labels, clients: int, params: ShardsParams, rng: np.random.Generator) -> list[Share]:
    """Sort by label, cut into equal shards, equally many for each client (McMahan et al. 2017, section 3)."""
    number = clients * params.per_client
    samples = np.concatenate(reduced(by_class(labels.train, labels.classes, rng), clients, params.size))
    if number > len(samples):
        raise ConfigError(
            f"{len(samples)} samples do not make {number} shards; "
            f"the nearest that works is clients={max(1, len(samples) // params.per_client)}"
        )
    pieces = np.array_split(samples, number)
    drawn = rng.permutation(number).reshape(clients, params.per_client)
    return with_proportional_tests(labels, [np.concatenate([pieces[s] for s in row]) for row in drawn], rng)


@dataclass(frozen=True)
class PathologicalParams:
    classes: PositiveInt = 2  # classes per client


def pathological(labels: Labels, clients: int, params: PathologicalParams, rng: np.random.Generator) -> list[Share]:
    """Each client draws k classes; the samples of a class go in equal parts to the clients that drew it."""
    require_classes("classes", params.classes, labels.classes)
    held = draw_classes(np.arange(labels.classes), clients, params.classes, rng)
    trains = allocate_equally(by_class(labels.train, labels.classes, rng), held)
    return with_proportional_tests(labels, trains, rng)


@dataclass(frozen=True)
class DirichletParams:
    alpha: PositiveFloat = 0.5  # smaller is more unequal
    min_size: PositiveInt = 10  # training samples of a client, at least
    balance: bool = True  # a client that holds an average share already gets no more of the next class (NIID-Bench)
    size: NonNegativeInt = 0  # training samples per client on average; 0: all there are


def by_dirichlet(labels: Labels, clients: int, params: DirichletParams, rng: np.random.Generator) -> list[Share]:
    """Each class is spread over the clients by its own Dirichlet draw."""
    pools = reduced(by_class(labels.train, labels.classes, rng), clients, params.size)
    sizes = np.array([len(pool) for pool in pools])
    [counts] = dirichlet.counts([(sizes, clients)], params.alpha, params.min_size, rng, params.balance)
    return with_proportional_tests(labels, allocate(pools, counts), rng)


SHARDS = Partition("shards", "McMahan: sort by label, cut into shards, two for each client", ShardsParams, shards)
PATHOLOGICAL = Partition("pathological", "k classes for each client, tests disjoint", PathologicalParams, pathological)
DIRICHLET = Partition(
    "dirichlet", "every class spread over the clients by Dirichlet(alpha)", DirichletParams, by_dirichlet
)
