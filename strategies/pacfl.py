"""PACFL: clusters by the principal angles between the clients' data (Vahidian, Morafah et al. 2023, arXiv 2209.10526).

Client (1):  U_i = the first p left singular vectors of the samples of each class, stacked; sent once, before round 1
Server (2):  A_ij = min_{a, b} arccos |u_a . v_b|, over the columns of U_i and U_j, in degrees: Eq. 2 of `fedsim.angles`
       (3):  clusters = agglomeration by A with WPGMA linkage, until the closest two are further apart than beta
       (4):  w_c <- w_c + sum_{k in S_c} (n_k / n_{S_c}) * delta_k, inside each cluster: (1) of `clustered`

| symbol | meaning                                            | name here                              |
| ------ | -------------------------------------------------- | -------------------------------------- |
| U_i    | signature of client i, a row per column of it      | `signature` of `Client.statistics`     |
| A      | proximity of the clients, recorded as `angles`     | `State.angles`                         |
| p      | singular vectors of each class                     | `Params.p`                             |
| beta   | threshold in degrees                               | `Params.beta`                          |

All clusters start from the common initial model. Signatures come with the roll call, so that (3) knows every client:
one that takes part for the first time in a later round is in its cluster from the beginning. A class with fewer than p
samples gives as many vectors as it has; data without classes are one class. Samples are as the run trains on them
(`inputs`). A client that never took part receives the model of the client at the smallest angle. Deviations: singular
vectors have no sign, so (2) takes inner products without it; the authors' code does not, and gives its thresholds in
100 x radians. beta = 180 is FedAvg, beta < 0 training alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import PositiveInt
from fedsim.errors import FedsimError
from fedsim.payload import Downlink
from fedsim.server.fleet import Fleet
from fedsim.similarity import Matrix
from fedsim.strategies.clustered import Clustered, ClusterState
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    p: PositiveInt = 3  # singular vectors of each class
    beta: float = 4.9  # clusters further apart than so many degrees are not merged
    linkage: Literal["wpgma", "upgma", "complete"] = "wpgma"  # distance of two clusters


@dataclass
class State(ClusterState):
    angles: Matrix


class Pacfl(Clustered[Params, State]):
    """Clusters the clients once, by what they told of their data."""

    def init(self, model: Weights, fleet: Fleet) -> State:
        from fedsim.angles import cluster, proximity  # scipy, which clients do without

        angles = proximity(stacked([client.statistics.get("signature") for client in fleet.clients]))  # (2)
        found, members = cluster(angles, self.params.beta, self.params.linkage), np.zeros(len(fleet), np.int64)  # (3)
        for number, rows in enumerate(found):
            members[list(rows)] = number
        return State([GlobalState(model.copy()) for _ in found], members, angles)

    def newcomer(self, state: State, client: int) -> Downlink:
        from fedsim.angles import proximity

        told = [self.fleet[client].statistics, *(known.statistics for known in self.fleet.clients)]
        nearest = int(proximity(stacked([each.get("signature") for each in told]))[0, 1:].argmin())
        return Downlink({"model": state.models[state.members[nearest]].model}, shared=False)

    def matrices(self, state: State) -> Mapping[str, NDArray[Any]]:
        return {"angles": state.angles}


def stacked(signatures: list[NDArray[Any] | None]) -> list[Matrix]:
    """Signatures (vectors x values) as columns, filled up to equally many with zeros, which are at 90 degrees to all."""
    known = [u for u in signatures if u is not None and u.ndim == 2 and len(u) and np.isfinite(u).all()]
    if len(known) < len(signatures) or len({u.shape[1] for u in known}) > 1:
        raise FedsimError("pacfl needs a signature of every client's data, and samples of one shape")
    width = max(len(u) for u in known)
    return [np.pad(u.astype(np.float64), ((0, width - len(u)), (0, 0))).T for u in known]


PACFL = Algorithm(
    name="pacfl",
    about="FedAvg in clusters of clients whose data span similar subspaces (Vahidian et al. 2023)",
    params=Params,
    server=Pacfl,
    statistics="fedsim.clients.pacfl:signature_of_classes",
    vectorizes=True,
    label_counts=True,
)
