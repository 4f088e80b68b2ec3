"""FedPer: federated learning with personalization layers (Arivazhagan et al. 2019, arXiv 1912.00818).

Server (1):  phi <- phi + sum_{k in S} (n_k / n_S) * delta_k,   the base layers alone
Client (2):  trains (phi, psi_k) jointly, sends delta_k = phi_k - phi, keeps the head psi_k

| symbol | meaning                               | name here                           |
| ------ | ------------------------------------- | ----------------------------------- |
| phi    | base: everything but `personal`       | `GlobalState.model`                 |
| psi_k  | personalization layers of client k    | `private` in the client's state     |

The personal model is the received phi with the client's own psi_k; there is no global model. BatchNorm statistics of
the base belong to phi. Deviation: all heads start from the common initial model; in the paper each is random.
`personal` names the stages or layers that stay with the clients: `head`, as in the paper's smallest setting, or more:
`base.2,head`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedsim.algorithm import Algorithm
from fedsim.strategies.shared_part import SharedPart


@dataclass(frozen=True)
class Params:
    personal: tuple[str, ...] = ("head",)  # stages or layers that stay with the clients, or all


class FedPer(SharedPart):
    """(1): the mean of the base layers."""

    params: Any

    def private(self) -> Sequence[str]:
        return list(self.params.personal)


FEDPER = Algorithm(
    name="fedper",
    about="FedAvg of the base layers; each client keeps its head (Arivazhagan et al. 2019)",
    params=Params,
    server=FedPer,
    client="fedsim.clients.fedper:PartlyPrivate",
)
