"""Groups of classes whose samples look alike ("Rethinking Data Heterogeneity in FL", table 7), known or discovered."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError
from fedsim.partitions.split import Clusters, Indices

if TYPE_CHECKING:
    from fedsim.partitions.datasets import Dataset

# Table 7; the classes of CIFAR-100 it does not list form the last group. Fashion-MNIST's come from the authors' code.
_CIFAR100 = ((0, 83, 53, 82), (1, 54, 43, 51, 70, 92, 62), (23, 69, 30, 95, 67, 73), (47, 96, 59, 52))
_LISTED = {label for cluster in _CIFAR100 for label in cluster}
TABLE: dict[str, Clusters] = {
    "cifar10": ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7)),
    "stl10": ((2, 8, 9), (0, 1, 3, 4, 5, 6, 7)),
    "cifar100": (*_CIFAR100, tuple(label for label in range(100) if label not in _LISTED)),
    "fmnist": ((0, 1, 3), (2, 4, 6, 8), (5, 7, 9)),
}
SAMPLES = 5000  # per class, to discover clusters: all of a CIFAR-10 class


def of(dataset: "Dataset", choice: str = "auto") -> Clusters:
    """`auto`: the published clusters, else discovered; `discover`; or spelled out: "0,1,8,9/2,3,4,5,6,7"."""
    if choice == "auto" and dataset.name in TABLE:
        return TABLE[dataset.name]
    if choice in ("auto", "discover"):
        return discover(dataset)
    return parse(choice, dataset.classes)


def parse(text: str, classes: int) -> Clusters:
    """Clusters spelled out as "0,1/2,3"; raises ConfigError unless every label occurs once."""
    try:
        clusters = tuple(tuple(int(label) for label in group.split(",")) for group in text.split("/"))
    except ValueError:
        clusters = ()
    if sorted(label for group in clusters for label in group) != list(range(classes)):
        raise ConfigError(
            f"partition.clusters={text!r} must be 'auto', 'discover', or groups such as 0,1/2,3 "
            f"that hold each of the labels 0 to {classes - 1} once"
        )
    return clusters


def discover(dataset: "Dataset", p: int = 3, threshold: float | None = None) -> Clusters:
    """Clusters of the classes' signatures (samples as stored), cut at `threshold` or the widest gap of merge heights."""
    from fedsim.partitions import measures  # scipy, which a client with a cached split never needs

    return measures.cluster(class_angles(dataset, p), threshold)


def class_angles(dataset: "Dataset", p: int = 3) -> NDArray[np.float64]:
    """The angle (Eq. 2, degrees) between every two classes of the training part."""
    from fedsim.partitions import measures

    samples = (dataset.samples(own, normalized=False) for own in samples_by_class(dataset))
    return measures.proximity(measures.signatures(samples, p))


def samples_by_class(dataset: "Dataset") -> list[Indices]:
    """At most SAMPLES training samples of each class; raises ConfigError if a class has none."""
    found = [np.flatnonzero(dataset.labels.train == label)[:SAMPLES] for label in range(dataset.classes)]
    empty = [label for label, own in enumerate(found) if len(own) == 0]
    if empty:
        raise ConfigError(f"class {empty[0]} of {dataset.name} has no training samples, so it has no super cluster")
    return found
