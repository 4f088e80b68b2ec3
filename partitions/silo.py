"""What one client gets to see of a run's data. The only door clients use: numpy alone, nothing computed twice."""

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.rng import stream
from partitions import cache, datasets, superclusters
from partitions.natural import OWN, everything
from partitions.split import Indices, Share

FORMAT = 1  # raise when a split draws differently: cached splits of older versions are then left alone


@dataclass(frozen=True)
class ClientData:
    """One client's own samples, images N x C x H x W, normalised unless the run wants them raw."""

    x_train: NDArray[np.float32]
    y_train: Indices
    x_test: NDArray[np.float32]
    y_test: Indices
    classes: int


def dataset_of(config: RunConfig) -> datasets.Dataset:
    return datasets.load(config.dataset, config.data_root)


def client_data(config: RunConfig, client: int) -> ClientData:
    if not 0 <= client < config.clients:
        raise ConfigError(f"client {client} does not exist: the run has clients 0 to {config.clients - 1}")
    if config.partition == OWN.name:
        _refuse_everybodys(config)
    dataset = dataset_of(config)
    # nothing is drawn for a silo's own data, and what every other silo would hold of it need not be kept
    share = everything(dataset.labels) if config.partition == OWN.name else _open(_folder(config), client)
    pooled = dataset.labels.pooled

    def images(indices: Indices) -> NDArray[np.float32]:
        x = dataset.images(indices, normalised=config.inputs == "normalised")
        return np.ascontiguousarray(np.rot90(x, share.turns, axes=(2, 3))) if share.turns else x

    train, test = _held_back(share, config, client) if config.validation else (share.train, share.test)
    return ClientData(images(train), pooled[train], images(test), pooled[test], dataset.classes)


def _refuse_everybodys(config: RunConfig) -> None:
    """Several silos with all of one dataset would be a mistake: somebody has no data of its own."""
    if config.clients > 1 and not datasets.brought(config.dataset, datasets.data_root(config.data_root)):
        raise ConfigError(
            f"partition={OWN.name} is for data that each client brings, but dataset={config.dataset} is everybody's: "
            "give its node `data`, or choose another partition"
        )


def _held_back(share: Share, config: RunConfig, client: int) -> tuple[Indices, Indices]:
    """Training data alone, a part of it in the place of the tests: choices made on it have never seen a test."""
    order = stream(config.seed, client, "validation").permutation(len(share.train))
    held = max(1, round(config.validation * len(order)))
    if held >= len(order):
        raise ConfigError(
            f"client {client} has {len(order)} training samples, too few for validation={config.validation}"
        )
    kept = np.sort(order[held:]) if config.batches == "in-order" else order[held:]
    return share.train[kept], share.train[order[:held]]


def shares(config: RunConfig) -> list[Share]:
    """Every client's share, the same on every machine for the same seed; drawn once, then read from the cache."""
    folder = _folder(config)
    arrays = {name: np.load(folder / f"{name}.npy") for name in ("train", "train_ends", "test", "test_ends", "turns")}
    train, test = (np.split(arrays[part], arrays[f"{part}_ends"][1:-1]) for part in ("train", "test"))
    return [Share(*own) for own in zip(train, test, arrays["turns"].tolist(), strict=True)]


def _folder(config: RunConfig) -> Path:
    dataset, params = dataset_of(config), config.params("partition")
    key = cache.key(FORMAT, dataset.fingerprint, config.partition, asdict(params), config.clients, config.seed)

    def draw(folder: Path) -> None:
        labels = replace(dataset.labels, super_clusters=partial(superclusters.of, dataset))
        split = registry.find("partition", config.partition).split(
            labels, config.clients, params, stream(config.seed, "split")
        )
        _, height, width = dataset.shape
        if height != width and any(share.turns % 2 for share in split):
            raise ConfigError(f"images of {height}x{width} have no quarter turns; use partition.rotations=2")
        for part in ("train", "test"):
            pieces = [getattr(share, part) for share in split]
            np.save(folder / f"{part}.npy", np.concatenate(pieces).astype(np.int64))
            np.save(folder / f"{part}_ends.npy", np.cumsum([0, *map(len, pieces)]))
        np.save(folder / "turns.npy", np.array([share.turns for share in split]))

    return cache.once(cache.home() / "splits" / f"{config.partition}-{key}", draw)


def _open(folder: Path, client: int) -> Share:
    def part(name: str) -> Indices:
        start, end = np.load(folder / f"{name}_ends.npy", mmap_mode="r")[client : client + 2]
        return np.array(np.load(folder / f"{name}.npy", mmap_mode="r")[start:end])

    return Share(part("train"), part("test"), int(np.load(folder / "turns.npy", mmap_mode="r")[client]))
