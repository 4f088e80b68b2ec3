"""FedBuff: buffered asynchronous aggregation (Nguyen et al. 2022, arXiv 2106.06639).

Server (1):  w <- w + eta * (1/K) * sum_k s(u_k) * delta_k,   s(u) = (1 + u)^(-1/2), after every K results
Client (2):  delta_k = LocalSGD(w_a; D_k) - w_a

| symbol  | meaning                                   | name here                     |
| ------- | ----------------------------------------- | ----------------------------- |
| w       | global model                              | `GlobalState.model`           |
| K       | results per step                          | `pace.k`                      |
| delta_k | update of client k                        | `uplink.weights["delta"]`     |
| u_k     | server steps since client k started       | `arrival.staleness`           |
| eta     | server step size                          | `Params.eta`                  |

K is the number of results that arrived, so (1) also serves other paces. As in the paper, clients have equal weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import NonNegativeFloat, PositiveFloat
from fedsim.payload import Arrival
from fedsim.strategies.staleness import Discount, discount
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    eta: PositiveFloat = 1.0  # server step size
    discount: Discount = "polynomial"  # s(u), how the weight of an update falls with its staleness
    a: NonNegativeFloat = 0.5  # of the discount: exponent of polynomial, slope of hinge
    b: NonNegativeFloat = 4.0  # staleness up to which hinge does not discount


class FedBuff(GlobalStrategy[Params]):
    """The mean of the buffered updates, each discounted by its staleness."""

    averages = averages_model = optimizes = True

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        params, equal = self.params, [1.0] * len(arrivals)
        scales = [params.eta * discount(params.discount, a.staleness, params.a, params.b) for a in arrivals]
        deltas = [a.uplink.weights["delta"].parameters for a in arrivals]
        after = self.stepped(state, self.aggregate_updates(state, deltas, equal, scales))  # (1)
        return self.advance(state, Weights(after, self.mean_buffers(state, arrivals, equal)))


FEDBUFF = Algorithm(
    name="fedbuff",
    about="a step on every K results, stale ones discounted (Nguyen et al. 2022)",
    params=Params,
    server=FedBuff,
    pace="buffered",
    vectorizes=True,
)
