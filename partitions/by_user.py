"""Splits that the data itself decides: every client holds the samples of its users, or the file that it brings."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from fedsim.config import NonNegativeInt, NoParams
from fedsim.errors import ConfigError
from fedsim.partitions.split import Indices, Labels, Partition, Share

TEST_FRACTION = 0.2  # of a client's samples, where the dataset has no test samples of its users


@dataclass(frozen=True)
class ByUserParams:
    min_size: Annotated[int, Ge(2)] = 2  # users with fewer samples are left out
    size: NonNegativeInt = 0  # training samples per client at most, drawn at random; 0: all there are
    tests: NonNegativeInt = 0  # test samples per client, likewise


def by_user(labels: Labels, clients: int, params: ByUserParams, rng: np.random.Generator) -> list[Share]:
    """Equally many users for every client (numbers differ by one at most); a user's samples all go to one client."""
    if labels.users is None:
        raise ConfigError(
            "partition by-user needs to know whose each sample is: add user_train and user_test to the npz file, "
            "or name the column of a table, data.user"
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
    shares = [train_and_test(own, len(labels.train), rng) for own in owned]
    return [at_most(params.size, params.tests, share, rng) for share in shares]


def at_most(size: int, tests: int, share: Share, rng: np.random.Generator) -> Share:
    """The share with so many training and test samples, drawn at random, where it has more; 0: all there are."""
    return Share(_some(share.train, size, rng), _some(share.test, tests, rng))


def _some(indices: Indices, most: int, rng: np.random.Generator) -> Indices:
    return rng.permutation(indices)[:most] if 0 < most < len(indices) else indices


def train_and_test(own: Indices, trains: int, rng: np.random.Generator) -> Share:
    """The dataset's own parts if the client has samples in both, else a random fifth for the tests."""
    if (own < trains).any() and (own >= trains).any():
        return Share(own[own < trains], own[own >= trains])
    shuffled, tests = rng.permutation(own), max(1, round(TEST_FRACTION * len(own)))
    return Share(shuffled[tests:], shuffled[:tests])


def own(labels: Labels, clients: int, params: NoParams, rng: np.random.Generator) -> list[Share]:
    """In a deployment every node reads its own file under the dataset's name, so every client holds all of it."""
    return [all_samples(labels)] * clients


def all_samples(labels: Labels) -> Share:
    trains = len(labels.train)
    return Share(np.arange(trains), np.arange(trains, trains + len(labels.test)))


OWN = Partition(
    "own", "all of the dataset: for silos that each bring their own file", NoParams, own, needs_classes=False
)
BY_USER = Partition(
    "by-user",
    "every client the samples of its own users (user_train, user_test in the npz)",
    ByUserParams,
    by_user,
    needs_classes=False,
)
