"""APPLE: adaptive personalized cross-silo learning (Luo, Wu 2022, arXiv 2110.08394).

Client (1):  w_i = sum_j p_ij c_j, its personal model, with the received cores c_j and its own c_i;  g = grad F_i(w_i)
       (2):  c_i <- c_i - eta p_ii g
       (3):  p_ij <- p_ij - eta_p ( <g, c_j> + lambda(r) mu (p_ij - n_j / n) ), for all j, on every mini-batch as (2)
Server (4):  lambda(r) = (cos(pi r / L) + 1) / 2 in round r < L, then 0;   c_i <- the core that client i sent last

| symbol   | meaning                                                 | name here                              |
| -------- | ------------------------------------------------------- | -------------------------------------- |
| c_j      | core model of client j                                  | `State.cores[row]`, `peer-j` of the downlink |
| p_ij     | weight of c_j at client i, n_j / n at first, private    | `p` in the client's state              |
| n_j / n  | share of the training samples                           | `shares` of the downlink               |
| eta_p    | learning rate of p                                      | `Params.p_lr`                          |
| mu       | weight of the penalty (mu / 2) ||p_i - p_0||^2          | `Params.mu`                            |
| L        | rounds with a penalty, as a share of the run's          | `Params.penalized`                     |
| M        | cores that a client downloads per job; 0: all           | `Params.downloads`                     |

(2) and (3) use the same gradient and the values before the step; both have the run's momentum. A p may leave [0, 1]. A
client keeps its own core and sends it; p never leaves it. With a limit M the client asks for cores at the end of a job:
those it never received first, then by chances that grow with max(1.5, r M / N)^|p_ij|, as the authors' code does; it
keeps what it received and uses the initial model for the rest. That needs up to N models on each client.
Personal is w_i after the last job, with the cores received then. It is in the client's state: cores are downloaded for
training alone, so an evaluation moves nothing. Buffers of w_i stay with the client.
Deviations from the authors' code: the paper's cosine and mu / 2 instead of an exponential and mu, and a common initial
core, so that w_i is the initial model at first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import cos, pi

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm
from fedsim.client_table import ClientTable
from fedsim.config import Fraction, NonNegativeFloat, NonNegativeInt
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.strategies.sent_models import SentModels
from fedsim.weights import Vec, Weights


@dataclass(frozen=True)
class Params:
    p_lr: NonNegativeFloat = 0.001  # eta_p, learning rate of the mixing weights
    mu: NonNegativeFloat = 0.1  # weight of the penalty on mixing weights that leave n_j / n
    penalized: Fraction = 0.1  # L, rounds with a penalty, as a share of the run's
    downloads: NonNegativeInt = 0  # M, models of other clients per job; 0: all of them


@dataclass
class State:
    cores: ClientTable
    wanted: NDArray[np.int64]  # clients x M: the rows that each client asked for; no columns without a limit
    step: int = 0


class Apple(SentModels[Params, State]):
    """Hands every client the cores of the others."""

    no_newcomers = "a client learns the weights of the others' cores over many rounds"

    def init(self, model: Weights, fleet: Fleet) -> State:
        count = len(fleet)
        following = (np.arange(count)[:, None] + 1 + np.arange(self._limit)) % count
        return State(self.table(model), following)

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        if not train:
            return Downlink(shared=False)
        row, everyone = self.fleet.row(client), range(len(self.fleet))
        chosen = state.wanted[row].tolist() if self._limit else everyone
        cores = {f"peer-{j}": self.sent(state.cores, j) for j in chosen if j in everyone and j != row}
        numbers = {"row": row, "penalty": self._penalty(state.step), "limit": self._limit, "round": state.step}
        return Downlink(cores, {"shares": self._shares}, numbers, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        self.store(state.cores, arrivals)
        if self._limit:
            for arrival in arrivals:
                state.wanted[self.fleet.row(arrival.client)] = arrival.uplink.arrays["wanted"]
        state.step += 1
        return state

    def expects(self) -> Mapping[str, Spec]:
        wanted = {"wanted": Spec((self._limit,), "int64")} if self._limit else {}
        return {**super().expects(), **wanted}

    @property
    def _limit(self) -> int:
        """M, or 0 if it limits nothing."""
        return self.params.downloads if self.params.downloads < len(self.fleet) - 1 else 0

    def _penalty(self, step: int) -> float:
        """lambda(r) mu."""
        last = self.params.penalized * self.config.rounds
        return self.params.mu * (cos(pi * step / last) + 1) / 2 if step < last else 0.0

    @cached_property
    def _shares(self) -> Vec:
        sizes = np.array([client.train for client in self.fleet.clients])
        return np.asarray(sizes / sizes.sum(), np.float32)


APPLE = Algorithm(
    name="apple",
    about="each client learns weights for the core models of all (Luo, Wu 2022)",
    params=Params,
    server=Apple,
    client="fedsim.clients.apple:AppleClient",
)
