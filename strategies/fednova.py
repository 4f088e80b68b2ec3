"""FedNova: normalized averaging (Wang, Liu, Liang, Joshi, Poor 2020, arXiv 2007.07481).

Client (1):  delta_i = LocalSGD(w; D_i) - w in tau_i steps, with momentum rho and a proximal term mu if set
       (2):  a_i = m_{tau_i},   v_k = rho v_{k-1} + 1 - eta mu m_{k-1},   m_k = m_{k-1} + v_k,   v_0 = m_0 = 0
Server (3):  w <- w + tau_eff * sum_{i in S} p_i (delta_i / a_i),   tau_eff = sum_{i in S} p_i a_i,   p_i = n_i / n_S

| symbol  | meaning                                                   | name here                           |
| ------- | --------------------------------------------------------- | ----------------------------------- |
| a_i     | sum of the factors with which gradients enter delta_i     | `steps` of the uplink               |
| tau_i   | local steps of client i                                   | `Fit.steps`                         |
| mu, rho | proximal weight, momentum of local SGD                    | `Params.mu`, the run's `momentum`   |
| eta     | learning rate                                             | the run's `lr`                      |

(2) are the paper's cases in one recursion: a_i = tau_i for plain SGD, (tau_i - rho (1 - rho^tau_i) / (1 - rho)) / (1 - rho)
with momentum, and a <- (1 - eta mu) a + 1 with a proximal term; the authors' code counts steps twice where both are
set. Equal a_i are FedAvg. (3) is FedAvg's step with the updates scaled by tau_eff / a_i, so `aggregator` and
`server-optimizer` apply; a stale model is averaged as FedAvg does. `weight-decay` belongs to the gradient.
Deviation: clients send delta_i and a_i instead of their quotient, which is the same information.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import NonNegativeFloat, RunConfig
from fedsim.errors import ConfigError
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    mu: NonNegativeFloat = 0.0  # weight of the proximal term in local training


class FedNova(FedAvg):
    """The mean of updates that are divided by the steps behind them."""

    def __init__(self, params: Params, config: RunConfig) -> None:
        super().__init__(params, config)
        if config.optimizer != "sgd":
            raise ConfigError(
                f"fednova counts the steps of SGD, which optimizer={config.optimizer} does not take: use sgd"
            )

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        return Downlink({"model": state.model}, numbers={"proximal": self.params.mu} if train else {})

    def scales(self, arrivals: Sequence[Arrival]) -> Sequence[float]:
        """tau_eff / a_i of (3); 0 for a client that took no step."""
        steps = np.array([float(a.uplink.arrays["steps"][0]) for a in arrivals])
        effective = np.average(steps, weights=[a.uplink.examples for a in arrivals])
        factors: list[float] = np.divide(effective, steps, out=np.zeros_like(steps), where=steps > 0).tolist()
        return factors

    def expects(self) -> Mapping[str, Spec]:
        return {**super().expects(), "steps": Spec((1,), low=0)}


FEDNOVA = Algorithm(
    name="fednova",
    about="FedAvg of updates that are normalized by their local steps (Wang et al. 2020)",
    params=Params,
    server=FedNova,
    client="fedsim.clients.fednova:FedNovaClient",
    vectorizes=True,
)
