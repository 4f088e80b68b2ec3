"""FedBN: federated averaging without the normalization layers (Li et al. 2021, arXiv 2102.07623).

Server (1):  u <- u + sum_{k in S} (n_k / n_S) * delta_k,   everything but normalization layers
Client (2):  trains (u, b_k), sends delta_k = u_k - u, keeps the normalization layers b_k and their running statistics

| symbol | meaning                                          | name here                        |
| ------ | ------------------------------------------------ | -------------------------------- |
| u      | all other layers                                 | `GlobalState.model`              |
| b_k    | normalization layers and statistics of client k  | `private` in the client's state  |

Layers are told apart by their type, not by a name that contains "bn": BatchNorm, or with norm = all also LayerNorm,
GroupNorm and InstanceNorm. The personal model is (u, b_k); there is no global model. A client that never trained uses
the initial b.
Deviation: clients count by their samples, as in FedAvg; the authors' code weighs five equal domains equally.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedsim.algorithm import Algorithm
from fedsim.layout import BATCH_NORM, NORM
from fedsim.strategies.shared_part import SharedPart


@dataclass(frozen=True)
class Params:
    norm: Literal["batch", "all"] = "batch"  # which normalization layers stay with the clients


class FedBN(SharedPart):
    """(1): the mean of everything but the normalization layers."""

    params: Any

    def private(self) -> Sequence[str]:
        return [BATCH_NORM if self.params.norm == "batch" else NORM]


FEDBN = Algorithm(
    name="fedbn",
    about="FedAvg without normalization layers, which stay with the clients (Li et al. 2021)",
    params=Params,
    server=FedBN,
    client="fedsim.clients.fedper:PartlyPrivate",
)
