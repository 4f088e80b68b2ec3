"""What the clients of a configuration hold and how far apart they are: shown by `fedsim partition` and the reports."""

from collections.abc import Iterable
from math import prod

import numpy as np

from fedsim.config import RunConfig
from fedsim.partitions import measures
from fedsim.partitions.allocation import class_counts
from fedsim.partitions.client_data import load_dataset, shares
from fedsim.partitions.split import Indices
from fedsim.report.heterogeneity import DISTANCES, Heterogeneity

DIRECTIONS = 3  # per client's signature, as in the paper's per-class study
PER_CLIENT, IN_TOTAL = 1000, 100_000  # samples that are compared; the labels are always counted in full


def summarize(config: RunConfig, distances: Iterable[str] = tuple(DISTANCES)) -> Heterogeneity:
    """Signatures are of samples as stored (raw pixels, as in the paper's study), with the transform of each client."""
    dataset, split = load_dataset(config), shares(config)
    samples = [
        dataset.samples(_subset(share.train, len(split)), normalized=False, transform=share.transform)
        for share in split
    ]
    signatures = measures.signatures(samples, min(DIRECTIONS, prod(dataset.shape), *(len(x) for x in samples)))
    wanted = {"eq2", *distances}  # the clients are ordered by it
    found = {"eq2": measures.proximity(signatures)}
    if "eq3" in wanted:
        found["eq3"] = measures.proximity(signatures, "ordered")
    if wanted & {"emd", "1-cka"}:
        pooled = measures.Pooled(samples)
        found["emd"], found["1-cka"] = pooled.emd(), 1 - pooled.cka()
    counts = np.zeros((len(split), 0), np.int64)
    if dataset.has_class_labels:
        counts = class_counts(dataset.targets, [share.train for share in split], dataset.classes)
    return Heterogeneity(
        dataset=config.dataset,
        partition=config.partition,
        seed=config.seed,
        trains=np.array([len(share.train) for share in split]),
        tests=np.array([len(share.test) for share in split]),
        counts=counts,
        entropy=measures.label_entropy(counts),
        distances={key: found[key] for key in DISTANCES if key in found},
        order=measures.order_by_cluster(found["eq2"]),
        unseen=config.unseen,
    )


def _subset(indices: Indices, clients: int) -> Indices:
    """At most so many as are compared, evenly spaced, so that every class of a share stays in proportion."""
    limit = min(PER_CLIENT, max(50, IN_TOTAL // clients))
    return indices[:: -(-len(indices) // limit)]
