"""FedProx: federated averaging with a proximal term (Li et al. 2020, arXiv 1812.06127).

Server (1):  w <- w + sum_{k in S} (n_k / n_S) * delta_k, as FedAvg
Client (2):  delta_k = x - w,   x = SGD on F_k(x) + (mu/2) ||x - w||^2, started at w

The anchor w is a copy of the received model, constant while x moves. mu = 0 is FedAvg. Deviation: clients do a fixed
amount of work; the paper's partial work of slow clients is left to the straggler models.
"""

from dataclasses import dataclass
from typing import Any

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import NonNegativeFloat
from fedsim.payload import Downlink
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    mu: NonNegativeFloat = 0.01  # weight of the proximal term in local training


class FedProx(FedAvg):
    """FedAvg that sends the weight of the proximal term; expects parameters with `mu`."""

    params: Any

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        return Downlink({"model": state.model}, numbers={"proximal": self.params.mu})


FEDPROX = Algorithm(
    name="fedprox",
    about="FedAvg with a proximal term in local training (Li et al. 2020)",
    params=Params,
    server=FedProx,
    client="fedsim.clients.fedprox:Proximal",
    vectorizes=True,
)
