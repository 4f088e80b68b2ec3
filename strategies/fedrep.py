"""FedRep: a shared representation below heads of the clients (Collins et al. 2021, arXiv 2102.07078).

Server (1):    phi <- phi + sum_{k in S} (n_k / n_S) * delta_k,   the base alone
Client (2):    psi_k <- SGD on F_k(phi, psi) over psi alone, tau_h epochs
       (3):    phi_k <- SGD on F_k(phi, psi_k) over phi alone, tau_b epochs; sends delta_k = phi_k - phi, keeps psi_k
Personal (4):  (phi, psi_k); after the last round, if asked for, psi_k is tuned again for tau_f epochs

| symbol       | meaning                                    | name here                                    |
| ------------ | ------------------------------------------ | -------------------------------------------- |
| phi          | base: everything but `personal`            | `GlobalState.model`                          |
| psi_k        | head of client k, the initial one at first | `private` in the client's state              |
| tau_h, tau_b | epochs of the two phases                   | `Params.head_epochs`, `Params.base_epochs`   |
| tau_f        | epochs of the last tuning                  | `Params.final_epochs`                        |

Each phase has an optimizer of its own over its part, so the other part does not move, not even by weight decay,
momentum or BatchNorm statistics. There is no global model. The lengths count in epochs, also in a run that counts in
steps.
Deviations: clients count by their samples. The authors' code tunes all heads for 10 epochs after the last round
(`final-epochs=10`; off by default, so that methods compare), takes 5 epochs of the base in most of its settings and
reads at most 500 samples per client. A head that was never trained is the initial one; there it is the mean of heads.
"""

from dataclasses import dataclass, replace

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import NonNegativeInt
from fedsim.payload import Downlink
from fedsim.strategies import fedper
from fedsim.strategies.fedper import FedPer


@dataclass(frozen=True)
class Params(fedper.Params):
    head_epochs: NonNegativeInt = 10  # tau_h, epochs in which only the head is trained
    base_epochs: NonNegativeInt = 1  # tau_b, epochs in which only the base is trained, after it
    final_epochs: NonNegativeInt = 0  # tau_f, epochs of the head after the last round


class FedRep(FedPer):
    """(1), and says when the last round is over."""

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        down = super().instruct(state, client, train)
        return replace(down, numbers={**down.numbers, "final": state.step >= self.config.rounds})


FEDREP = Algorithm(
    name="fedrep",
    about="FedPer that trains the head first, then the base below it (Collins et al. 2021)",
    params=Params,
    server=FedRep,
    client="fedsim.clients.fedrep:FedRepClient",
)
