"""MOON: model-contrastive federated learning (Li, He, Song 2021, arXiv 2103.16257).

Client (1):  l_con(x) = -log( e^{cos(z, z_glob) / tau} / (e^{cos(z, z_glob) / tau} + e^{cos(z, z_prev) / tau}) )
       (2):  w_k <- w_k - eta * grad [ F_k(w_k) + mu * mean l_con ], started at w; sends delta_k = w_k - w
Server (3):  w <- w + sum_{k in S} (n_k / n_S) * delta_k, as FedAvg

| symbol | meaning                                                     | name here                          |
| ------ | ----------------------------------------------------------- | ---------------------------------- |
| w      | global model                                                | `GlobalState.model`                |
| z      | features of x, the input of the head, under the local model | `Trainer.forward`                  |
| z_glob | features under the received model                           | `FrozenFeatures` of `down.model`   |
| z_prev | features under the model this client trained last           | `previous` in the client's state   |
| tau    | temperature                                                 | `Params.tau`                       |
| mu     | weight of the contrast                                      | `Params.mu`                        |

The received and the previous model are frozen and in evaluation mode (BatchNorm as in a test), so their features depend
on the sample alone and are computed once per job, however many epochs it has. Before a client's first job its previous
model is the initial one: where all three models are equal, l_con is ln 2. mu = 0 is FedAvg, bit for bit.
Deviation: z is the input of the head, without the authors' projection layers between both: with them the model would
not be that of the other algorithms. The authors choose mu from {0.1, 1, 5, 10}; 5 is their choice for CIFAR-10.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import NonNegativeFloat, PositiveFloat
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    mu: NonNegativeFloat = 5.0  # weight of the contrast
    tau: PositiveFloat = 0.5  # temperature of the contrast


class Moon(FedAvg):
    """(3); the previous models stay with the clients."""


MOON = Algorithm(
    name="moon",
    about="features are drawn to the global model's and away from the last local model's (Li et al. 2021)",
    params=Params,
    server=Moon,
    client="fedsim.clients.moon:MoonClient",
)
