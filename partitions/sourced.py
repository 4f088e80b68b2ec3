"""Splits in which clients' images look different: four datasets side by side, rotations, or one dataset each."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsim.config import at_least
from fedsim.errors import ConfigError
from partitions.catalogue import MIX4 as MIX4_DATASET
from partitions.deal import by_class, enough, hand_out, whole
from partitions.split import Indices, Labels, Partition, Share
from partitions.uniform import IidParams, iid

# MIX-4's clients, in the order of its datasets: 14 + 32 + 26 + 28 = 100. (The printed 31 + 25 + 27 + 14 = 97 are the
# differences of the first and last client numbers in the authors' code, each one short.)
MIX4_CLIENTS = np.array([14.0, 32.0, 26.0, 28.0])


@dataclass(frozen=True)
class Mix4Params:
    size: int = 500  # training samples of a client

    def __post_init__(self) -> None:
        at_least("partition.size", self.size, 1)


def mix4(labels: Labels, clients: int, params: Mix4Params, rng: np.random.Generator) -> list[Share]:
    """Each client holds samples of one of the four datasets and is tested on that dataset's whole test part."""
    if labels.sources != MIX4_DATASET.parts or labels.source is None:
        raise ConfigError(f"partition mix4 splits {', '.join(MIX4_DATASET.parts)} side by side: use dataset=mix4")
    if clients < len(labels.sources):
        raise ConfigError(
            f"partition mix4 needs a client for each of its four datasets; use clients={len(labels.sources)} or more"
        )
    members = 1 + whole(
        clients - len(labels.sources), MIX4_CLIENTS - 1
    )  # nobody is left out, and 100 give the paper's numbers
    shares = []
    for number, group in enumerate(members.tolist()):
        train, test = _parts(labels, number)
        shares += [Share(own, test) for own in _samples(labels, number, train, group, params.size, rng)]
    return shares


def _samples(
    labels: Labels, number: int, train: Indices, clients: int, size: int, rng: np.random.Generator
) -> list[Indices]:
    """Equally many of every class where the classes have them; USPS has too few for that, so its clients draw at random."""
    if clients * size > len(train):
        raise ConfigError(
            f"{clients} clients of {size} samples need {clients * size}, but {labels.sources[number]} has {len(train)}; "
            f"the nearest that works is partition.size={len(train) // clients}"
        )
    pools = [train[pool] for pool in by_class(labels.train[train], labels.classes, rng) if len(pool)]
    counts = np.stack([rng.permutation(whole(size, np.ones(len(pools)))) for _ in range(clients)])
    if all(counts.sum(axis=0) <= [len(pool) for pool in pools]):
        return hand_out(pools, counts)
    return np.split(rng.permutation(train)[: clients * size], clients)


def _parts(labels: Labels, number: int) -> tuple[Indices, Indices]:
    """The pooled indices of one source: its training part, its test part."""
    own = np.flatnonzero(labels.source == number)
    return own[own < len(labels.train)], own[own >= len(labels.train)]


@dataclass(frozen=True)
class FeatureShiftParams:
    by: Literal["rotation", "source"] = "rotation"  # source: one dataset of a dataset such as mnist+usps per group
    rotations: int = 4  # groups of clients, turned by equal parts of the circle: 2 or 4

    def __post_init__(self) -> None:
        if self.rotations not in (2, 4):
            raise ConfigError(f"partition.rotations must be 2 (half turns) or 4 (quarter turns), not {self.rotations}")


def feature_shift(labels: Labels, clients: int, params: FeatureShiftParams, rng: np.random.Generator) -> list[Share]:
    """The same label distribution for all; groups of clients whose images differ."""
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
    for number, members in enumerate(whole(clients, np.ones(len(labels.sources))).tolist()):
        train, test = _parts(labels, number)
        enough(len(train), members)
        enough(len(test), members)
        pieces = (np.array_split(rng.permutation(part), members) for part in (train, test))
        shares += [Share(*own) for own in zip(*pieces, strict=True)]
    return shares


def _rotated(shares: list[Share], rotations: int) -> list[Share]:
    turn = 4 // rotations
    return [share._replace(turns=turn * (i * rotations // len(shares))) for i, share in enumerate(shares)]


MIX4 = Partition(
    "mix4", "100 clients on four datasets, 14 + 32 + 26 + 28, each tested on its whole dataset", Mix4Params, mix4
)
FEATURE_SHIFT = Partition(
    "feature-shift",
    "equal labels, different images: rotated groups, or one dataset each",
    FeatureShiftParams,
    feature_shift,
)
