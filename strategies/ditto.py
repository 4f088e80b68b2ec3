"""Ditto: a personal model beside the global one, held near it (Li, Hu, Beirami, Smith 2021, arXiv 2012.04221).

Client (1):  v_k <- v_k - eta * (grad F_k(v_k) + lambda (v_k - w)),   w as received, during the whole job
       (2):  w_k <- w_k - eta * grad F_k(w_k), started at w; sends delta_k = w_k - w
Server (3):  w <- w + sum_{k in S} (n_k / n_S) * delta_k, as FedAvg

| symbol | meaning                              | name here                      |
| ------ | ------------------------------------ | ------------------------------ |
| w      | global model                         | `GlobalState.model`            |
| v_k    | personal model of client k           | `own` in the client's state    |
| lambda | how strongly v_k is held to w        | `Params.lam`                   |

(1) and (2) take a step each on the same mini-batch, (1) first, as the authors' code does; the pull of (1) is part of
the gradient, so momentum sees it. v_k starts at the first model its client receives and moves only in its client's
jobs. The global model is that of FedAvg, bit for bit, whatever lambda is. Deviation: lambda is fixed; the authors also
choose it from {0.1, 1, 2} by validation loss. Clients are sampled uniformly and weighted by their samples.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import NonNegativeFloat
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    lam: NonNegativeFloat = 1.0  # lambda: how strongly a personal model is held to the global one


class Ditto(FedAvg):
    """(3); the personal models stay with the clients."""


DITTO = Algorithm(
    name="ditto",
    about="each client trains a second model that is held near the global one (Li et al. 2021)",
    params=Params,
    server=Ditto,
    client="fedsim.clients.ditto:DittoClient",
)
