"""The steps that splits share: shuffle each class, divide it by weight, allocate it to clients, choose the tests."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError
from fedsim.partitions.split import Indices, Labels, Share

Counts = NDArray[np.int64]  # clients x classes, or one number per client


def by_class(labels: Indices, classes: int, rng: np.random.Generator, start: int = 0) -> list[Indices]:
    """The indices of each class, shuffled, counted from `start`."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return cut(order + start, np.bincount(labels, minlength=classes))


def cut(indices: Indices, sizes: Counts) -> list[Indices]:
    """Consecutive pieces of the given sizes; the remainder is dropped."""
    ends = np.cumsum(sizes)
    return np.split(indices[: ends[-1]], ends[:-1])


def reduced(pools: Sequence[Indices], clients: int, size: int) -> list[Indices]:
    """Samples for so many clients of `size` on average, every class in its proportion; all samples if size is 0."""
    sizes = np.array([len(pool) for pool in pools])
    if clients * size > sizes.sum():
        raise ConfigError(
            f"partition.size={size} asks for {clients * size} training samples of {sizes.sum()}; "
            f"the nearest that works is partition.size={sizes.sum() // clients}"
        )
    if not size:
        return list(pools)
    kept = apportion(clients * size, sizes.astype(np.float64))
    return [pool[:count] for pool, count in zip(pools, kept, strict=True)]


def apportion(total: int, weights: NDArray[np.float64]) -> Counts:
    """Whole numbers in proportion to `weights` that add up to `total` (largest remainders first)."""
    exact = total * weights / weights.sum()
    counts: Counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def allocate(pools: Sequence[Indices], counts: Counts) -> list[Indices]:
    """Client i gets the next `counts[i, c]` samples of every class c; `pools` holds the samples of each class."""
    pieces = [cut(pool, counts[:, c]) for c, pool in enumerate(pools)]
    return [np.concatenate(of_client) for of_client in zip(*pieces, strict=True)]


def allocate_equally(pools: Sequence[Indices], held: Sequence[Indices]) -> list[Indices]:
    """The samples of each class in equal parts to the clients that hold it; `held` lists the classes of each client."""
    counts = np.zeros((len(held), len(pools)), np.int64)
    for client, classes in enumerate(held):
        counts[client, classes] = 1
    for c in np.flatnonzero(counts.sum(axis=0)).tolist():
        holders = int(counts[:, c].sum())
        if len(pools[c]) < holders:
            raise ConfigError(
                f"class {c} has {len(pools[c])} samples for {holders} clients; "
                f"with clients={min(len(pool) for pool in pools)} or fewer every class is sure to be enough"
            )
        counts[:, c] = apportion(len(pools[c]), counts[:, c].astype(np.float64))
    return allocate(pools, counts)


def class_counts(labels: Indices, shares: Sequence[Indices], classes: int) -> Counts:
    """Clients x classes: the samples of each class in each client's indices."""
    return np.stack([np.bincount(labels[share], minlength=classes) for share in shares])


def draw_classes(classes: Indices, clients: int, each: int, rng: np.random.Generator) -> list[Indices]:
    """`each` distinct classes for every client: one by its place in a shuffled list of all, the others at random.

    Classes beyond the number of clients are drawn first among the others, so that every class has a client if there is
    room for it.
    """
    order = rng.permutation(classes)
    held = []
    for client in range(clients):
        first = order[client % len(order) : client % len(order) + 1]
        without_client = order[clients + client :: clients]
        others = rng.permutation(np.setdiff1d(classes, np.concatenate([first, without_client])))
        held.append(np.concatenate([first, without_client, others])[:each])
    return held


def with_proportional_tests(labels: Labels, trains: Sequence[Indices], rng: np.random.Generator) -> list[Share]:
    """The test samples of each class go to the clients that hold it, in proportion to their training samples of it.

    All test samples of the held classes are used, and no two clients share one unless there are too few.
    """
    held = class_counts(labels.train, trains, labels.classes)
    pools = by_class(labels.test, labels.classes, rng, start=len(labels.train))
    counts = np.zeros_like(held)
    for c in np.flatnonzero(held.sum(axis=0)).tolist():
        counts[:, c] = apportion(len(pools[c]), held[:, c].astype(np.float64))
    _fill_empty_tests(counts, held)
    tests = allocate(pools, counts)
    for client in np.flatnonzero(counts.sum(axis=1) == 0).tolist():
        tests[client] = rng.choice(_tests_of_classes(pools, held[client]), 1)
    return [Share(train, test) for train, test in zip(trains, tests, strict=True)]


def _fill_empty_tests(counts: Counts, held: Counts) -> None:
    """Moves a test sample to each client without any: of a class it holds, from the client with the most of it."""
    for client in np.flatnonzero(counts.sum(axis=1) == 0):
        spare = np.where(counts.sum(axis=1)[:, None] > 1, counts, 0)
        spare[:, held[client] == 0] = 0
        giver, label = np.unravel_index(spare.argmax(), spare.shape)
        if spare[giver, label] > 0:
            counts[giver, label] -= 1
            counts[client, label] += 1


def _tests_of_classes(pools: Sequence[Indices], held: Counts) -> Indices:
    """The test samples of the classes a client holds, of which it takes one that another client has too."""
    tests = np.concatenate([pools[c] for c in np.flatnonzero(held).tolist()])
    if len(tests) == 0:
        raise ConfigError(f"the test part has no samples of class {np.flatnonzero(held)[0]}, all that one client holds")
    return tests


def with_all_tests(labels: Labels, trains: Sequence[Indices], limit: int, rng: np.random.Generator) -> list[Share]:
    """Every client is tested on the test samples of every class it holds, so tests overlap between clients.

    On all of them, or on `limit` random ones.
    """
    held = class_counts(labels.train, trains, labels.classes) > 0
    start = len(labels.train)
    return [
        Share(train, at_most(limit, np.flatnonzero(own[labels.test]) + start, rng))
        for train, own in zip(trains, held, strict=True)
    ]


def at_most(limit: int, samples: Indices, rng: np.random.Generator) -> Indices:
    """So many random ones of the samples, or all of them if they are no more or the limit is 0."""
    return rng.choice(samples, limit, replace=False) if 0 < limit < len(samples) else samples


def require_samples(samples: int, clients: int) -> None:
    """Raises ConfigError unless every client can have a sample."""
    if samples < clients:
        raise ConfigError(
            f"{samples} samples cannot give each of {clients} clients one; use clients={samples} or fewer"
        )


def require_classes(name: str, wanted: int, classes: int) -> None:
    """Raises ConfigError if the parameter `name` asks for more classes than there are."""
    if wanted > classes:
        raise ConfigError(
            f"partition.{name}={wanted} is more than the {classes} classes there are; use {classes} or fewer"
        )
