"""FedBuff: buffered asynchronous aggregation (Nguyen et al. 2022, arXiv 2106.06639).

Server (1):  w <- w + eta * (1/K) * sum_k s(u_k) * delta_k,   s(u) = (1 + u)^(-1/2), after every K results
Client (2):  delta_k = LocalSGD(w_a; D_k) - w_a

| symbol | meaning                                   | name here              |
| ------ | ----------------------------------------- | ---------------------- |
| w      | global model                              | `GlobalState.theta`    |
| K      | size of the buffer                        | `pace.k`               |
| u_k    | server steps since client k started       | `arrival.staleness`    |
| eta    | server step size                          | `Params.eta`           |

K is the buffer that arrived, so (1) also serves other paces. The paper weighs clients equally, not by their samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import at_least, one_of, positive
from fedsim.payload import Arrival
from fedsim.vector import weighted_mean, weighted_sum
from strategies.staleness import DISCOUNTS


@dataclass(frozen=True)
class Params:
    eta: float = 1.0
    discount: str = "polynomial"  # constant | polynomial | hinge
    a: float = 0.5
    b: float = 4.0  # only for hinge

    def __post_init__(self) -> None:
        positive("fedbuff.eta", self.eta)
        one_of("fedbuff.discount", self.discount, DISCOUNTS)
        at_least("fedbuff.a", self.a, 0)
        at_least("fedbuff.b", self.b, 0)


class FedBuff(GlobalStrategy[Params]):
    """The mean of the buffered updates, each discounted by its staleness."""

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        params, count = self.params, len(arrivals)
        discount = DISCOUNTS[params.discount]
        weights = [params.eta / count * discount(a.staleness, params.a, params.b) for a in arrivals]
        theta = state.theta + weighted_sum([a.uplink.vectors["delta"] for a in arrivals], weights)  # (1)
        if state.buffers.size:
            state.buffers = weighted_mean([a.uplink.vectors["buffers"] for a in arrivals], [1] * count)
        return self.advance(state, theta)


FEDBUFF = Algorithm(
    "fedbuff", "steps on every K results, stale ones discounted (Nguyen et al. 2022)", Params, FedBuff, pace="buffered"
)
