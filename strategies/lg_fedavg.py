"""LG-FedAvg: local representations below global layers (Liang et al. 2020, arXiv 2001.01523).

Server (1):  u <- u + sum_{k in S} (n_k / n_S) * delta_k,   the last layers alone
Client (2):  trains (b_k, u), sends delta_k = u_k - u, keeps the lower layers b_k

| symbol | meaning                                                | name here                        |
| ------ | ------------------------------------------------------ | -------------------------------- |
| u      | the last `layers` layers with a matrix or convolution  | `GlobalState.model`              |
| b_k    | everything below them, BatchNorm statistics included   | `private` in the client's state  |

The opposite of FedPer. The personal model is (b_k, u); there is no global model. A model with no more layers than that
is shared whole: FedAvg; `layers=0` is local training. Normalization layers belong to the side on which they lie.
Deviations: clients count by their samples, in the authors' code equally; all start from the common initial model, there
from one that FedAvg has trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedsim.algorithm import Algorithm
from fedsim.config import NonNegativeInt
from fedsim.strategies.shared_part import SharedPart


@dataclass(frozen=True)
class Params:
    layers: NonNegativeInt = 2  # how many layers are shared, counted from the last one


class LgFedAvg(SharedPart):
    """(1): the mean of the last layers."""

    params: Any

    def private(self) -> Sequence[str]:
        layout = self.fleet.layout
        heavy = dict.fromkeys(t.layer for t in layout.parameters if len(t.shape) > 1 and not t.kind)
        shared = list(heavy)[-self.params.layers :] if self.params.layers else []
        return layout.layers[: layout.layers.index(shared[0])] if shared else layout.layers


LG_FEDAVG = Algorithm(
    name="lg-fedavg",
    about="FedAvg of the last layers; each client keeps the layers below (Liang et al. 2020)",
    params=Params,
    server=LgFedAvg,
    client="fedsim.clients.fedper:PartlyPrivate",
)
