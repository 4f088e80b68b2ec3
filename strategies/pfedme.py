"""pFedMe: personalized federated learning with Moreau envelopes (Dinh, Tran, Nguyen 2020, arXiv 2006.08848).

Objective (1):  min over w of (1/N) sum_k min over theta of F_k(theta) + (lambda/2) ||theta - w||^2
Client (2):     for each mini-batch: K times
                theta <- theta - eta_p * (grad F_k(theta) + lambda (theta - w_k) + mu theta),
                then w_k <- w_k - lambda * eta * (w_k - theta)
Server (3):     w <- (1 - b) w + b * mean of the w_k

| symbol | meaning                                    | name here                                    |
| ------ | ------------------------------------------ | -------------------------------------------- |
| w      | global model                               | `GlobalState.model`                          |
| theta  | personal model, also the `local` one       | `personal` in the client's state             |
| w_k    | local copy of the global model             | received model + `uplink.weights["delta"]`   |
| eta    | rate of w_k                                | the run's lr                                 |
| eta_p  | rate of theta                              | `Params.inner_lr`                            |
| b      | server mixing                              | `Params.beta`                                |

theta starts from the received model and is kept from batch to batch. The term mu theta is not in the paper: the
authors' optimizer adds it, with mu = 0.001, which is the default here. The SPFL paper's baseline is inner-steps = 2,
inner-lr = 0.01; for (2) as the pFedMe paper prints it, set mu = 0. Clients are weighted by their samples, as in
FedAvg, not equally.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import NonNegativeFloat, PositiveFloat, PositiveInt, RunConfig
from fedsim.errors import ConfigError
from fedsim.payload import Arrival
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    lam: PositiveFloat = 15.0  # lambda: how strongly a personal model is held to the global one
    inner_steps: PositiveInt = 5  # K, steps of the personal model on each mini-batch
    inner_lr: PositiveFloat = 0.09  # eta_p, rate of the personal model
    mu: NonNegativeFloat = 0.001  # weight decay of the personal model, as in the authors' code; the paper has none
    beta: PositiveFloat = 1.0  # b, share of the clients' mean in the new global model

    def __post_init__(self) -> None:
        if self.inner_lr * self.lam >= 2:
            raise ConfigError(f"pfedme.inner-lr * pfedme.lam is {self.inner_lr * self.lam:g}: from 2 on theta diverges")


class PFedMe(FedAvg):
    """The mean of the local copies, mixed into the global model."""

    def __init__(self, params: Params, config: RunConfig) -> None:
        super().__init__(params, config)
        if config.lr * params.lam >= 2:
            raise ConfigError(f"lr * pfedme.lam is {config.lr * params.lam:g}: from 2 on the local copies diverge")

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        before, after, b = state.model.parameters, super().update(state, arrivals), np.float32(self.params.beta)
        if b == 1:
            return after
        mixed = (1 - b) * before + b * after.model.parameters  # (3)
        return replace(after, model=Weights(mixed, after.model.buffers))


PFEDME = Algorithm(
    name="pfedme",
    about="personal models with a quadratic penalty on their distance to the global one (Dinh et al. 2020)",
    params=Params,
    server=PFedMe,
    client="fedsim.clients.pfedme:PFedMeClient",
)
