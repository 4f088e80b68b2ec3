"""TWAFL: temporally weighted, layer-wise asynchronous federated learning (Chen, Sun, Jin 2019, arXiv 1903.07424).

Server (1):  w^s <- sum_k omega_k^s * w_k^s   for the shallow and the deep part s of the model,
             omega_k^s proportional to n_k * base^-(t - ts_k^s),   over all clients that have sent this part
Rounds (2):  the shallow part is exchanged in every round, the deep part only in the last `deep_rounds` of `loop` rounds
Client (3):  trains the whole model from the received part(s), with its own deep part where none was received

| symbol | meaning                                              | name here                       |
| ------ | ---------------------------------------------------- | ------------------------------- |
| w      | global model                                         | `State.theta`                   |
| w_k^s  | last known part s of client k's model                | `State.models`                  |
| ts_k^s | the step that part started from                      | `State.shallow`, `State.deep`   |
| base   | e/2 in the paper                                     | `Params.base`                   |

Deviation: the printed weights n_k/n * (e/2)^-(t - ts_k) do not sum to 1 and would shrink the model; they are
normalized. The deep part is the parts of the model named in `deep_stages`; buffers stay with the clients. After the
last round the whole global model is sent, so that it can be evaluated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import e
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.client_table import ClientTable, client_table
from fedsim.config import PositiveInt, Scalar
from fedsim.errors import ConfigError
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.weights import Vec, Weights, blocks, weighted_mean

NEVER = -1


@dataclass(frozen=True)
class Params:
    base: Annotated[float, Ge(1)] = e / 2  # the weight of a part is divided by it for every step of age
    loop: PositiveInt = 15  # rounds of a cycle
    deep_rounds: PositiveInt = 3  # rounds at the end of a cycle in which the deep part is exchanged as well
    deep_stages: tuple[str, ...] = ("head",)  # stages of the model that are the deep part

    def __post_init__(self) -> None:
        if self.deep_rounds > self.loop:
            raise ConfigError(f"twafl.deep-rounds must be from 1 to twafl.loop={self.loop}, not {self.deep_rounds}")


@dataclass
class State:
    theta: Vec
    models: ClientTable  # the last known model of every client
    shallow: NDArray[np.int64]  # per client, the step its shallow part started from
    deep: NDArray[np.int64]
    step: int = 0


class Twafl(ServerStrategy[Params, State]):
    """Averages the last known parts of all clients, newer ones with larger weights."""

    no_finetune, no_newcomers = "its clients receive the whole global model in some rounds only", ""

    def init(self, model: Weights, fleet: Fleet) -> State:
        fleet.layout.part(*self.params.deep_stages)
        never = np.full(len(fleet), NEVER, np.int64)
        models = client_table(self.config, np.zeros_like(model.parameters), len(fleet))
        return State(model.parameters.copy(), models, never, never.copy())

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        deep = self._deep(state.step)
        numbers: dict[str, Scalar] = {"deep-stages": ",".join(self.params.deep_stages), "deep": deep}
        if deep or state.step >= self.config.rounds:  # after the last round it is evaluated
            return Downlink({"model": self.global_model(state)}, numbers=numbers)
        return Downlink({"shallow": Weights(state.theta[self._shallow])}, numbers=numbers, shared=False)

    def newcomer(self, state: State, client: int) -> Downlink:
        numbers: dict[str, Scalar] = {"deep-stages": ",".join(self.params.deep_stages), "deep": True}
        return Downlink({"model": self.global_model(state)}, numbers=numbers)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        for arrival in arrivals:
            row, parts = self.fleet.row(arrival.client), arrival.uplink.weights
            state.models[row, self._shallow] = parts["shallow"].parameters
            state.shallow[row] = arrival.step
            if "deep" in parts:
                state.models[row, ~self._shallow] = parts["deep"].parameters
                state.deep[row] = arrival.step
        for part, steps in ((self._shallow, state.shallow), (~self._shallow, state.deep)):
            self._average(state, part, steps)  # (1)
        state.step += 1
        return state

    def _average(self, state: State, part: NDArray[np.bool_], steps: NDArray[np.int64]) -> None:
        rows = np.flatnonzero(steps != NEVER).tolist()
        if rows:
            age = state.step - steps[rows]
            weights = np.array([self.fleet.clients[row].train for row in rows]) * self.params.base ** -age.astype(float)
            columns = np.flatnonzero(part)
            for block in blocks(columns.size):  # a copy of all columns of all rows may not fit into memory
                some = columns[block]
                state.theta[some] = weighted_mean([state.models[row, some] for row in rows], weights.tolist())

    def expects(self) -> Mapping[str, Spec]:
        shallow = int(self._shallow.sum())
        deep = Spec((self._shallow.size - shallow,), role="model", buffers=0, optional=True)
        return {"shallow": Spec((shallow,), role="model", buffers=0), "deep": deep}

    def global_model(self, state: State) -> Weights:
        return Weights(state.theta, self.fleet.initial.buffers)

    def _deep(self, step: int) -> bool:
        """(2): whether the deep part is exchanged in the round that starts from this step."""
        return step % self.params.loop >= self.params.loop - self.params.deep_rounds

    @cached_property
    def _shallow(self) -> NDArray[np.bool_]:
        """Which parameters are shallow."""
        return ~self.fleet.layout.part(*self.params.deep_stages).parameters


TWAFL = Algorithm(
    name="twafl",
    about="recent models weigh more, deep layers are exchanged less often (Chen, Sun, Jin 2019)",
    params=Params,
    server=Twafl,
    client="fedsim.clients.twafl:LayerWise",
)
