"""FedMTL: multi-task learning with mean regularization (Smith, Chiang, Sanjabi, Talwalkar 2017, arXiv 1705.10467, for its
objective; Evgeniou, Pontil 2004, for this regularizer).

Objective (1):  min over W = (w_1 ... w_m) of sum_i F_i(w_i) + lambda sum_i ||w_i - wbar||^2,   wbar = (1/m) sum_j w_j
Server (2):     o_i = (sum_j w_j - w_i) / (m - 1), the mean of the others' last models
Client (3):     w_i <- w_i - eta * (grad F_i(w_i) + 2 lambda (1 - 1/m) (w_i - o_i)), started at its own w_i

| symbol | meaning                                        | name here                        |
| ------ | ---------------------------------------------- | -------------------------------- |
| w_i    | model of client i                              | `State.models[row]`, `model` in the client's state |
| o_i    | mean of the other clients' models              | `others` of the downlink         |
| lambda | how strongly the models are held together      | `Params.lam`                     |
| m      | clients                                        | `len(fleet)`                     |

The penalty of (1) is tr(W M W^T) with M = I - 11^T/m; since M is idempotent, the square of it is the same penalty. Its
gradient 2 lambda (w_i - wbar) is the one of (3), with w_i as it is in each step and o_i as received. A second term
lambda_2 ||W||^2 is the run's `weight-decay` = 2 lambda_2. Clients that were never heard from count with the initial
model. Buffers stay with the clients. An evaluation moves nothing: the personal model is the client's own.
Deviation: local SGD on (1) instead of the dual method of the paper (MOCHA), and a fixed relation of the tasks.
Personalized methods are compared with this form under the name FedMTL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm
from fedsim.client_table import ClientTable
from fedsim.config import NonNegativeFloat
from fedsim.payload import Arrival, Downlink
from fedsim.server.fleet import Fleet
from fedsim.strategies.sent_models import SentModels
from fedsim.weights import Weights, blocks


@dataclass(frozen=True)
class Params:
    lam: NonNegativeFloat = 0.1  # lambda: how strongly the models are held to their mean


@dataclass
class State:
    models: ClientTable
    total: NDArray[np.float64]  # the sum of all models


class FedMTL(SentModels[Params, State]):
    """Sends each client the mean of the others."""

    no_newcomers = ""

    def init(self, model: Weights, fleet: Fleet) -> State:
        models = self.table(model)
        return State(models, column_sums(models))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        count, row = len(self.fleet), self.fleet.row(client)
        if not train or count == 1:
            return Downlink(shared=False)
        others = ((state.total - state.models[row]) / (count - 1)).astype(np.float32)  # (2)
        numbers = {"proximal": 2 * self.params.lam * (1 - 1 / count)}
        return Downlink({"others": Weights(others)}, numbers=numbers, shared=False)

    def newcomer(self, state: State, client: int) -> Downlink:
        count = len(self.fleet)
        numbers = {"proximal": 2 * self.params.lam * (1 - 1 / (count + 1))}
        return Downlink({"others": Weights((state.total / count).astype(np.float32))}, numbers=numbers, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        self.store(state.models, arrivals)
        state.total = column_sums(state.models)
        return state


def column_sums(table: ClientTable) -> NDArray[Any]:
    """The sum of the rows in float64, block by block."""
    total = np.empty(table.shape[1])
    for block in blocks(total.size):
        table[:, block].sum(axis=0, dtype=np.float64, out=total[block])
    return total


FEDMTL = Algorithm(
    name="fedmtl",
    about="own models, each held near the mean of the others (multi-task learning, mean-regularized)",
    params=Params,
    server=FedMTL,
    client="fedsim.clients.fedmtl:FedMTLClient",
)
