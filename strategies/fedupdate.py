"""FedUpdate: federated averaging, and one step of each client's own before it uses the model (Jiang et al. 2019, arXiv
1909.12488, as the baseline of the SPFL paper).

Server and client training: FedAvg, equations (1) and (2) of `strategies.fedavg`.
Personal model (1):  v_k = w - beta * grad F_k(w; one mini-batch), `steps` times

v_k is evaluated as `personal`, and training goes on from w. In the authors' script it went on from v_k, an extra step per
round. The rate beta is the run's.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import at_least
from strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    steps: int = 1  # mini-batches

    def __post_init__(self) -> None:
        at_least("fedupdate.steps", self.steps, 1)


FEDUPDATE = Algorithm(
    name="fedupdate",
    about="FedAvg, and each client takes a step of its own before it uses the model (Jiang et al. 2019)",
    params=Params,
    server=FedAvg,
    client="clients.fine_tuning:Updated",
)
