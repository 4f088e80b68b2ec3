"""The classical label skews: McMahan's shards, a few classes per client, and Dirichlet proportions."""

from dataclasses import dataclass

import numpy as np

from fedsim.config import at_least, positive
from fedsim.errors import ConfigError
from partitions import dirichlet
from partitions.deal import among_holders, by_class, draw_labels, exists, hand_out, with_tests
from partitions.split import Labels, Partition, Share


@dataclass(frozen=True)
class ShardsParams:
    per_client: int = 2  # with the paper's 100 clients: 200 shards

    def __post_init__(self) -> None:
        at_least("partition.per_client", self.per_client, 1)


def shards(labels: Labels, clients: int, params: ShardsParams, rng: np.random.Generator) -> list[Share]:
    """Sort by label, cut into equal shards, deal each client the same number of them (McMahan et al. 2017, section 3)."""
    number = clients * params.per_client
    if number > len(labels.train):
        raise ConfigError(
            f"{len(labels.train)} samples do not make {number} shards; "
            f"the nearest that works is clients={max(1, len(labels.train) // params.per_client)}"
        )
    cuts = np.array_split(np.concatenate(by_class(labels.train, labels.classes, rng)), number)
    deck = rng.permutation(number).reshape(clients, params.per_client)
    return with_tests(labels, [np.concatenate([cuts[s] for s in hand]) for hand in deck], rng)


@dataclass(frozen=True)
class PathologicalParams:
    classes: int = 2  # per client

    def __post_init__(self) -> None:
        at_least("partition.classes", self.classes, 1)


def pathological(labels: Labels, clients: int, params: PathologicalParams, rng: np.random.Generator) -> list[Share]:
    """Each client draws k classes; the samples of a class go in equal parts to the clients that drew it."""
    exists("classes", params.classes, labels.classes)
    held = draw_labels(np.arange(labels.classes), clients, params.classes, rng)
    return with_tests(labels, among_holders(by_class(labels.train, labels.classes, rng), held), rng)


@dataclass(frozen=True)
class DirichletParams:
    alpha: float = 0.5  # smaller is more unequal
    min_size: int = 10
    balance: bool = True  # who already holds an average share gets no more of the next class (NIID-Bench)

    def __post_init__(self) -> None:
        positive("partition.alpha", self.alpha)
        at_least("partition.min_size", self.min_size, 1)


def by_dirichlet(labels: Labels, clients: int, params: DirichletParams, rng: np.random.Generator) -> list[Share]:
    """Each class is spread over the clients by its own Dirichlet draw."""
    pools = by_class(labels.train, labels.classes, rng)
    sizes = np.array([len(pool) for pool in pools])
    [counts] = dirichlet.counts([(sizes, clients)], params.alpha, params.min_size, rng, params.balance)
    return with_tests(labels, hand_out(pools, counts), rng)


SHARDS = Partition("shards", "McMahan: sort by label, cut into shards, two for each client", ShardsParams, shards)
PATHOLOGICAL = Partition("pathological", "k classes for each client, tests disjoint", PathologicalParams, pathological)
DIRICHLET = Partition(
    "dirichlet", "every class spread over the clients by Dirichlet(alpha)", DirichletParams, by_dirichlet
)
