"""Per-FedAvg: a global model from which one step makes a good personal one (Fallah et al. 2020, arXiv 2002.07948).

Objective (1):   min over w of (1/N) sum_k F_k(w - alpha * grad F_k(w))
Inner step (2):  w~ = w - alpha * grad F_k(w; D),   q = grad F_k(w~; D')
First order (3): w <- w - beta * q                                                                        (fo)
Hessian (4):     w <- w - beta * [q - alpha/(2 delta) * (grad F_k(w + delta q; D'') - grad F_k(w - delta q; D''))]  (hf)
Server (5):      mean of the local models, as in `strategies.fedavg`
Personal (6):    v_k = w after `steps` steps of alpha on the client's training data

D, D', D'' are independent mini-batches: the loop's own and two further draws. `two-step` is what the SPFL paper runs under
this name: two plain steps at the run's rate on the same mini-batch, and the global model is used as it is; alpha, beta and
delta are not used then. (3) and (4) take no momentum and no weight decay. The paper averages clients equally; here
they count by their samples, as in FedAvg.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import at_least, one_of, positive
from strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    variant: str = "fo"  # fo | hf | two-step
    alpha: float = 0.01
    beta: float = 0.001
    delta: float = 0.001
    steps: int = 1  # of personalization

    def __post_init__(self) -> None:
        one_of("per-fedavg.variant", self.variant, ("fo", "hf", "two-step"))
        for name in ("alpha", "beta", "delta"):
            positive(f"per-fedavg.{name}", getattr(self, name))
        at_least("per-fedavg.steps", self.steps, 0)


PER_FEDAVG = Algorithm(
    name="per-fedavg",
    about="a global model made to be personalized by one step (Fallah et al. 2020)",
    params=Params,
    server=FedAvg,
    client="clients.meta:Meta",
)
