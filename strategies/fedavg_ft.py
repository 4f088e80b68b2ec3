"""FedAvg-FT: federated averaging, then every client fine-tunes a copy for itself.

Server and client training: FedAvg, equations (1) and (2) of `strategies.fedavg`.
Personal model (1):  v_k = LocalSGD(w; D_k), E_ft epochs from the current global model

v_k is what is evaluated as `personal`. It is never uploaded and never trained on: the federation's trajectory is
exactly that of FedAvg. The length of the fine-tuning is the run's own local epochs unless set.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import at_least
from strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FineTuning:
    epochs: int = 0  # E_ft; 0: as long as local training

    def __post_init__(self) -> None:
        at_least("fedavg-ft.epochs", self.epochs, 0)


FEDAVG_FT = Algorithm(
    name="fedavg-ft",
    about="FedAvg, and each client fine-tunes a copy of the global model",
    params=FineTuning,
    server=FedAvg,
    client="clients.fine_tuning:FineTuned",
)
