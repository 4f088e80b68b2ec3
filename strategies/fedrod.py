"""FedRoD: one model with a generic and a personal predictor (Chen, Chao 2022, arXiv 2107.00778).

Client (1):    (phi, psi_g) <- SGD on the balanced loss CE(z + gamma log n_k, y),   z = psi_g(f), f = phi(x)
       (2):    psi_k <- SGD on CE(stop(z) + psi_k(stop(f)), y), on the same mini-batch
               sends the update of (phi, psi_g), keeps psi_k
Server (3):    (phi, psi_g) <- mean of the clients', by samples, as FedAvg
Personal (4):  z + psi_k(f), the head psi_g + psi_k;   the global model predicts z

| symbol     | meaning                                          | name here                             |
| ---------- | ------------------------------------------------ | ------------------------------------- |
| phi, psi_g | base and generic head: the global model          | `GlobalState.model`                   |
| psi_k      | personal head of client k, 0 at first            | `head` in the client's state          |
| n_k        | training samples of client k in each class       | `task.labels`                         |
| gamma      | strength of the balance; 0: plain cross entropy  | `Params.gamma`                        |

A class that a client lacks has log 0: it is excluded from (1), so its row of psi_g gets no gradient there. (2) reaches
neither phi nor psi_g, so the global model does not depend on the personal heads. Both steps take the run's optimizer.
The head must be one linear layer: two of them add up to one. Deviations: psi_k is linear, the paper's hypernetwork
variant is not here; psi_k starts at 0, so a client that never trained uses the global model.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import NonNegativeFloat
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    gamma: NonNegativeFloat = 1.0  # strength of the balanced loss; 0: plain cross entropy


FEDROD = Algorithm(
    name="fedrod",
    about="a generic head trained with a balanced loss, and a personal head beside it (Chen, Chao 2022)",
    params=Params,
    server=FedAvg,
    client="fedsim.clients.fedrod:FedRoDClient",
    targets="classes",
)
