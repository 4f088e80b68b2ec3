"""FedProx-FT: FedProx, then every client fine-tunes a copy for itself.

Server and client training: FedProx, equations (1) and (2) of `strategies.fedprox`.
Personal model (1):  v_k = LocalSGD(w; D_k), E_ft epochs from the current global model, without the proximal term

As in FedAvg-FT, v_k is what is evaluated as `personal`; it is never uploaded and never trained on.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import at_least
from strategies.fedprox import FedProx


@dataclass(frozen=True)
class Params:
    mu: float = 0.01
    epochs: int = 0  # E_ft; 0: as long as local training

    def __post_init__(self) -> None:
        at_least("fedprox-ft.mu", self.mu, 0)
        at_least("fedprox-ft.epochs", self.epochs, 0)


FEDPROX_FT = Algorithm(
    name="fedprox-ft",
    about="FedProx, and each client fine-tunes a copy of the global model",
    params=Params,
    server=FedProx,
    client="clients.fine_tuning:FineTunedProximal",
)
