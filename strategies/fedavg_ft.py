"""FedAvg-FT: federated averaging; every client evaluates a fine-tuned copy of the global model.

Server and client training: FedAvg, equations (1) and (2) of `fedsim.strategies.fedavg`.
Personal model (1):  v_k = LocalSGD(w; D_k), E_ft epochs from the current global model

v_k is evaluated as `personal`. It is never uploaded and never trained further: the global model is exactly that of
FedAvg. E_ft is the run's local epochs (or steps) unless set. This is FedAvg with `finetune=local`, or E_ft; the other
keys of `finetune` apply as well.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import FineTuning, NonNegativeInt
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    epochs: NonNegativeInt = 0  # E_ft, epochs of fine-tuning; 0: as long as local training


FEDAVG_FT = Algorithm(
    name="fedavg-ft",
    about="FedAvg, and each client fine-tunes a copy of the global model",
    params=Params,
    server=FedAvg,
    finetune=lambda params: FineTuning(params.epochs or None),
    vectorizes=True,
)
