"""IID: a random part of equal size for every client."""

from dataclasses import dataclass

import numpy as np

from fedsim.config import NonNegativeInt
from fedsim.partitions.allocation import reduced, require_classes, require_samples, with_proportional_tests
from fedsim.partitions.split import Labels, Partition, Share


@dataclass(frozen=True)
class IidParams:
    classes: NonNegativeInt = 0  # all clients hold the same so many classes, drawn once; 0: every class
    size: NonNegativeInt = 0  # training samples per client; 0: all there are


def iid(labels: Labels, clients: int, params: IidParams, rng: np.random.Generator) -> list[Share]:
    """Shuffle, cut into equal parts (sizes differ by one at most)."""
    require_classes("classes", params.classes, labels.classes)
    chosen = rng.permutation(labels.classes)[: params.classes or labels.classes]
    pool = np.flatnonzero(np.isin(labels.train, chosen))
    require_samples(len(pool), clients)
    [samples] = reduced([rng.permutation(pool)], clients, params.size)
    return with_proportional_tests(labels, np.array_split(samples, clients), rng)


IID = Partition(
    "iid",
    "every client an equal random part; with partition.classes=k, of the same k classes",
    IidParams,
    iid,
    needs_classes=False,
)
