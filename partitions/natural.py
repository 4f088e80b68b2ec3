"""The splits nature made: whoever wrote, photographed or spoke a sample owns it, and a silo owns what it brings."""

from dataclasses import dataclass

import numpy as np

from fedsim.config import at_least
from fedsim.errors import ConfigError
from partitions.split import Indices, Labels, Partition, Share

TEST_SHARE = 0.2  # of a client's samples, where the dataset has no test samples of its users


@dataclass(frozen=True)
class ByUserParams:
    min_size: int = 2  # users with fewer samples are left out

    def __post_init__(self) -> None:
        at_least("partition.min_size", self.min_size, 2)


def split(labels: Labels, clients: int, params: ByUserParams, rng: np.random.Generator) -> list[Share]:
    """Whole users, dealt to the clients as evenly as they come: one each when there are as many clients as users."""
    if labels.users is None:
        raise ConfigError(
            "partition by-user needs to know whose each sample is: add user_train and user_test to the npz file"
        )
    names, owner, sizes = np.unique(labels.users, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes >= params.min_size)
    if len(kept) < clients:
        raise ConfigError(
            f"{len(kept)} of {len(names)} users have {params.min_size} samples or more, too few for {clients} clients; "
            f"use clients={len(kept)} or fewer"
        )
    client_of = np.full(len(names), -1)
    for client, users in enumerate(np.array_split(kept if len(kept) == clients else rng.permutation(kept), clients)):
        client_of[users] = client
    order = np.argsort(client_of[owner], kind="stable")
    owned = np.split(order, np.searchsorted(client_of[owner][order], np.arange(clients)))[1:]
    return [_parts(own, len(labels.train), rng) for own in owned]


def _parts(own: Indices, trains: int, rng: np.random.Generator) -> Share:
    """The dataset's own parts if the client has samples in both, else a random fifth for the tests."""
    if (own < trains).any() and (own >= trains).any():
        return Share(own[own < trains], own[own >= trains])
    mixed, tests = rng.permutation(own), max(1, round(TEST_SHARE * len(own)))
    return Share(mixed[tests:], mixed[:tests])


@dataclass(frozen=True)
class OwnParams:
    """Nothing to choose."""


def own(labels: Labels, clients: int, params: OwnParams, rng: np.random.Generator) -> list[Share]:
    """In a deployment every silo finds its own file under the dataset's name, so nothing is left to split."""
    return [everything(labels)] * clients


def everything(labels: Labels) -> Share:
    trains = len(labels.train)
    return Share(np.arange(trains), np.arange(trains, trains + len(labels.test)))


OWN = Partition("own", "all of the dataset: for silos that each bring their own file", OwnParams, own)
BY_USER = Partition(
    "by-user", "every client the samples of its own users (user_train, user_test in the npz)", ByUserParams, split
)
