"""FedAsync: asynchronous federated optimization (Xie, Koyejo, Gupta 2019, arXiv 1903.03934).

Client (1):      x_k = SGD on f_k(x) + (rho/2) ||x - w_a||^2, started at the received global model w_a
Sequential (2):  for each arrival, with staleness u = now - a:   alpha_u = alpha * s(u)
                 w <- (1 - alpha_u) * w + alpha_u * x_k
Round (3):       PLGA's version for Table 2: a stale model is mixed with the current global model before the round's
                 average, x_k <- alpha_u * x_k + (1 - alpha_u) * w, fresh ones stay as they are;
                 w <- sum_k (n_k / n) x_k. It has no proximal term: set rho = 0.

| symbol | meaning                               | name here                        |
| ------ | ------------------------------------- | -------------------------------- |
| w      | global model                          | `GlobalState.theta`              |
| x_k    | local model of client k               | base + `uplink.vectors["delta"]` |
| s      | staleness discount                    | `strategies.staleness`           |
| rho    | weight of the proximal term           | `Params.rho`                     |

Arrivals of one moment are applied in client order. With many of them and alpha near 1 the last ones dominate: lower alpha.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import at_least, one_of
from fedsim.errors import ConfigError
from fedsim.payload import Arrival, Downlink
from fedsim.vector import Vec, weighted_mean
from strategies.staleness import DISCOUNTS


@dataclass(frozen=True)
class Params:
    alpha: float = 0.6  # mixing weight of a fresh model
    discount: str = "polynomial"  # constant | polynomial | hinge
    a: float = 0.5  # 0.5 for polynomial, 10 for hinge in the paper
    b: float = 4.0  # only for hinge
    rho: float = 0.005
    mode: str = "sequential"  # sequential | round

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"fedasync.alpha must be above 0 and at most 1, not {self.alpha}")
        one_of("fedasync.discount", self.discount, DISCOUNTS)
        one_of("fedasync.mode", self.mode, ("sequential", "round"))
        for name in ("a", "b", "rho"):
            at_least(f"fedasync.{name}", getattr(self, name), 0)


class FedAsync(GlobalStrategy[Params]):
    """Mixes every arrival into the global model, the less the staler it is."""

    def instruct(self, state: GlobalState, client: int) -> Downlink:
        down = super().instruct(state, client)
        return Downlink(down.vectors, {"proximal": self.params.rho})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        models = [self.base(state, a) + a.uplink.vectors["delta"] for a in arrivals]
        sizes = [a.uplink.examples for a in arrivals]
        if self.params.mode == "round":
            models = [self._mix(state.theta, x, a) if a.staleness else x for x, a in zip(models, arrivals, strict=True)]
            theta = weighted_mean(models, sizes)  # (3)
        else:
            theta = state.theta
            for model, arrival in zip(models, arrivals, strict=True):
                theta = self._mix(theta, model, arrival)  # (2)
        if state.buffers.size:
            state.buffers = weighted_mean([a.uplink.vectors["buffers"] for a in arrivals], sizes)
        return self.advance(state, theta)

    def _mix(self, theta: Vec, model: Vec, arrival: Arrival) -> Vec:
        params = self.params
        weight = np.float32(params.alpha * DISCOUNTS[params.discount](arrival.staleness, params.a, params.b))
        return (1 - weight) * theta + weight * model


FEDASYNC = Algorithm(
    name="fedasync",
    about="every arrival is mixed in at once, the less the staler it is (Xie et al. 2019)",
    params=Params,
    server=FedAsync,
    client="clients.proximal:Proximal",
    pace="buffered",
)
