"""How alike the classes of a dataset are, or the datasets of one that is made of several: what `fedsim data` shows."""

from math import prod

import numpy as np

from fedsim.partitions import measures, superclusters
from fedsim.partitions.datasets import Dataset
from fedsim.partitions.split import Indices
from fedsim.report.angles import Angles

# "Rethinking Data Heterogeneity in FL", table 1: Eq. 2 with two directions, in degrees.
TABLE = {
    frozenset(("cifar10", "svhn")): 6.13,
    frozenset(("cifar10", "fmnist")): 45.79,
    frozenset(("cifar10", "usps")): 66.26,
    frozenset(("svhn", "fmnist")): 43.42,
    frozenset(("svhn", "usps")): 64.86,
    frozenset(("fmnist", "usps")): 43.36,
}
PER_DATASET = 10_000  # samples that are compared
DRAWN = 3000  # samples in a picture


def angles(dataset: Dataset) -> Angles:
    """Samples as stored. Between datasets: two directions of each, as in table 1; between classes: three."""
    several = len(dataset.parts) > 1
    groups = _by_source(dataset) if several else superclusters.samples_by_class(dataset)
    names = dataset.labels.sources if several else tuple(map(str, range(dataset.classes)))
    directions = min(2 if several else 3, prod(dataset.shape), *map(len, groups))
    samples = (dataset.samples(own, normalized=False) for own in groups)
    found = measures.signatures(samples, directions)
    eq2 = measures.proximity(found)
    known = () if several else superclusters.TABLE.get(dataset.name, ())
    return Angles(
        dataset=dataset.name,
        of="datasets" if several else "classes",
        names=names,
        directions=directions,
        eq2=eq2,
        principal=measures.proximity(found, "principal"),
        published={(i, j): TABLE[pair] for i, j, pair in _pairs(names) if pair in TABLE},
        clusters=() if several else measures.cluster(eq2),
        known=known,
        as_many=measures.cut_into(len(known), eq2) if known else ((), (0.0, 0.0)),
        order=tuple(measures.order_by_cluster(eq2)),
    )


def embedded(dataset: Dataset, found: Angles) -> tuple[measures.Matrix, Indices, str]:
    """Samples in the plane, the group of each, and how: by UMAP if it is installed, else the first two components."""
    groups = _by_source(dataset) if found.of == "datasets" else superclusters.samples_by_class(dataset)
    chosen = [own[:: -(-len(own) // (DRAWN // len(groups) or 1))] for own in groups]
    owners = np.repeat(np.arange(len(groups)), [len(own) for own in chosen])
    x = measures.flat(dataset.samples(np.concatenate(chosen), normalized=False))
    try:
        import umap
    except ImportError:
        x -= x.mean(axis=0)
        [axes] = measures.signatures([x], min(2, *x.shape))
        return x @ axes, owners, "two principal components"
    return np.asarray(umap.UMAP(random_state=0, n_jobs=1).fit_transform(x), np.float64), owners, "UMAP"


def _by_source(dataset: Dataset) -> list[Indices]:
    """Evenly spaced training samples of each dataset."""
    assert dataset.labels.source is not None
    source = dataset.labels.source[: len(dataset.labels.train)]
    own = [np.flatnonzero(source == number) for number in range(len(dataset.parts))]
    return [indices[:: -(-len(indices) // PER_DATASET)] for indices in own]


def _pairs(names: tuple[str, ...]) -> list[tuple[int, int, frozenset[str]]]:
    return [(i, j, frozenset((names[i], names[j]))) for j in range(len(names)) for i in range(j)]
