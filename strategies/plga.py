"""PLGA: LGA with a personalized model for every client (same paper, equations (12) to (14)).

Objective (1) and global model: those of `strategies.lga`, equations (8) to (11); clients always train from the global one.
Straggler (12)(14):  w_kp = W[a] + (1 - St_s) (w_k^r - W[a]) + St_s (W[r] - W[a])
Fresh client:        the same with the next global model, once it is there:
                     w_kp = W[r] + (1 - St_s) D + St_s (W[r+1] - W[r]),   S_s = cos(W[r+1] - W[r], D)

| symbol | meaning                          | name here                  |
| ------ | -------------------------------- | -------------------------- |
| w_kp   | personalized model of client k   | `State.personal[row]`      |

w_kp is made on the server when a result arrives, sent along with the global model, and only evaluated; a client that is
not heard of keeps its last one. The others' symbols and all parameters are those of LGA. A run without stragglers trains as
FedAvg does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.fleet import Fleet
from fedsim.payload import Arrival, Downlink
from fedsim.vector import Vec
from strategies.lga import Lga, Params, sigmoid


@dataclass(frozen=True)
class PersonalParams(Params):
    section: ClassVar[str] = "plga"


@dataclass
class State(GlobalState):
    personal: Vec = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # clients x parameters


class Plga(Lga):
    """LGA; what a client would use lies between its own model and the global one."""

    def init(self, theta: Vec, fleet: Fleet) -> State:
        return State(theta.copy(), fleet.buffers.copy(), personal=np.tile(theta, (len(fleet), 1)))

    def instruct(self, state: GlobalState, client: int) -> Downlink:
        assert isinstance(state, State)
        down = super().instruct(state, client)
        return Downlink({**down.vectors, "personal": state.personal[self._rows[client]]})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        leaps = [self.leap(state, a) for a in arrivals]
        theta = self.average(state, arrivals, leaps)
        for arrival, leap in zip(arrivals, leaps, strict=True):
            state.personal[self._rows[arrival.client]] = self._personal(state, arrival, leap, theta)
        after = self.advance(state, theta)
        return State(after.theta, after.buffers, after.step, after.history, state.personal)

    def _personal(self, state: GlobalState, arrival: Arrival, leap: Vec, theta: Vec) -> Vec:
        update = arrival.uplink.vectors["delta"]
        if arrival.staleness == 0:
            base, after, target, own = state.theta, theta, theta, state.theta + leap
        else:
            base, after = self.base(state, arrival), self._global(state, arrival.step + 1)
            target, own = state.theta, state.theta + leap
        share = sigmoid(self.similarity(after - base, update))  # (13)
        return np.asarray(base + (1 - share) * (own - base) + share * (target - base))  # (14)

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {client.id: row for row, client in enumerate(self.fleet.clients)}


PLGA = Algorithm(
    name="plga",
    about="LGA, and each client's own model between its last one and the global one (PLGA)",
    params=PersonalParams,
    server=Plga,
    pace="window",
)
