"""FedFomo: first-order model optimization (Zhang, Sapra, Fidler, Yeung, Alvarez 2021, arXiv 2012.08565).

Client (1):  r_n = (L_i(o_i) - L_i(t_n)) / ||t_n - o_i||, on validation samples, for the received t_n and its own t_i
       (2):  o_i <- o_i + sum_n a_n (t_n - o_i),   a_n = max(r_n, 0) / sum_m max(r_m, 0); o_i stays if no r_n > 0
       (3):  t_i = LocalSGD(o_i; D_i), which it sends with r
Server (4):  P_i <- P_i + r / |sum_n r_n|
       (5):  client i receives the M - 1 models t_n of others with the largest P_in; each is a random one instead with
             probability max(0, 0.3 - 0.05 t)

| symbol | meaning                                                   | name here                              |
| ------ | --------------------------------------------------------- | -------------------------------------- |
| t_n    | model of client n after its last training                 | `State.models[row]`, `peer-n` of the downlink |
| o_i    | where the last training of client i started               | `start` in the client's state          |
| r      | improvement per distance, by client; 0: not received      | `gains` of the uplink                  |
| P      | affinity of clients, 0 at first                           | `State.affinity`                       |
| M      | models that a client combines, its own among them         | `Params.models`                        |
| L_i    | loss on samples held out of the training data of client i | `Task.held_out`, `Params.validation`   |

A client's own t_i stays in its state, and only models that were sent are offered, so the first round is local training.
o_i is the initial model at first. Since the a_n sum to 1, (2) is sum_n a_n t_n; buffers are combined alike. Clients
with equal affinity are taken in random order. The validation samples of a client are the same in every job; they are
never trained on and never test samples. Personal is the last combination, o_i after (2), before training. It is in the
client's state: peers' models are downloaded for training alone, so an evaluation moves nothing, and it shows the
combination of the job before, not one of models that arrived since. `local` is t_i.
A client that never took part combines M - 1 random ones of these models at the end.

Distances are L2, as in the paper; the authors' code has L1. P counts every r, also negative ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm
from fedsim.client_table import ClientTable
from fedsim.config import Fraction, NonNegativeFloat, PositiveInt
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.rng import stream
from fedsim.server.fleet import Fleet
from fedsim.similarity import Matrix
from fedsim.strategies.sent_models import SentModels
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    models: PositiveInt = 5  # M, models that a client combines, its own among them
    validation: Annotated[float, Interval(gt=0, lt=1)] = 0.2  # share of the training samples
    explore: Fraction = 0.3  # chance of a random model in the first round
    explore_decay: NonNegativeFloat = 0.05  # how much less that is after every round


@dataclass
class State:
    models: ClientTable  # with buffers
    received: NDArray[np.bool_]  # whether a client has sent a model
    affinity: Matrix
    step: int = 0


class FedFomo(SentModels[Params, State]):
    """Keeps the models and the affinities, and offers each client the models that helped it most."""

    with_buffers, no_newcomers = True, ""

    def init(self, model: Weights, fleet: Fleet) -> State:
        count = len(fleet)
        return State(self.table(model), np.zeros(count, bool), np.zeros((count, count)))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        if not train:
            return Downlink(shared=False)
        row = self.fleet.row(client)
        peers = {f"peer-{n}": self.sent(state.models, n) for n in self._offered(state, client, row)}
        return Downlink(peers, numbers={"row": row}, shared=False)

    def newcomer(self, state: State, client: int) -> Downlink:
        chosen = stream(self.config.seed, client, "newcomer").permutation(np.flatnonzero(state.received))
        peers = {f"peer-{n}": self.sent(state.models, n) for n in chosen[: self.params.models - 1].tolist()}
        return Downlink(peers, numbers={"row": len(self.fleet)}, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        self.store(state.models, arrivals)
        for arrival in arrivals:
            row, gains = self.fleet.row(arrival.client), arrival.uplink.arrays["gains"].astype(np.float64)
            state.received[row] = True
            if total := abs(gains.sum()):
                state.affinity[row] += gains / total  # (4)
        state.step += 1
        return state

    def _offered(self, state: State, client: int, row: int) -> list[int]:
        """(5), as rows of the table."""
        params, rng = self.params, stream(self.config.seed, client, state.step, "peers")
        others = rng.permutation([n for n in np.flatnonzero(state.received) if n != row]).astype(int)
        ranked = sorted(others.tolist(), key=lambda n: -state.affinity[row, n])
        chance, offered = params.explore - params.explore_decay * state.step, list[int]()
        while ranked and len(offered) < params.models - 1:
            offered.append(ranked.pop(rng.integers(len(ranked)) if rng.random() < chance else 0))
        return offered

    def matrices(self, state: State) -> Mapping[str, NDArray[Any]]:
        return {"affinity": state.affinity}

    def expects(self) -> Mapping[str, Spec]:
        return {**super().expects(), "gains": Spec((len(self.fleet),))}


FEDFOMO = Algorithm(
    name="fedfomo",
    about="each client combines the models that improve its validation loss (Zhang et al. 2021)",
    params=Params,
    server=FedFomo,
    client="fedsim.clients.fedfomo:FedFomoClient",
)
