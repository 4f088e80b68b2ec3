"""What one client holds in a run: its training and test samples. Needs numpy alone once data and split are cached."""

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.files import write_npy
from fedsim.partitions import cache, datasets, sources, superclusters, transforms
from fedsim.partitions.by_user import OWN, all_samples
from fedsim.partitions.public import PublicData, public_data, without
from fedsim.partitions.split import Array, Indices, Labels, Share
from fedsim.rng import stream

FORMAT = 2  # raise when a split draws differently or is stored differently: cached splits of older versions are ignored


@dataclass(frozen=True)
class ClientData:
    """One client's own samples and their targets.

    x_train, x_test   N x sample shape: images as float32 N x C x H x W, normalized unless the run wants them raw; other
                      real numbers as float32 and whole numbers (such as token ids) as int64, as the dataset has them
    y_train, y_test   class labels (int64, one per sample), or what the objective takes: float32 for a regression
    classes           how many values a whole-numbered target can take; 0: targets are real numbers
    objective         what models are trained for: the name of an objective
    public            the run's public samples; None: it has none
    vocabulary        how many different token ids the samples can hold; 0: they are no tokens
    """

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    classes: int
    objective: str = "classification"
    public: PublicData | None = None
    vocabulary: int = 0


def load_dataset(config: RunConfig) -> datasets.Dataset:
    return datasets.load(config.dataset, config.data_root, config.params("data"))


def client_data(config: RunConfig, client: int) -> ClientData:
    """The samples of one client; raises ConfigError if the run has no such client or the data cannot be split."""
    return ClientDataSource(config).client(client)


class ClientDataSource:
    """The dataset and the split of a run, opened once for many clients; raises ConfigError if they cannot be had."""

    def __init__(self, config: RunConfig) -> None:
        if config.partition == OWN.name:
            _require_own_data(config)
        self._config, self._dataset = config, load_dataset(config)
        if config.partition == OWN.name and config.clients > 1:
            _require_common_numbers(self._dataset)
        # a client's own data is not split, and the cache need not store the shares of all other clients
        self._split = None if config.partition == OWN.name else _OpenSplit(_split(config))
        self._public = _public(config, self._dataset)

    def client(self, client: int) -> ClientData:
        """The samples of one client; raises ConfigError if the run has no such client."""
        config, dataset = self._config, self._dataset
        if not 0 <= client < config.clients:
            raise ConfigError(f"client {client} does not exist: the run has clients 0 to {config.clients - 1}")
        share = all_samples(dataset.labels) if self._split is None else self._split.share(client)

        def samples(indices: Indices) -> Array:
            return dataset.samples(indices, config.inputs == "normalized", share.transform)

        train, test = _validation_split(share, config, client) if config.validation else (share.train, share.test)
        return ClientData(
            samples(train),
            dataset.targets[train],
            samples(test),
            dataset.targets[test],
            dataset.classes,
            dataset.objective,
            self._public,
            dataset.vocabulary,
        )


def _require_own_data(config: RunConfig) -> None:
    """Raises ConfigError if several clients would each hold all of a common dataset."""
    if config.clients > 1 and not sources.user_data(config.dataset, datasets.data_root(config.data_root)):
        raise ConfigError(
            f"partition={OWN.name} is for data that each client brings, but dataset={config.dataset} is common to all: "
            "give its node `data`, or choose another partition"
        )


def _require_common_numbers(dataset: datasets.Dataset) -> None:
    """Raises ConfigError if clients would number their labels or tokens each in its own way."""
    ways = {
        "labels": "list all labels with data.classes",
        "tokens": "give all nodes one vocabulary with data.tokens=FILE",
    }
    for part in dataset.parts:
        for what in part.numbered:
            raise ConfigError(
                f"partition={OWN.name}: {dataset.name} numbers its {what} by what it holds itself, so they would mean "
                f"something else on other nodes: {ways[what]}"
            )


