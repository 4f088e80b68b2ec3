"""APFL: adaptive personalized federated learning (Deng, Kamani, Mahdavi 2020, arXiv 2003.13461).

Client (1):  w_i <- w_i - eta * grad f_i(w_i), started at the global model w
       (2):  v_i <- v_i - eta * alpha_i * grad f_i(m_i),   m_i = alpha_i v_i + (1 - alpha_i) w_i
       (3):  alpha_i <- clip(alpha_i - eta * <v_i - w_i, grad f_i(m_i)>, 0, 1)
Server (4):  w <- w + sum_k (n_k / n_S) * (w_k - w), as FedAvg

| symbol  | meaning                                   | name here                             |
| ------- | ----------------------------------------- | ------------------------------------- |
| w       | global model                              | `GlobalState.theta`                   |
| v_i     | what a client adds of its own             | `own` in the client's memory          |
| alpha_i | how much it trusts that                   | `alpha` in the client's memory        |
| m_i     | the mixture: the personal model           | `personalise`, with the received w    |

(2) is taken after (1) on the same mini-batch, as the authors' code does. (3) is the exact gradient, on the first mini-batch
of a job (the paper: once per round) or on every one; the authors' code approximates it and adds a weight decay on alpha.
v_i has an optimizer with the settings of w's, and m_i has buffers of its own (BatchNorm), which stay with the client. The
data's own weights n_k replace the paper's equal ones.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import one_of
from fedsim.errors import ConfigError
from strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    alpha: float = 0.5  # at the start
    adapt: str = "round"  # when alpha changes: never | round | batch

    def __post_init__(self) -> None:
        one_of("apfl.adapt", self.adapt, ("never", "round", "batch"))
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"apfl.alpha must be from 0 to 1, not {self.alpha}")


class Apfl(FedAvg):
    """(4); what is personal happens at the clients."""


APFL = Algorithm(
    name="apfl",
    about="each client mixes the global model with one of its own (Deng et al. 2020)",
    params=Params,
    server=Apfl,
    client="clients.mixture:Mixture",
)
