"""FedProx-FT: FedProx; every client evaluates a fine-tuned copy of the global model.

Server and client training: FedProx, equations (1) and (2) of `fedsim.strategies.fedprox`.
Personal model (1):  v_k = LocalSGD(w; D_k), E_ft epochs from the current global model, without the proximal term

As in FedAvg-FT, v_k is evaluated as `personal`; it is never uploaded and never trained further. This is FedProx with
`finetune=local`, or E_ft.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import FineTuning, NonNegativeFloat, NonNegativeInt
from fedsim.strategies.fedprox import FedProx


@dataclass(frozen=True)
class Params:
    mu: NonNegativeFloat = 0.01  # weight of the proximal term in local training
    epochs: NonNegativeInt = 0  # E_ft, epochs of fine-tuning; 0: as long as local training


FEDPROX_FT = Algorithm(
    name="fedprox-ft",
    about="FedProx, and each client fine-tunes a copy of the global model",
    params=Params,
    server=FedProx,
    client="fedsim.clients.fedprox:Proximal",
    finetune=lambda params: FineTuning(params.epochs or None),
    vectorizes=True,
)
