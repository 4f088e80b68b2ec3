"""A configuration's clients, measured: what `fedsim partition` and the reports show."""

from collections.abc import Iterable

import numpy as np

from fedsim.config import RunConfig
from fedsim.report.heterogeneity import DISTANCES, Heterogeneity
from partitions import measures, silo
from partitions.deal import class_counts
from partitions.split import Indices

SIGNATURE = 3  # directions per client, as in the paper's per-class study
PER_CLIENT, ALTOGETHER = 1000, 100_000  # samples that are looked at; the labels are always counted in full


def summarise(config: RunConfig, distances: Iterable[str] = tuple(DISTANCES)) -> Heterogeneity:
    """Signatures are of raw pixels, as in the paper's study; rotations of a feature shift are applied."""
    dataset, shares = silo.dataset_of(config), silo.shares(config)
    pooled = dataset.labels.pooled
    counts = class_counts(pooled, [share.train for share in shares], dataset.classes)
    images = [
        np.rot90(dataset.images(_some(share.train, len(shares)), normalised=False), share.turns, axes=(2, 3))
        for share in shares
    ]
    p = min(SIGNATURE, dataset.images(pooled[:1]).size, *(len(x) for x in images))
    signatures = measures.signatures(images, p)
    wanted = {"eq2", *distances}  # the clients are ordered by it
    found = {"eq2": measures.proximity(signatures)}
    if "eq3" in wanted:
        found["eq3"] = measures.proximity(signatures, "ordered")
    if wanted & {"emd", "1-cka"}:
        space = measures.Pooled(images)
        found["emd"], found["1-cka"] = space.emd(), 1 - space.cka()
    return Heterogeneity(
        dataset=config.dataset,
        partition=config.partition,
        seed=config.seed,
        counts=counts,
        tests=np.array([len(share.test) for share in shares]),
        entropy=measures.label_entropy(counts),
        distances={key: found[key] for key in DISTANCES if key in found},
        order=measures.order_by_cluster(found["eq2"]),
    )


def _some(indices: Indices, clients: int) -> Indices:
    """At most so many, evenly spaced, so that every class of a share stays in proportion."""
    limit = min(PER_CLIENT, max(50, ALTOGETHER // clients))
    return indices[:: -(-len(indices) // limit)]
