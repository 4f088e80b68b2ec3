"""pFedMe: personalized federated learning with Moreau envelopes (Dinh, Tran, Nguyen 2020, arXiv 2006.08848).

Objective (1):  min over w of (1/N) sum_k min over theta of F_k(theta) + (lambda/2) ||theta - w||^2
Client (2):     for each mini-batch: K times theta <- theta - eta_p * (grad F_k(theta) + lambda (theta - w_k) + mu theta),
                then w_k <- w_k - lambda * eta * (w_k - theta)
Server (3):     w <- (1 - b) w + b * mean of the w_k

| symbol | meaning                                    | name here                                    |
| ------ | ------------------------------------------ | -------------------------------------------- |
| theta  | personal model, also the `local` one       | the client's memory                          |
| w_k    | local copy of the global model             | received model + `uplink.vectors["delta"]`   |
| eta    | rate of w_k                                | the run's lr                                 |
| eta_p  | rate of theta                              | `Params.inner_lr`                            |
| b      | server mixing                              | `Params.beta`                                |

theta starts from the received model and is kept from batch to batch. mu theta hides in the authors' optimizer. The SPFL
paper's baseline is inner-steps = 2, inner-lr = 0.01, mu = 0. Clients count by their samples, as in FedAvg, not equally.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import RunConfig, at_least, positive
from fedsim.errors import ConfigError
from fedsim.payload import Arrival
from strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    lam: float = 15.0
    inner_steps: int = 5  # K
    inner_lr: float = 0.09
    mu: float = 0.001
    beta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("lam", "inner_lr", "beta"):
            positive(f"pfedme.{name}", getattr(self, name))
        at_least("pfedme.inner_steps", self.inner_steps, 1)
        at_least("pfedme.mu", self.mu, 0)
        if self.inner_lr * self.lam >= 2:
            raise ConfigError(f"pfedme.inner-lr * pfedme.lam is {self.inner_lr * self.lam:g}: from 2 on theta diverges")


class PFedMe(FedAvg):
    """The mean of the local copies, mixed into the global model."""

    def __init__(self, params: Params, config: RunConfig) -> None:
        super().__init__(params, config)
        if config.lr * params.lam >= 2:
            raise ConfigError(f"lr * pfedme.lam is {config.lr * params.lam:g}: from 2 on the local copies diverge")

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        before, after, b = state.theta, super().update(state, arrivals), np.float32(self.params.beta)
        return after if b == 1 else replace(after, theta=(1 - b) * before + b * after.theta)  # (3)


PFEDME = Algorithm(
    name="pfedme",
    about="personal models held to the global one by Moreau envelopes (Dinh et al. 2020)",
    params=Params,
    server=PFedMe,
    client="clients.moreau:Moreau",
)
