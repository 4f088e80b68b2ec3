"""FedDyn: dynamic regularization (Acar et al. 2021, arXiv 2111.04263).

Client (1):  th_k = SGD on L_k(th) - <g_k, th> + (a/2) ||th - th^{t-1}||^2, started at th^{t-1}
       (2):  g_k <- g_k - a * (th_k - th^{t-1}),   sends delta_k = th_k - th^{t-1}
Server (3):  h <- h - (a/m) * sum_{k in P} (th_k - th^{t-1})
       (4):  th^t = (1/|P|) * sum_{k in P} th_k - h/a

| symbol | meaning                                       | name here                            |
| ------ | --------------------------------------------- | ------------------------------------ |
| th     | global model that is broadcast                | `State.model`                        |
| h      | -(a/m) * the sum of all drifts so far         | `State.drift`                        |
| g_k    | estimate of the gradient of L_k, 0 at first   | `gradient` in the client's state     |
| P, m   | clients whose results arrived; all clients    | `arrivals`, `fleet`                  |
| a      | weight of the regularization                  | `Params.alpha`                       |

With l_k = -g_k / a, the sum of the client's drifts, (1) is a proximal term around th^{t-1} - l_k and (4) is the mean
model plus the mean of all l_k: the form of the authors' code. Clients count equally, as in the paper; the authors'
code divides a by the client's relative size. (3) is a (|P|/m) times the aggregated update, so that a robust
`aggregator` protects h too. A result that is lost or dropped (pace=deadline) changes its g_k but not h. A stale th_k
is averaged as FedAvg does; its drift is from the model it started from. Deviation: the recorded global accuracy is
that of th^t, which clients receive, not that of the mean of the th_k, which would have to be sent beside it. As in
the authors' code gradients are clipped to `clip`; here those of L_k alone, before the regularization is added.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import NonNegativeFloat, PositiveFloat
from fedsim.payload import Arrival
from fedsim.server.fleet import Fleet
from fedsim.weights import Vec, Weights


@dataclass(frozen=True)
class Params:
    alpha: PositiveFloat = 0.01  # a, weight of the dynamic regularization
    clip: NonNegativeFloat = 10.0  # largest length of the gradient of a mini-batch; 0: any


@dataclass
class State(GlobalState):
    drift: Vec = field(default_factory=lambda: np.zeros(0, np.float32))


class FedDyn(GlobalStrategy[Params]):
    """The mean of the local models, moved on by the mean of all drifts so far."""

    averages = True

    def init(self, model: Weights, fleet: Fleet) -> State:
        return State(model.copy(), drift=np.zeros_like(model.parameters))

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        w, alpha, equal = state.model.parameters, self.params.alpha, [1.0] * len(arrivals)
        mean = self.aggregate([a.uplink.weights["delta"].parameters for a in arrivals], equal)
        drift = state.drift - np.float32(alpha * len(arrivals) / len(self.fleet)) * mean  # (3)
        after = w + mean - np.float32(1 / alpha) * drift  # (4)
        for arrival in arrivals:
            if arrival.staleness:
                after += np.float32(1 / len(arrivals)) * (self.base(state, arrival) - w)
        model = Weights(np.asarray(after, np.float32), self.mean_buffers(state, arrivals, equal))
        return State(**vars(self.advance(state, model)), drift=drift)


FEDDYN = Algorithm(
    name="feddyn",
    about="dynamic regularization against client drift (Acar et al. 2021)",
    params=Params,
    server=FedDyn,
    client="fedsim.clients.feddyn:FedDynClient",
    vectorizes=True,
)
