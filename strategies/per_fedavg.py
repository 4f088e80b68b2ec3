"""Per-FedAvg: a global model that one local step turns into a good personal one (Fallah et al. 2020, arXiv 2002.07948).

Objective (1):   min over w of (1/N) sum_k F_k(w - alpha * grad F_k(w))
Inner step (2):  w~ = w - alpha * grad F_k(w; D),   q = grad F_k(w~; D')
First order (3): w <- w - beta * q                                                                                (fo)
Hessian (4):     w <- w - beta * [q - alpha/(2 delta) * (grad F_k(w + delta q; D'') - grad F_k(w - delta q; D''))] (hf)
Server (5):      mean of the local models, as in `fedsim.strategies.fedavg`
Personal (6):    v_k = w after `steps` steps of alpha on the client's training data

| symbol      | meaning                              | name here                                       |
| ----------- | ------------------------------------ | ----------------------------------------------- |
| w           | global model                         | `GlobalState.model`                             |
| alpha, beta | rates of the inner and outer step    | `Params.alpha`, `Params.beta` (0: the run's lr) |
| v_k         | personal model                       | `personalize`                                   |

D, D', D'' are independent mini-batches: that of the training loop and two further draws. `two-step` is what the SPFL
paper runs under this name: two plain steps at the run's rate on the same mini-batch, and the global model is evaluated
as it is; alpha, beta and delta are not used then. (3) and (4) take no momentum and no weight decay. The paper averages
clients equally; here they are weighted by their samples, as in FedAvg.
"""

from dataclasses import dataclass
from typing import Literal

from fedsim.algorithm import Algorithm
from fedsim.config import NonNegativeFloat, NonNegativeInt, PositiveFloat
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    variant: Literal["fo", "hf", "two-step"] = "fo"  # (3), (4), or SPFL's baseline
    alpha: PositiveFloat = 0.01  # rate of the inner step, and of the personal steps
    beta: NonNegativeFloat = 0.0  # rate of the outer step; 0: the run's learning rate
    delta: PositiveFloat = 0.001  # step of the finite difference in hf
    steps: NonNegativeInt = 1  # of alpha that make the personal model, (6)


PER_FEDAVG = Algorithm(
    name="per-fedavg",
    about="a global model that one local step personalizes (Fallah et al. 2020)",
    params=Params,
    server=FedAvg,
    client="fedsim.clients.per_fedavg:PerFedAvgClient",
)
