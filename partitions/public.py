"""Public data (`public=N`): samples that belong to no client and that everyone has, the same on every machine.

They are training samples of the run's dataset, taken out before it is split, or of a dataset of its own
(`public.dataset=NAME`), in which case the split is as without them. A test sample is never public.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions import cache, datasets
from fedsim.partitions.by_user import OWN
from fedsim.partitions.split import Array, Indices, Labels
from fedsim.rng import stream


@dataclass(frozen=True, eq=False)
class PublicData:
    """The public samples of a run; they are read when they are first used."""

    dataset: datasets.Dataset
    indices: Indices  # of training samples, in order
    normalized: bool

    @cached_property
    def x(self) -> Array:
        return self.dataset.samples(self.indices, self.normalized)

    @cached_property
    def y(self) -> Array:
        return np.array(self.dataset.targets[self.indices])

    @property
    def fingerprint(self) -> str:
        """Equal on two machines exactly when they hold the same samples."""
        return cache.key(self.dataset.fingerprint, cache.digest(self.indices), self.normalized)

    def check(self, dataset: datasets.Dataset) -> None:
        """Raises ConfigError unless the samples could be samples of a client with data of this dataset."""
        one, other = ((d.shape, d.classes, d.objective) for d in (self.dataset, dataset))
        if one != other:
            told = "samples of shape {}, {} classes, for {}"
            raise ConfigError(
                f"public.dataset={self.dataset.name} has {told.format(*one)}; it must have those of the clients' "
                f"data: {told.format(*other)}"
            )


def public_data(config: RunConfig) -> PublicData | None:
    """The run's public samples; None with public=0. Raises ConfigError if there are not so many."""
    if not config.public:
        return None
    name = config.params("public").dataset or config.dataset
    if config.partition == OWN.name and not config.params("public").dataset:
        raise ConfigError(f"public={config.public}: with partition={OWN.name} name its dataset, public.dataset=NAME")
    try:
        dataset = datasets.load(name, config.data_root, config.params("data"))
    except ConfigError as error:
        raise ConfigError(f"public data: {error}") from error
    count = len(dataset.labels.train)
    if config.public >= count:
        raise ConfigError(f"public={config.public} must be less than the {count} training samples of {name}")
    chosen = np.sort(stream(config.seed, "public").permutation(count)[: config.public])
    return PublicData(dataset, chosen, config.inputs == "normalized")


def without(labels: Labels, public: Indices) -> tuple[Labels, Indices]:
    """What a split sees of a dataset without its public samples, and where the others are in the whole dataset."""
    kept = np.delete(np.arange(len(labels.train) + len(labels.test)), public)
    users = None if labels.users is None else labels.users[kept]
    source = None if labels.source is None else labels.source[kept]
    return replace(labels, train=np.delete(labels.train, public), users=users, source=source), kept
