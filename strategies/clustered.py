"""FedAvg inside each of several clusters of clients: what IFCA, CFL and PACFL have in common.

Server (1):  w_c <- w_c + sum_{k in S_c} (n_k / n_{S_c}) * delta_k, as FedAvg, for every cluster c; w_c stays if S_c is empty

| symbol | meaning                                          | name here                                   |
| ------ | ------------------------------------------------ | ------------------------------------------- |
| w_c    | model of cluster c                               | `ClusterState.models[c]`, a `GlobalState`   |
| S_c    | clients whose results belong to cluster c        | `Clustered.cluster_of`                      |

A result belongs to the cluster that it was trained for, and a stale one is averaged as FedAvg does, with the model of
that cluster it started from. `aggregator` and `server-optimizer` apply inside each cluster. There is no global model:
the personal model of a client is that of its cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import GlobalState, P, ServerStrategy
from fedsim.payload import Arrival, Downlink
from fedsim.strategies.fedavg import FedAvg

UNKNOWN = -1  # the cluster of a client that has not told it yet


@dataclass
class ClusterState:
    """All models have taken the same number of steps."""

    models: list[GlobalState]
    members: NDArray[np.int64]  # the cluster of each client, by row


C = TypeVar("C", bound=ClusterState)


class Clustered(ServerStrategy[P, C]):
    """A subclass says which clients are in a cluster."""

    averages = optimizes = True
    no_finetune = no_newcomers = ""

    @cached_property
    def fedavg(self) -> FedAvg:
        """The server of one cluster."""
        server = FedAvg(self.params, self.config)
        server.attach(self.fleet)
        return server

    def instruct(self, state: C, client: int, train: bool) -> Downlink:
        own = state.models[state.members[self.fleet.row(client)]].model
        return Downlink({"model" if train else "personal": own}, shared=False)

    def cluster_of(self, state: C, arrival: Arrival) -> int:
        """The cluster that a result belongs to."""
        return int(state.members[self.fleet.row(arrival.client)])

    def update(self, state: C, arrivals: Sequence[Arrival]) -> C:
        groups: list[list[Arrival]] = [[] for _ in state.models]
        for arrival in arrivals:
            groups[self.cluster_of(state, arrival)].append(arrival)
        state.models = [
            self.fedavg.update(own, group) if group else self.fedavg.advance(own, own.model)  # (1)
            for own, group in zip(state.models, groups, strict=True)
        ]
        return state

    def clusters(self, state: C) -> NDArray[np.int64]:
        return state.members
