"""Labels chosen by hand: which classes each client holds is written out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.config import NonNegativeInt
from fedsim.errors import ConfigError
from fedsim.partitions.allocation import Counts, allocate, allocate_equally, apportion, by_class, with_all_tests
from fedsim.partitions.split import Indices, Labels, Partition, Share


@dataclass(frozen=True)
class LabelsParams:
    labels: str = "0,1/2,3"  # of the first client / the second / ...; further clients begin again with the first
    size: NonNegativeInt = 0  # training samples per client, in equal parts of its labels; 0: all there are
    tests: NonNegativeInt = 0  # test samples per client, of its labels; 0: all of them


def by_label(labels: Labels, clients: int, params: LabelsParams, rng: np.random.Generator) -> list[Share]:
    """`size` samples of its labels for each client, or every label's samples in equal parts to its holders."""
    groups = _parse(params.labels, labels.classes)
    held = [groups[client % len(groups)] for client in range(clients)]
    pools = by_class(labels.train, labels.classes, rng)
    trains = allocate(pools, _counts(held, pools, params.size)) if params.size else allocate_equally(pools, held)
    return with_all_tests(labels, trains, params.tests, rng)


def _counts(held: Sequence[Indices], pools: Sequence[Indices], size: int) -> Counts:
    """`size` samples per client, in equal parts of its labels; raises ConfigError if a label has too few."""
    counts = np.zeros((len(held), len(pools)), np.int64)
    for row, own in zip(counts, held, strict=True):
        row[own] = apportion(size, np.ones(len(own)))
    wanted, there = counts.sum(axis=0), np.array([len(pool) for pool in pools])
    if (wanted > there).any():
        label = int(np.argmax(wanted - there))
        raise ConfigError(
            f"partition.size={size} asks for {wanted[label]} training samples of class {label}, which has "
            f"{there[label]}; the nearest that works is partition.size={_largest(held, label, int(there[label]))}"
        )
    return counts


def _largest(held: Sequence[Indices], label: int, there: int) -> int:
    """The size at which the holders of a label, of which there are so many samples, all get their part."""
    holders = [len(own) for own in held if label in own]
    return max(1, min(holders) * (there // len(holders)))


def _parse(text: str, classes: int) -> list[Indices]:
    """Raises ConfigError unless every client has labels of the dataset, each of them once."""
    try:
        groups = [[int(label) for label in group.split(",")] for group in text.split("/")]
    except ValueError:
        groups = [[-1]]
    if any(len(set(group)) < len(group) or min(group) < 0 or max(group) >= classes for group in groups):
        raise ConfigError(
            f"partition.labels={text!r} must list labels from 0 to {classes - 1} for each client, such as 8,9/9,0"
        )
    return [np.array(group) for group in groups]


LABELS = Partition("labels", "labels chosen by hand: partition.labels=8,9/9,0 for two clients", LabelsParams, by_label)
