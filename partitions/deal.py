"""The moves every split is made of: shuffle a class, cut it by weight, hand it to its holders, let the tests follow."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError
from partitions.split import Indices, Labels, Share

Counts = NDArray[np.int64]  # clients x classes, or one number per client


def by_class(labels: Indices, classes: int, rng: np.random.Generator, start: int = 0) -> list[Indices]:
    """The indices of each class, shuffled, counted from `start`."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return cut(order + start, np.bincount(labels, minlength=classes))


def cut(indices: Indices, sizes: Counts) -> list[Indices]:
    """Consecutive pieces of the given sizes; what is left over goes to nobody."""
    ends = np.cumsum(sizes)
    return np.split(indices[: ends[-1]], ends[:-1])


def whole(total: int, weights: NDArray[np.float64]) -> Counts:
    """`total` cut in proportion to `weights` into whole numbers that add up (largest remainders first)."""
    exact = total * weights / weights.sum()
    counts: Counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def hand_out(pools: Sequence[Indices], counts: Counts) -> list[Indices]:
    """Client i gets the next `counts[i, c]` samples of every class c."""
    pieces = [cut(pool, counts[:, c]) for c, pool in enumerate(pools)]
    return [np.concatenate(mine) for mine in zip(*pieces, strict=True)]


def class_counts(labels: Indices, shares: Sequence[Indices], classes: int) -> Counts:
    return np.stack([np.bincount(labels[share], minlength=classes) for share in shares])


def draw_labels(labels: Indices, clients: int, each: int, rng: np.random.Generator) -> list[Indices]:
    """Client j holds the label at place j (mod how many there are) of a shuffled list, and random distinct others.

    Labels beyond the last client's go out first among the others, so every label is used if there is room for it.
    """
    order = rng.permutation(labels)
    held = []
    for client in range(clients):
        first = order[client % len(order) : client % len(order) + 1]
        orphans = order[clients + client :: clients]
        others = rng.permutation(np.setdiff1d(labels, np.concatenate([first, orphans])))
        held.append(np.concatenate([first, orphans, others])[:each])
    return held


def among_holders(pools: Sequence[Indices], held: Sequence[Indices]) -> list[Indices]:
    """Each label's samples in equal parts to the clients that hold it."""
    counts = np.zeros((len(held), len(pools)), np.int64)
    for client, own in enumerate(held):
        counts[client, own] = 1
    for c in np.flatnonzero(counts.sum(axis=0)).tolist():
        holders = int(counts[:, c].sum())
        if len(pools[c]) < holders:
            raise ConfigError(
                f"class {c} has {len(pools[c])} samples for {holders} clients; "
                f"with clients={min(len(pool) for pool in pools)} or fewer every class is sure to be enough"
            )
        counts[:, c] = whole(len(pools[c]), counts[:, c].astype(np.float64))
    return hand_out(pools, counts)


def with_tests(labels: Labels, trains: Sequence[Indices], rng: np.random.Generator) -> list[Share]:
    """Tests that follow the training data: each class's test samples go to its holders in proportion to what they hold.

    The tests are complete over the classes that are held, and disjoint as long as there are enough to go round.
    """
    held = class_counts(labels.train, trains, labels.classes)
    pools = by_class(labels.test, labels.classes, rng, start=len(labels.train))
    counts = np.zeros_like(held)
    for c in np.flatnonzero(held.sum(axis=0)).tolist():
        counts[:, c] = whole(len(pools[c]), held[:, c].astype(np.float64))
    _feed_the_empty(counts, held)
    tests = hand_out(pools, counts)
    for client in np.flatnonzero(counts.sum(axis=1) == 0).tolist():
        tests[client] = rng.choice(_any_of(pools, held[client]), 1)
    return [Share(train, test) for train, test in zip(trains, tests, strict=True)]


def _feed_the_empty(counts: Counts, held: Counts) -> None:
    """Whoever came out with no test sample gets one of a class it holds, from the client with the most of that class."""
    for client in np.flatnonzero(counts.sum(axis=1) == 0):
        spare = np.where(counts.sum(axis=1)[:, None] > 1, counts, 0)
        spare[:, held[client] == 0] = 0
        giver, label = np.unravel_index(spare.argmax(), spare.shape)
        if spare[giver, label] > 0:
            counts[giver, label] -= 1
            counts[client, label] += 1


def _any_of(pools: Sequence[Indices], held: Counts) -> Indices:
    """The test samples of the classes a client holds: where there are too few for all, it shares one with another."""
    own = np.concatenate([pools[c] for c in np.flatnonzero(held).tolist()])
    if len(own) == 0:
        raise ConfigError(f"the test part has no samples of class {np.flatnonzero(held)[0]}, all that one client holds")
    return own


def with_all_tests(labels: Labels, trains: Sequence[Indices]) -> list[Share]:
    """Every client is tested on all test samples of every label it holds, so tests overlap between clients."""
    held = class_counts(labels.train, trains, labels.classes) > 0
    start = len(labels.train)
    return [Share(train, np.flatnonzero(own[labels.test]) + start) for train, own in zip(trains, held, strict=True)]


def enough(samples: int, clients: int) -> None:
    if samples < clients:
        raise ConfigError(
            f"{samples} samples cannot give each of {clients} clients one; use clients={samples} or fewer"
        )


def exists(name: str, wanted: int, classes: int) -> None:
    if wanted > classes:
        raise ConfigError(
            f"partition.{name}={wanted} is more than the {classes} classes there are; use {classes} or fewer"
        )
