"""FedAvg: federated averaging (McMahan et al. 2017, arXiv 1602.05629).

Server (1):  w <- w + sum_{k in S} (n_k / n_S) * delta_k,   n_S = sum_{k in S} n_k
Client (2):  delta_k = LocalSGD(w; D_k) - w,   E epochs of mini-batches of size B

| symbol | meaning                                | name here              |
| ------ | -------------------------------------- | ---------------------- |
| w      | global model                           | `GlobalState.theta`    |
| S      | clients whose results arrived          | `arrivals`             |
| n_k    | training samples of client k           | `uplink.examples`      |

Stale (3):   w_k = w_a + delta_k for a client that started from an earlier global model w_a

(1) is the weighted mean of the local models, written with differences. A stale model is averaged as if it were fresh:
this is FedAvg (Async) of the PLGA paper, and dropping it (pace=deadline) is its FedAvg (Sync). The weights are normalised
over the clients that took part, as in the paper's later version, not over all. Buffers are averaged likewise.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import NoParams
from fedsim.payload import Arrival
from fedsim.vector import weighted_mean


class FedAvg(GlobalStrategy[Any]):
    """The weighted mean of what arrived; also the server of every algorithm that only trains differently."""

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        examples = [a.uplink.examples for a in arrivals]
        theta = state.theta + weighted_mean([a.uplink.vectors["delta"] for a in arrivals], examples)  # (1)
        for arrival in arrivals:
            if arrival.staleness:  # (3)
                theta += np.float32(arrival.uplink.examples / sum(examples)) * (self.base(state, arrival) - state.theta)
        if state.buffers.size:
            state.buffers = weighted_mean([a.uplink.vectors["buffers"] for a in arrivals], examples)
        return self.advance(state, theta)


FEDAVG = Algorithm("fedavg", "weighted mean of the local models (McMahan et al. 2017)", NoParams, FedAvg)
