"""The split of SPFL's appendix B: every class is cut into a bucket per client, every client takes k classes' buckets.

Only the training part is used, and every bucket is cut 80/20 into training and test. IID: one class set shared by all
clients; non-IID: each client draws its own. The appendix calls this a skew of features; it is one of labels. A `size`
reduces the training samples and leaves the test samples unchanged; `tests` reduces these.
"""

from dataclasses import dataclass

import numpy as np

from fedsim.config import NonNegativeInt, PositiveInt, check
from fedsim.errors import ConfigError
from fedsim.partitions.allocation import by_class, require_classes
from fedsim.partitions.split import Labels, Partition, Share

TEST_EVERY = 5  # one sample in five is a test sample


@dataclass(frozen=True)
class ClassesParams:
    classes: PositiveInt = 6  # classes per client; the paper: 6 for MNIST and CIFAR-10, 32 for EMNIST, 60 for CIFAR-100
    shared: bool = False  # true: all clients hold the same classes (the paper's IID)
    size: NonNegativeInt = 0  # training samples per client, in equal parts of its classes; 0: all there are
    tests: NonNegativeInt = 0  # test samples per client, likewise

    def __post_init__(self) -> None:
        check(self, "partition")
        for name, count in (("size", self.size), ("tests", self.tests)):
            if count % self.classes:
                raise ConfigError(f"partition.{name}={count} cannot be divided equally by {self.classes} classes")


def split(labels: Labels, clients: int, params: ClassesParams, rng: np.random.Generator) -> list[Share]:
    """One bucket of each of k classes for every client."""
    require_classes("classes", params.classes, labels.classes)
    pools = by_class(labels.train, labels.classes, rng)
    smallest = min(len(pool) for pool in pools)
    if smallest < clients * TEST_EVERY:
        raise ConfigError(
            f"the smallest class has {smallest} samples, too few for {clients} buckets of at least {TEST_EVERY}; "
            f"use clients={max(1, smallest // TEST_EVERY)} or fewer"
        )
    least = smallest // clients  # of the buckets
    tests = round(least / TEST_EVERY)
    for name, count, left in (("size", params.size, least - tests), ("tests", params.tests, tests)):
        if (wanted := count // params.classes) > left:
            raise ConfigError(f"partition.{name}={count} asks for {wanted} of each class; there are {left} per client")
    common = rng.permutation(labels.classes)[: params.classes]
    taken = np.zeros(labels.classes, np.int64)
    shares = []
    for _ in range(clients):
        own = common if params.shared else rng.permutation(labels.classes)[: params.classes]
        train, test = [], []
        for label in own:
            size = len(pools[label]) // clients
            bucket = pools[label][taken[label] * size : (taken[label] + 1) * size]
            taken[label] += 1
            tests = round(size / TEST_EVERY)
            test.append(bucket[:tests][: params.tests // params.classes or None])
            train.append(bucket[tests:][: params.size // params.classes or None])
        shares.append(Share(np.concatenate(train), np.concatenate(test)))
    return shares


CLASSES = Partition(
    "classes", "SPFL: equal buckets of k classes per client, 80/20; partition.shared=true for IID", ClassesParams, split
)
