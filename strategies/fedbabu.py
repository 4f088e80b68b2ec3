"""FedBABU: only the base is trained, below a random head common to all (Oh, Kim, Yun 2022, arXiv 2106.06042).

Server (1):    phi <- phi + sum_{k in S} (n_k / n_S) * delta_k,   the base alone
Client (2):    phi_k = SGD on F_k(phi, psi_0) over phi alone; sends delta_k = phi_k - phi, keeps nothing
Personal (3):  v_k = LocalSGD((phi, psi_0); D_k), 5 epochs on the whole model: `finetune` of the run

| symbol | meaning                                 | name here                                     |
| ------ | --------------------------------------- | --------------------------------------------- |
| phi    | base: everything but the head           | `GlobalState.model`                           |
| psi_0  | head: that of the common initial model  | `fleet.initial`, on clients `task.initial()`  |

(phi, psi_0) is the global model. `finetune` sets another length of (3) (0: the global model is used as it is),
`finetune.part=head` or `base` tunes a part, `finetune.lr` sets its learning rate, otherwise that of local training by
the run's schedule. The authors tune with 0.001, the rate at which their schedule ends.
Deviations: clients count by their samples, in the authors' code equally; tuning starts from the current model, there
from the round that was best on the tests. A model that is all head has nothing to train and is refused.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import FineTuning, NoParams
from fedsim.errors import ConfigError
from fedsim.payload import Downlink
from fedsim.server.fleet import Fleet
from fedsim.strategies.shared_part import SharedPart
from fedsim.weights import Weights


class FedBabu(SharedPart):
    """(1); the head is known to everyone and never sent."""

    def private(self) -> Sequence[str]:
        return ["head"]

    def init(self, model: Weights, fleet: Fleet) -> GlobalState:
        if not self.part.size:
            raise ConfigError(f"fedbabu trains the base alone, and model={self.config.model} is a head without a base")
        return super().init(model, fleet)

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        return replace(super().instruct(state, client, train), shared=True)

    def global_model(self, state: GlobalState) -> Weights:
        return self.fleet.initial.with_part(self.part, state.model)


FEDBABU = Algorithm(
    name="fedbabu",
    about="FedAvg of the base below a fixed random head; clients fine-tune a copy (Oh et al. 2022)",
    params=NoParams,
    server=FedBabu,
    client="fedsim.clients.fedbabu:FixedHead",
    finetune=lambda params: FineTuning(5),
)
