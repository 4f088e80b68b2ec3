"""FedAvg: federated averaging (McMahan et al. 2017, arXiv 1602.05629).

Server (1):  w <- w + sum_{k in S} (n_k / n_S) * delta_k,   n_S = sum_{k in S} n_k
Client (2):  delta_k = LocalSGD(w; D_k) - w,   E epochs of mini-batches of size B
Stale (3):   w_k = w_a + delta_k for a client that started from an earlier global model w_a

| symbol  | meaning                               | name here                                  |
| ------- | ------------------------------------- | ------------------------------------------ |
| w, w_a  | global model, now and at step a       | `GlobalState.model`, `GlobalState.history` |
| S       | clients whose results arrived         | `arrivals`                                 |
| n_k     | training samples of client k          | `uplink.examples`                          |
| delta_k | update of client k                    | `uplink.weights["delta"]`                  |

(1) is the weighted mean of the local models, written with differences; `aggregator` may replace the mean of the
differences, and `server-optimizer` the step along it. A stale model is averaged as if it were fresh: this is FedAvg
(Async) of the PLGA paper, and dropping it (pace=deadline) is its FedAvg (Sync). (3) adds (n_k / n_S) * (w_a - w) to
(1), whatever the aggregator is; server optimizers other than sgd take stale updates as they are, without (3). The
weights are normalized over the clients that took part, as in the paper's later version, not over all. Buffers are
averaged.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import NoParams
from fedsim.payload import Arrival, with_updates
from fedsim.weights import Weights


class FedAvg(GlobalStrategy[Any]):
    """The weighted mean of the local models; also the server half of algorithms that differ only in the client half."""

    averages = averages_model = optimizes = True

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        w, (held, samples) = state.model.parameters, with_updates(arrivals)
        updates = [a.uplink.weights["delta"].parameters for a in held]
        mean = self.aggregate_updates(state, updates, samples, self.scales(held))
        after, rate = self.stepped(state, mean), self.server_optimizer.model_rate  # (1)
        for arrival in arrivals:
            if arrival.staleness and rate:  # (3)
                share = np.float32(rate * arrival.uplink.examples / sum(samples))
                after += share * (self.base(state, arrival) - w)
        return self.advance(state, Weights(after, self.mean_buffers(state, held, samples)))

    def scales(self, arrivals: Sequence[Arrival]) -> Sequence[float] | None:
        """The factors of the updates, before they are averaged; None: 1."""
        return None

    @property
    def takes_means(self) -> bool:
        own = type(self)
        return own.update is FedAvg.update and own.scales is FedAvg.scales


FEDAVG = Algorithm(
    "fedavg", "weighted mean of the local models (McMahan et al. 2017)", NoParams, FedAvg, vectorizes=True
)
