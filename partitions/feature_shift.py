"""Splits in which the samples of clients look different: four datasets side by side, rotations, or one dataset each."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsim.config import NonNegativeInt, PositiveInt
from fedsim.errors import ConfigError
from fedsim.partitions.allocation import allocate, apportion, at_most, by_class, require_samples
from fedsim.partitions.catalogue import MIX4 as MIX4_DATASET
from fedsim.partitions.iid import IidParams, iid
from fedsim.partitions.split import Indices, Labels, Partition, Share
from fedsim.partitions.transforms import rotation

# MIX-4's clients, in the order of its datasets: 14 + 32 + 26 + 28 = 100. (The printed 31 + 25 + 27 + 14 = 97 are the
# differences of the first and last client numbers in the authors' code, each one short.)
MIX4_CLIENTS = np.array([14.0, 32.0, 26.0, 28.0])


@dataclass(frozen=True)
class Mix4Params:
    size: PositiveInt = 500  # training samples of a client
    tests: NonNegativeInt = 0  # test samples of a client; 0: the whole test part of its dataset


def mix4(labels: Labels, clients: int, params: Mix4Params, rng: np.random.Generator) -> list[Share]:
    """Each client holds samples of one of the four datasets and is tested on that dataset's whole test part."""
    if labels.sources != MIX4_DATASET.parts or labels.source is None:
        raise ConfigError(f"partition mix4 splits {', '.join(MIX4_DATASET.parts)} side by side: use dataset=mix4")
    if clients < len(labels.sources):
        raise ConfigError(
            f"partition mix4 needs a client for each of its four datasets; use clients={len(labels.sources)} or more"
        )
    # at least one client for each dataset, and the paper's numbers for 100 clients
    members = 1 + apportion(clients - len(labels.sources), MIX4_CLIENTS - 1)
    shares = []
    for number, group in enumerate(members.tolist()):
        train, test = _of_source(labels, number)
        trains = _samples(labels, number, train, group, params.size, rng)
        shares += [Share(own, at_most(params.tests, test, rng)) for own in trains]
    return shares


def _samples(
    labels: Labels, number: int, train: Indices, clients: int, size: int, rng: np.random.Generator
) -> list[Indices]:
    """Equally many of every class, or at random where a class has too few (USPS)."""
    if clients * size > len(train):
        raise ConfigError(
            f"{clients} clients of {size} samples need {clients * size}; {labels.sources[number]} has {len(train)}; "
            f"the nearest that works is partition.size={len(train) // clients}"
        )
    pools = [train[pool] for pool in by_class(labels.train[train], labels.classes, rng) if len(pool)]
    counts = np.stack([rng.permutation(apportion(size, np.ones(len(pools)))) for _ in range(clients)])
    if all(counts.sum(axis=0) <= [len(pool) for pool in pools]):
        return allocate(pools, counts)
    return np.split(rng.permutation(train)[: clients * size], clients)


def _of_source(labels: Labels, number: int) -> tuple[Indices, Indices]:
    """The pooled indices of one source: its training part, its test part."""
    own = np.flatnonzero(labels.source == number)
    return own[own < len(labels.train)], own[own >= len(labels.train)]


@dataclass(frozen=True)
class FeatureShiftParams:
    by: Literal["rotation", "source"] = "rotation"  # what differs; source: one dataset of A+B per group
    rotations: Literal[2, 4] = 4  # groups of clients, rotated by multiples of 180 (2) or 90 (4) degrees


def feature_shift(labels: Labels, clients: int, params: FeatureShiftParams, rng: np.random.Generator) -> list[Share]:
    """The same label distribution for all clients; groups of clients whose samples look different."""
    if params.by == "rotation":
        return _rotated(iid(labels, clients, IidParams(), rng), params.rotations)
    if labels.source is None:
        raise ConfigError(
            "partition.by=source needs several datasets side by side, such as dataset=mnist+usps or dataset=mix4"
        )
    if clients < len(labels.sources):
        raise ConfigError(
            f"{clients} clients cannot hold {len(labels.sources)} datasets; use clients={len(labels.sources)} or more"
        )
    shares = []
    for number, members in enumerate(apportion(clients, np.ones(len(labels.sources))).tolist()):
        train, test = _of_source(labels, number)
        require_samples(len(train), members)
        require_samples(len(test), members)
        pieces = (np.array_split(rng.permutation(part), members) for part in (train, test))
        shares += [Share(*own) for own in zip(*pieces, strict=True)]
    return shares


def _rotated(shares: list[Share], rotations: int) -> list[Share]:
    step = 360 // rotations
    return [share._replace(transform=rotation(step * (i * rotations // len(shares)))) for i, share in enumerate(shares)]


MIX4 = Partition(
    "mix4", "100 clients on four datasets, 14 + 32 + 26 + 28, each tested on its whole dataset", Mix4Params, mix4
)
FEATURE_SHIFT = Partition(
    "feature-shift",
    "equal labels, different images: rotated groups, or one dataset each",
    FeatureShiftParams,
    feature_shift,
)
