"""FedUpdate: federated averaging; every client evaluates the global model after a few steps on its own data (Jiang et
al. 2019, arXiv 1909.12488, as the baseline of the SPFL paper).

Server and client training: FedAvg, equations (1) and (2) of `fedsim.strategies.fedavg`.
Personal model (1):  v_k = w - beta * grad F_k(w; one mini-batch), `steps` times

v_k is evaluated as `personal`, and training continues from w. In the authors' script it continued from v_k, one more
step per round. beta is the run's learning rate. This is FedAvg with `finetune=1` and `finetune.unit=steps`.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import FineTuning, PositiveInt
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    steps: PositiveInt = 1  # mini-batches of fine-tuning


FEDUPDATE = Algorithm(
    name="fedupdate",
    about="FedAvg, and each client uses the global model after a local step (Jiang et al. 2019)",
    params=Params,
    server=FedAvg,
    finetune=lambda params: FineTuning(params.steps, "steps"),
    vectorizes=True,
)
