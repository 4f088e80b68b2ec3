"""FedProx: federated averaging with a proximal term (Li et al. 2020, arXiv 1812.06127).

Server (1):  w <- w + sum_{k in S} (n_k / n_S) * delta_k, as FedAvg
Client (2):  delta_k = x - w,   x = SGD on F_k(x) + (mu/2) ||x - w||^2, started at w

The anchor w is a copy of what was received: it stays where it is while x moves. mu = 0 is FedAvg. Deviation: clients do
a fixed amount of work; the paper's partial work of slow clients is left to the straggler models.
"""

from dataclasses import dataclass
from typing import Any

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import at_least
from fedsim.payload import Downlink
from strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    mu: float = 0.01

    def __post_init__(self) -> None:
        at_least("fedprox.mu", self.mu, 0)


class FedProx(FedAvg):
    """Expects parameters with `mu`."""

    params: Any

    def instruct(self, state: GlobalState, client: int) -> Downlink:
        return Downlink(super().instruct(state, client).vectors, {"proximal": self.params.mu})


FEDPROX = Algorithm(
    name="fedprox",
    about="FedAvg whose clients are held near the global model (Li et al. 2020)",
    params=Params,
    server=FedProx,
    client="clients.proximal:Proximal",
)