def _validation_split(share: Share, config: RunConfig, client: int) -> tuple[Indices, Indices]:
    """The training samples in two parts: to train on, and in the place of the test samples, which stay unused."""
    order = stream(config.seed, client, "validation").permutation(len(share.train))
    held_out = max(1, round(config.validation * len(order)))
    if held_out >= len(order):
        raise ConfigError(
            f"client {client} has {len(order)} training samples, too few for validation={config.validation}"
        )
    kept = np.sort(order[held_out:]) if config.batches == "in-order" else order[held_out:]
    return share.train[kept], share.train[order[:held_out]]


def shares(config: RunConfig) -> list[Share]:
    """Every client's share, the same on every machine for the same seed; drawn once, then read from the cache."""
    folder = _split(config)
    arrays = {name: np.load(folder / f"{name}.npy") for name in ("train", "train_ends", "test", "test_ends")}
    train, test = (np.split(arrays[part], arrays[f"{part}_ends"][1:-1]) for part in ("train", "test"))
    return [Share(*own) for own in zip(train, test, np.load(folder / "transform.npy").tolist(), strict=True)]


def _public(config: RunConfig, dataset: datasets.Dataset) -> PublicData | None:
    """The public samples, which must be like those of the dataset; raises ConfigError if they cannot be had."""
    public = public_data(config)
    if public is not None:
        public.check(dataset)
    return public


def _split(config: RunConfig) -> Path:
    """The folder of the run's split, drawn if it is not in the cache."""
    dataset, params = load_dataset(config), config.params("partition")
    public = _public(config, dataset)
    if config.params("public").dataset:
        public = None  # nothing is taken out of this dataset
    taken = [] if public is None else [public.fingerprint]
    key = cache.key(FORMAT, dataset.fingerprint, config.partition, asdict(params), config.clients, config.seed, *taken)

    def draw(folder: Path) -> None:
        partition = registry.find("partition", config.partition)
        if partition.needs_classes and not dataset.has_class_labels:
            _refuse_to_split_by_class(config.partition, dataset)
        labels: Labels = replace(dataset.labels, super_clusters=partial(superclusters.of, dataset))
        if public is not None:
            labels, kept = without(labels, public.indices)
        split: list[Share] = partition.split(labels, config.clients, params, stream(config.seed, "split"))
        if public is not None:
            split = [share._replace(train=kept[share.train], test=kept[share.test]) for share in split]
        for name in {share.transform for share in split}:
            transforms.apply(name, np.empty((0, *dataset.shape)))  # refuse samples that it cannot treat
        arrays = {"transform": np.array([share.transform for share in split], np.str_)}
        for part in ("train", "test"):
            pieces = [getattr(share, part) for share in split]
            arrays |= {part: np.concatenate(pieces), f"{part}_ends": np.cumsum([0, *map(len, pieces)])}
            _check_indices(arrays[part], len(dataset.targets), config.partition)
        for name, array in arrays.items():
            dtype = array.dtype if name == "transform" else np.dtype(np.int64)
            write_npy(folder / f"{name}.npy", [array], dtype, array.shape)

    return cache.build_once(cache.root() / "splits" / f"{config.partition}-{key}", draw)


def _check_indices(indices: Array, samples: int, partition: str) -> None:
    """Raises ConfigError for samples that the dataset does not have: a negative index would count from its end."""
    if indices.size and (indices.min() < 0 or indices.max() >= samples):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise ConfigError(f"partition={partition} deals the sample {wrong}; samples run from 0 to {samples - 1}")


def _refuse_to_split_by_class(partition: str, dataset: datasets.Dataset) -> None:
    possible = [name for name in registry.names("partition") if not registry.find("partition", name).needs_classes]
    raise ConfigError(
        f"partition={partition} splits by class, but the samples of {dataset.name} (objective={dataset.objective}) "
        f"have no class labels; use {', '.join(possible)}"
    )


class _OpenSplit:
    """The arrays of a stored split, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        names = ("train", "train_ends", "test", "test_ends", "transform")
        self._arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}

    def share(self, client: int) -> Share:
        def part(name: str) -> Indices:
            start, end = self._arrays[f"{name}_ends"][client : client + 2]
            return np.array(self._arrays[name][start:end])

        return Share(part("train"), part("test"), str(self._arrays["transform"][client]))
