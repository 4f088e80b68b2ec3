"""FedAMP's practical split: clients form groups, and most of a client's data is of its group's dominating classes.

EMNIST by class, as in the paper (62 clients): digits, capitals and small letters dominate 10, 26 and 26 clients of
1000, 700 and 400 training samples; 80 % are uniform over the dominating classes, 20 % over the rest, and 100 tests have
the same proportions. The sizes are totals: the only reading under which the paper's two sentences on them both hold.

The paper's other datasets are described in an appendix that is not public. The template used for them here is OURS:
five groups (CIFAR-100: of four neighboring coarse labels each; else of consecutive classes, {0,1}, {2,3}, ... for ten)
of 600, 500, 400, 300 and 200 training samples, all smaller in proportion where the dataset is too small for that.
Everywhere, clients per group follow the number of its classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.config import Fraction, NonNegativeInt, PositiveInt
from fedsim.errors import ConfigError
from fedsim.partitions.allocation import Counts, allocate, apportion, by_class
from fedsim.partitions.split import Indices, Labels, Partition, Share

EMNIST_GROUPS = [np.arange(0, 10), np.arange(10, 36), np.arange(36, 62)]
EMNIST_SIZES = (1000, 700, 400)
OUR_SIZES = (600, 500, 400, 300, 200)
TESTS = 100
Sizes = tuple[int, ...]

# The coarse label of each fine label of CIFAR-100, as published with the dataset.
# fmt: off
CIFAR100_COARSE = np.array([
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7,
    6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10,
    16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16,
    12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
])
# fmt: on


@dataclass(frozen=True)
class PracticalParams:
    sizes: tuple[PositiveInt, ...] = ()  # training samples of a client, one per group; empty: the paper's
    dominant: Fraction = 0.8  # share of the dominating classes
    tests: NonNegativeInt = 0  # test samples of a client; 0: 100


def groups_of(classes: int) -> list[Indices]:
    """The groups of dominating classes."""
    if classes == 62:
        return EMNIST_GROUPS
    if classes == 100:
        return [np.flatnonzero(group == CIFAR100_COARSE // 4) for group in range(5)]
    return np.array_split(np.arange(classes), min(len(OUR_SIZES), classes))


def split(labels: Labels, clients: int, params: PracticalParams, rng: np.random.Generator) -> list[Share]:
    """Training and test samples by the group of each client; our sizes shrink to what a small dataset has."""
    groups = groups_of(labels.classes)
    sizes = params.sizes or (EMNIST_SIZES if labels.classes == 62 else OUR_SIZES[: len(groups)])
    if len(sizes) != len(groups):
        raise ConfigError(f"partition.sizes needs {len(groups)} sizes, one per group of classes, not {len(sizes)}")
    members = np.repeat(np.arange(len(groups)), apportion(clients, np.array([len(g) for g in groups], np.float64)))
    dominating = [groups[g] for g in members]
    pools = by_class(labels.train, labels.classes, rng)
    test_pools = by_class(labels.test, labels.classes, rng, start=len(labels.train))
    seeds = rng.integers(2**32, size=2)

    def train_counts(own: Sizes) -> Counts:
        return _counts([own[g] for g in members], dominating, labels.classes, params.dominant, seeds[0])

    def test_counts(own: Sizes) -> Counts:
        return _counts(own * clients, dominating, labels.classes, params.dominant, seeds[1])

    ours = groups is not EMNIST_GROUPS
    train = _feasible(pools, "sizes", sizes, train_counts, shrink=ours and not params.sizes)
    test = _feasible(test_pools, "tests", (params.tests or TESTS,), test_counts, shrink=ours and not params.tests)
    return [Share(*own) for own in zip(allocate(pools, train), allocate(test_pools, test), strict=True)]


def _counts(sizes: Sequence[int], dominating: Sequence[Indices], classes: int, dominant: float, seed: int) -> Counts:
    """Clients x classes: `dominant` of each size even over the dominating classes, the rest even over all others."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((len(sizes), classes), np.int64)
    for row, size, own in zip(counts, sizes, dominating, strict=True):
        others = np.setdiff1d(np.arange(classes), own)
        most = round(size * dominant) if len(others) else size
        for part, labels in ((most, own), (size - most, others)):
            if len(labels):
                row[rng.permutation(labels)] += apportion(part, np.ones(len(labels)))
    return counts


def _feasible(
    pools: Sequence[Indices], name: str, sizes: Sizes, counts: Callable[[Sizes], Counts], shrink: bool
) -> Counts:
    """`counts(sizes)` if the classes have as many samples, else that of the largest sizes in proportion that they have.

    Raises ConfigError with these sizes unless `shrink`.
    """
    have = np.array([len(pool) for pool in pools])
    wanted = counts(sizes).sum(axis=0)
    if (wanted <= have).all():
        return counts(sizes)

    def per_mille(part: int) -> Sizes:
        return tuple(size * part // 1000 for size in sizes)

    works, fails = 0, 1000
    while fails - works > 1:
        middle = (works + fails) // 2
        if (counts(per_mille(middle)).sum(axis=0) <= have).all():
            works = middle
        else:
            fails = middle
    largest = per_mille(works)
    if shrink and all(largest):
        return counts(largest)
    label = int(np.argmax(wanted / np.maximum(have, 1)))
    raise ConfigError(
        f"partition.{name}={','.join(map(str, sizes))} needs {wanted[label]} samples of class {label}, "
        f"which has {have[label]}; the nearest that works is "
        + (f"partition.{name}={','.join(map(str, largest))}" if all(largest) else "a smaller number of clients")
    )


PRACTICAL = Partition(
    "practical",
    "FedAMP: groups of clients, 80 % of the data from the group's dominating classes",
    PracticalParams,
    split,
)
