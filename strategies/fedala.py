"""FedALA: adaptive local aggregation (Zhang et al. 2023, arXiv 2212.01197).

Client (1):  theta_k = l_k + (w - l_k) * A_k on the top layers, theta_k = w on the others
       (2):  A_k <- clip(A_k - eta_A * grad_theta F_k(theta_k) * (w - l_k), 0, 1), on every mini-batch of a random slice
       (3):  l_k = LocalSGD(theta_k; D_k); sends delta_k = l_k - w
Server (4):  w <- w + sum_{k in S} (n_k / n_S) * delta_k, as FedAvg

| symbol  | meaning                                             | name here                       |
| ------- | --------------------------------------------------- | ------------------------------- |
| w       | global model                                        | `GlobalState.model`             |
| l_k     | model of client k after its last job                | `own` in the client's state     |
| A_k     | how much of w each top parameter takes, 1 at first  | `rates` in the client's state   |
| theta_k | personal model: where client k starts               | `personalize`                   |
| eta_A   | learning rate of A_k                                | `Params.eta`                    |

The first time (2) goes on until the losses at the end of the last ten epochs have a standard deviation below
`threshold`, at most `epochs` epochs (the authors' loop may never end); later it takes one epoch. It is left out while
l_k does not exist or equals w. (1) is evaluated before (3), as `personal`, with an A_k that is learned for the
evaluation and then forgotten: only a job changes what a client keeps, so absent clients do not drift. Draws of (2) do
not touch those of (3): with eta_A = 0 the run is FedAvg. The threshold is the paper's; the authors' code has 0.1. `top`
names the stages that adapt (`all`: every layer). Buffers are those of w.
"""

from dataclasses import dataclass
from typing import Any

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import NonNegativeFloat, PositiveFraction, PositiveInt
from fedsim.server.fleet import Fleet
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    eta: NonNegativeFloat = 1.0  # eta_A, learning rate of the mixing rates
    share: PositiveFraction = 0.8  # of the training samples, on which the mixing rates learn
    threshold: NonNegativeFloat = 0.01  # deviation of the last losses below which the first adaptation ends
    epochs: PositiveInt = 100  # of the first adaptation, at most
    top: tuple[str, ...] = ("head",)  # stages of the model that adapt, or all


class FedALA(FedAvg):
    """(4)."""

    params: Any

    def init(self, model: Weights, fleet: Fleet) -> GlobalState:
        fleet.layout.part(*self.params.top)  # refuses unknown stages before the first job
        return super().init(model, fleet)


FEDALA = Algorithm(
    name="fedala",
    about="each client learns how much of the global model's top layers to take over (Zhang et al. 2023)",
    params=Params,
    server=FedALA,
    client="fedsim.clients.fedala:FedALAClient",
)
