"""CFL: clustered federated learning by splits (Sattler, Mueller, Samek 2020, arXiv 1910.01991).

Client (1):  delta_i = LocalSGD(w_c; D_i) - w_c with the model of its cluster c
Server (2):  a cluster c of more than two clients is split in round t > `start` if
             || (1/|c|) sum_{i in c} delta_i || < eps_1   and   max_{i in c} || delta_i || > eps_2
       (3):  its two halves are the last two clusters of complete linkage by -cos(delta_i, delta_j)
       (4):  w_c <- w_c + (1/|S_c|) sum_{i in S_c} delta_i, for the clusters after the splits: (1) of `clustered`

| symbol       | meaning                                          | name here                              |
| ------------ | ------------------------------------------------ | -------------------------------------- |
| delta_i      | last update of client i, a row of                | `State.deltas`                         |
| eps_1, eps_2 | near a stationary point; far from those of some  | `Params.eps1`, `Params.eps2`           |
| S_c          | clients of c whose results arrived               | `arrivals`                             |

The half with the cluster's first client keeps its number and both keep its model; `State.parents` is the tree. In (4)
clients count equally, as in the authors' code. The norms depend on model and data. Unless set, eps_1 and eps_2 are 0.1
and 0.4 of the largest norm in round `calibrate`; the authors' demo has 0.4 and 1.6.

The paper has all clients in every round. With fewer, (2) and (3) take the last update of an absent client, and no
cluster is split before all its clients were heard from; (4) averages what arrived, so no update counts twice. A result
that was trained before a split joins the present cluster of its client, from the model that it started from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.client_table import ClientTable, client_table
from fedsim.config import NonNegativeFloat, NonNegativeInt, PositiveInt
from fedsim.payload import Arrival
from fedsim.server.fleet import Fleet
from fedsim.similarity import cosines, gram
from fedsim.strategies.clustered import Clustered, ClusterState
from fedsim.weights import Weights

MEAN_SHARE, LARGEST_SHARE = 0.1, 0.4  # of the largest norm: eps_1 and eps_2 unless they are set


@dataclass(frozen=True)
class Params:
    eps1: NonNegativeFloat | None = None  # a mean update below it is near zero; none: by calibration
    eps2: NonNegativeFloat | None = None  # a largest update above it is far from zero; none: likewise
    start: NonNegativeInt = 20  # no cluster is split before this round is over
    calibrate: PositiveInt = 5  # the round whose largest update sets eps1 and eps2


@dataclass
class State(ClusterState):
    deltas: ClientTable
    heard: NDArray[np.bool_]  # whether a client has sent an update
    parents: list[int]  # of each cluster, the one that it was split off; -1: none
    scale: float = 0.0  # the largest norm in the round of calibration; 0: not known yet


class Cfl(Clustered[Params, State]):
    """Splits clusters whose clients would move on in different directions."""

    no_newcomers = "the updates of a client tell its cluster"

    def init(self, model: Weights, fleet: Fleet) -> State:
        count, none = len(fleet), np.zeros_like(model.parameters)
        table = client_table(self.config, none, count)
        return State([GlobalState(model.copy())], np.zeros(count, np.int64), table, np.zeros(count, bool), [-1])

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        for arrival in arrivals:
            row = self.fleet.row(arrival.client)
            state.deltas[row], state.heard[row] = arrival.uplink.weights["delta"].parameters, True
        number = state.models[0].step + 1
        if number == self.params.calibrate:
            state.scale = float(max(np.square(delta, dtype=np.float64).sum() for delta in state.deltas)) ** 0.5
        eps = self._thresholds(state)
        if number > self.params.start and eps is not None:
            for cluster in range(len(state.models)):
                self._split(state, cluster, *eps)
        return super().update(state, [replace(a, uplink=replace(a.uplink, examples=1)) for a in arrivals])  # (4)

    def _split(self, state: State, cluster: int, eps1: float, eps2: float) -> None:
        """(2) and (3)."""
        rows = np.flatnonzero(state.members == cluster)
        if len(rows) <= 2 or not state.heard[rows].all():
            return
        products = gram([state.deltas[row] for row in rows])
        mean, largest = np.sqrt(max(products.mean(), 0)), np.sqrt(products.diagonal().max())
        if mean < eps1 and largest > eps2:
            from fedsim.angles import halves  # scipy, which clients do without

            state.members[rows[halves(1 - cosines(products))]] = len(state.models)
            state.models.append(replace(state.models[cluster], moments=dict(state.models[cluster].moments)))
            state.parents.append(cluster)

    def _thresholds(self, state: State) -> tuple[float, float] | None:
        """eps_1 and eps_2; None if one of them is not known yet."""
        given = self.params.eps1, self.params.eps2
        if None in given and not state.scale:
            return None
        eps1, eps2 = MEAN_SHARE * state.scale, LARGEST_SHARE * state.scale
        return eps1 if given[0] is None else given[0], eps2 if given[1] is None else given[1]


CFL = Algorithm(
    name="cfl",
    about="clusters are split where updates point in different directions (Sattler et al. 2020)",
    params=Params,
    server=Cfl,
    vectorizes=True,
)
