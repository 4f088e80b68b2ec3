"""APFL: adaptive personalized federated learning (Deng, Kamani, Mahdavi 2020, arXiv 2003.13461).

Client (1):  w_i <- w_i - eta * grad f_i(w_i), started at the global model w
       (2):  v_i <- v_i - eta * alpha_i * grad f_i(m_i),   m_i = alpha_i v_i + (1 - alpha_i) w_i
       (3):  alpha_i <- clip(alpha_i - eta * <v_i - w_i, grad f_i(m_i)>, 0, 1)
Server (4):  w <- w + sum_k (n_k / n_S) * (w_k - w), as FedAvg

| symbol  | meaning                                      | name here                             |
| ------- | -------------------------------------------- | ------------------------------------- |
| w       | global model                                 | `GlobalState.model`                   |
| v_i     | local part of the mixture                    | `own` in the client's state           |
| alpha_i | weight of v_i in the mixture                 | `alpha` in the client's state         |
| m_i     | mixture: the personal model                  | `personalize`, with the received w    |

(2) follows (1) on the same mini-batch, as in the authors' code. (3) is the exact gradient, on the first mini-batch of a
job (the paper: once per round) or on every one; the authors' code approximates it and adds a weight decay on alpha. v_i
has an optimizer of its own with the settings of w's. m_i has buffers of its own (BatchNorm), which stay in the client's
state. The server weighs clients by their samples n_k, where the paper weighs them equally.
"""

from dataclasses import dataclass
from typing import Literal

from fedsim.algorithm import Algorithm
from fedsim.config import Fraction
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    alpha: Fraction = 0.5  # share of the client's own model in the mixture, before the first job
    adapt: Literal["never", "round", "batch"] = "round"  # how often alpha changes


APFL = Algorithm(
    name="apfl",
    about="each client uses a mixture of the global model and a local one (Deng et al. 2020)",
    params=Params,
    server=FedAvg,
    client="fedsim.clients.apfl:ApflClient",
)
