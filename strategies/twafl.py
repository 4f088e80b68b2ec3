"""TWAFL: temporally weighted, layer-wise asynchronous federated learning (Chen, Sun, Jin 2019, arXiv 1903.07424).

Server (1):  w^s <- sum_k omega_k^s * w_k^s   for the shallow and the deep part s of the model,
             omega_k^s proportional to n_k * base^-(t - ts_k^s),   over every client heard of so far
Rounds (2):  the shallow part is exchanged in every round, the deep part only in the last `deep_rounds` of each `loop` rounds
Client (3):  trains the whole model from the received part(s), with its own deep part in between

| symbol | meaning                                              | name here                       |
| ------ | ---------------------------------------------------- | ------------------------------- |
| w_k^s  | last known part s of client k's model                | `State.models`                  |
| ts_k^s | the step that part started from                      | `State.shallow`, `State.deep`   |
| base   | e/2 in the paper                                     | `Params.base`                   |

Deviation: the printed weights n_k/n * (e/2)^-(t - ts_k) do not sum to 1 and would shrink the model; they are normalised.
The deep part is the stages named in `deep_stages`; buffers stay with the clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import e
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.config import at_least
from fedsim.errors import ConfigError, FedsimError
from fedsim.fleet import Fleet
from fedsim.payload import Arrival, Downlink
from fedsim.vector import Vec, weighted_mean

NEVER = -1


@dataclass(frozen=True)
class Params:
    base: float = e / 2
    loop: int = 15
    deep_rounds: int = 3
    deep_stages: tuple[str, ...] = ("head",)

    def __post_init__(self) -> None:
        at_least("twafl.base", self.base, 1)
        at_least("twafl.loop", self.loop, 1)
        if not 1 <= self.deep_rounds <= self.loop:
            raise ConfigError(f"twafl.deep-rounds must be from 1 to twafl.loop={self.loop}, not {self.deep_rounds}")


@dataclass
class State:
    theta: Vec
    models: Any  # clients x parameters: what was last heard of everyone
    shallow: NDArray[np.int64]  # per client, the step its shallow part started from
    deep: NDArray[np.int64]
    step: int = 0


class Twafl(ServerStrategy[Params, State]):
    """Averages what it last heard of everybody, the newer the heavier, part by part."""

    def init(self, theta: Vec, fleet: Fleet) -> State:
        stages = fleet.layout.stages
        if strange := [s for s in self.params.deep_stages if s not in stages]:
            raise ConfigError(
                f"the model has no stage {strange[0]!r} for twafl.deep-stages. Choices: {', '.join(stages)}"
            )
        never = np.full(len(fleet), NEVER, np.int64)
        return State(theta.copy(), np.zeros((len(fleet), theta.size), np.float32), never, never.copy())

    def instruct(self, state: State, client: int) -> Downlink:
        parts = ",".join(self.params.deep_stages)
        if self._deep(state.step):
            return Downlink({"model": state.theta}, {"deep-stages": parts, "deep": True})
        return Downlink({"shallow": state.theta[self._shallow]}, {"deep-stages": parts, "deep": False}, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        place = {client.id: row for row, client in enumerate(self.fleet.clients)}
        for arrival in arrivals:
            row, vectors = place[arrival.client], arrival.uplink.vectors
            state.models[row, self._shallow] = vectors["shallow"]
            state.shallow[row] = arrival.step
            if "deep" in vectors:
                if vectors["deep"].size != (~self._shallow).sum():
                    raise FedsimError(f"client {arrival.client} sent a deep part of {vectors['deep'].size} values")
                state.models[row, ~self._shallow] = vectors["deep"]
                state.deep[row] = arrival.step
        for part, heard in ((self._shallow, state.shallow), (~self._shallow, state.deep)):
            self._average(state, part, heard)  # (1)
        state.step += 1
        return state

    def _average(self, state: State, part: NDArray[np.bool_], heard: NDArray[np.int64]) -> None:
        rows = np.flatnonzero(heard != NEVER).tolist()
        if rows:
            age = state.step - heard[rows]
            weights = np.array([self.fleet.clients[row].train for row in rows]) * self.params.base ** -age.astype(float)
            state.theta[part] = weighted_mean([state.models[row, part] for row in rows], weights.tolist())

    def expects(self) -> Mapping[str, int]:
        return {"shallow": int(self._shallow.sum())}

    def global_model(self, state: State) -> Vec:
        return state.theta

    def _deep(self, step: int) -> bool:
        """(2), and at the end, when the whole model is evaluated."""
        return step % self.params.loop >= self.params.loop - self.params.deep_rounds or step >= self.config.rounds

    @cached_property
    def _shallow(self) -> NDArray[np.bool_]:
        """Which parameters are shallow."""
        return ~self.fleet.layout.mask(self.params.deep_stages)


TWAFL = Algorithm(
    name="twafl",
    about="temporal weights, deep layers exchanged seldom (Chen, Sun, Jin 2019)",
    params=Params,
    server=Twafl,
    client="clients.layerwise:Layerwise",
)
