"""FedPHP: federated personalization with inherited private models (Li, Zhan, Shao, Li, Song 2021, ECML PKDD).

Client (1):  w_k <- w_k - eta * grad [ (1 - lambda) F_k(w_k) + lambda R(w_k, p_k) ], started at w, p_k fixed
       (2):  p_k <- mu p_k + (1 - mu) w_k, after (1);   mu = min(0.9, 0.9 z_k / (c T))
Server (3):  w <- w + sum_{k in S} (n_k / n_S) * (w_k - w), as FedAvg

| symbol | meaning                                                     | name here                       |
| ------ | ----------------------------------------------------------- | ------------------------------- |
| w      | global model                                                | `GlobalState.model`             |
| p_k    | inherited private model, which client k uses                | `private` in the client's state |
| z_k    | earlier jobs of client k                                    | `jobs` in the client's state    |
| T, c   | rounds and participation of the run                         | `rounds`, `participation` of the downlink |
| R      | distance of w_k to p_k on a mini-batch, by mmd or kd        | `Params.by`                     |
| lambda | weight of R                                                 | `Params.lam`                    |

mmd: the multi-kernel maximum mean discrepancy of the features, Gaussian kernels with five bandwidths, each twice the
one before, around the mean squared distance within the mini-batch. kd: the cross-entropy of softmax(z_w) with
softmax(z_p / 4) as target: the temperature is the teacher's alone, as in the authors' code. mu counts the jobs of the
client, not the rounds: the first job leaves p_k = w_k, and a client that takes part as often as expected ends at 0.9.
p_k moves in its client's jobs only and predicts in evaluation mode. Buffers are averaged as parameters are.
Deviations: the first job has no R, because there is no p_k (the authors' code distills from the initial model), and a
client without p_k uses w. Gradients are not clipped.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import FractionBelowOne
from fedsim.payload import Downlink
from fedsim.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Params:
    lam: FractionBelowOne = 0.05  # lambda, weight of the distance to the inherited model in local training
    by: Literal["mmd", "kd"] = "mmd"  # that distance: of features (mmd) or of predictions (kd)


class FedPHP(FedAvg):
    """(3); sends what (2) needs to know about the run."""

    params: Any

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        numbers = {"rounds": self.config.rounds, "participation": self.config.participation} if train else {}
        return replace(super().instruct(state, client, train), numbers=numbers)


FEDPHP = Algorithm(
    name="fedphp",
    about="a private moving average of each client's models, which also teaches it (Li et al. 2021)",
    params=Params,
    server=FedPHP,
    client="fedsim.clients.fedphp:FedPHPClient",
)
