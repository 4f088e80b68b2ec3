"""Records of pages that are no runs: angles, distances between clients, similarity of local models, mixtures."""

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np

from fedsim.book.records import CELL, SEED, Record
from fedsim.config import DataParams, RunConfig, Scalar

SPLITS = ("iid", "c-niid", "sc-niid")
SEEDS = (0, 1, 2)
LOCAL = {"model": "lenet5", "local_epochs": 2, "batch_size": 10, "lr": 0.01, "momentum": 0.9}


def dataset_angles(root: str) -> list[Record]:
    """Eq. 2 between the four datasets of MIX-4, in degrees."""
    from fedsim.partitions.class_angles import angles
    from fedsim.partitions.datasets import load

    found = angles(load("mix4", root, DataParams()))
    order = ("cifar10", "svhn", "fmnist", "usps")
    return [
        Record({CELL: f"{a}-{b}"}, {"degrees": _short(found.eq2[found.names.index(a), found.names.index(b)])})
        for a, b in [*combinations(order[:2], 2), *((a, b) for b in order[2:] for a in order[: order.index(b)])]
    ]


def class_angles(root: str) -> list[Record]:
    """Published angles between classes of Fashion-MNIST, and the thresholds that give the published super clusters."""
    from fedsim.partitions.class_angles import angles
    from fedsim.partitions.datasets import load

    records = []
    for name in ("cifar10", "fmnist"):
        found = angles(load(name, root, DataParams()))
        low, high = found.as_many[1]
        agrees = sorted(found.as_many[0]) == sorted(found.known)
        numbers = {"groups": float(len(found.known)), "window": _short(high - low if agrees else 0.0)}
        records.append(Record({CELL: f"{name} super clusters"}, dict(numbers)))
        if name == "fmnist":
            for other, pair in ((3, "Trouser-Dress"), (8, "Trouser-Bag")):
                records.append(Record({CELL: f"{name} {pair}"}, {"degrees": _short(found.eq2[1, other])}))
    return records


def client_distances(root: str) -> list[Record]:
    """Mean distances between 100 clients of CIFAR-10, by measure and split."""
    from fedsim.partitions.summary import summarize

    records = []
    for seed in SEEDS:
        for split in SPLITS:
            config = RunConfig(dataset="cifar10", partition=split, clients=100, seed=seed, data_root=root)
            found = summarize(config)
            for measure in found.distances:
                keys: dict[str, Scalar] = {CELL: measure, "split": split, SEED: seed}
                records.append(Record(keys, {"distance": _short(found.mean_distance(measure))}))
    return records


def layer_similarity(root: str) -> list[Record]:
    """Mean CKA between the models of 100 clients of CIFAR-10 after two local epochs, by layer and split."""
    from fedsim.clients.layers import layer_similarity as similarity

    records = []
    for split in SPLITS:
        config = RunConfig(dataset="cifar10", partition=split, clients=100, data_root=root, **LOCAL)  # type: ignore[arg-type]
        for place, matrix in enumerate(similarity(config).values(), start=1):
            off = matrix[~np.eye(len(matrix), dtype=bool)]
            records.append(Record({CELL: f"layer {place}", "split": split, SEED: 0}, {"cka": _short(off.mean())}))
    return records


def mixtures(root: str) -> list[Record]:
    """The loss of two models and of their mean, from a common and from different starts."""
    from fedsim.clients.mixing import mixed_losses

    config = RunConfig(
        dataset="mnist", model="fedavg-mlp", clients=100, batch_size=50, local_epochs=20, lr=0.1, data_root=root
    )
    records = []
    for seed in SEEDS:
        for start, (one, half, two) in mixed_losses(config.replace(seed=seed), (0, 1), [0.0, 0.5, 1.0]).losses.items():
            found = {"better model": min(one, two), "worse model": max(one, two), "mean": half}
            keys: dict[str, Scalar] = {"start": start, SEED: seed}
            records += [Record({CELL: name, **keys}, {"loss": _short(value)}) for name, value in found.items()]
    return records


MEASUREMENTS: Mapping[str, Callable[[str], list[Record]]] = {
    "dataset-angles": dataset_angles,
    "class-angles": class_angles,
    "client-distances": client_distances,
    "layer-similarity": layer_similarity,
    "mixtures": mixtures,
}


def _short(value: float) -> float:
    return float(f"{float(value):.7g}")
