"""PLGA: LGA with a personalized model for every client (same paper, equations (12) to (14)).

Global model:        that of `fedsim.strategies.lga`, equations (8) to (11); clients always train from it
Straggler (12)(14):  w_kp = W[a] + (1 - St_s) (w_k^r - W[a]) + St_s (W[r] - W[a])
Fresh client:        the same with the next global model, as soon as it is computed:
                     w_kp = W[r] + (1 - St_s) D + St_s (W[r+1] - W[r]),   S_s = cos(W[r+1] - W[r], D)

| symbol | meaning                          | name here                  |
| ------ | -------------------------------- | -------------------------- |
| w_kp   | personalized model of client k   | `State.personal[row]`      |

The server computes w_kp when a result arrives and sends it along with the global model; it is only evaluated. A client
without a new result keeps its last one. The other symbols and all parameters are those of LGA. A run without stragglers
trains as FedAvg does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.client_table import ClientTable, client_table
from fedsim.payload import Arrival, Downlink
from fedsim.server.fleet import Fleet
from fedsim.strategies.lga import Lga, Params, sigmoid
from fedsim.weights import Vec, Weights


@dataclass
class State(GlobalState):
    personal: ClientTable = field(default_factory=lambda: np.zeros((0, 0), np.float32))


class Plga(Lga):
    """LGA; the personal model of a client lies between its own model and the global one."""

    def init(self, model: Weights, fleet: Fleet) -> State:
        return State(model.copy(), personal=client_table(self.config, model.parameters, len(fleet)))

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        assert isinstance(state, State)
        personal = Weights(state.personal[self.fleet.row(client)], state.model.buffers)
        return Downlink({"model": state.model, "personal": personal})

    def newcomer(self, state: GlobalState, client: int) -> Downlink:
        return Downlink({"model": state.model})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        leaps = [self.leap(state, a) for a in arrivals]
        model = self.average(state, arrivals, leaps)
        for arrival, leap in zip(arrivals, leaps, strict=True):
            row = self.fleet.row(arrival.client)
            state.personal[row] = self._personal(state, arrival, leap, model.parameters)
        return State(**vars(self.advance(state, model)), personal=state.personal)

    def _personal(self, state: GlobalState, arrival: Arrival, leap: Vec, theta: Vec) -> Vec:
        w, base = state.model.parameters, self.base(state, arrival)
        update, own = arrival.uplink.weights["delta"].parameters, w + leap
        if arrival.staleness:
            after, target = self._global(state, arrival.step + 1), w
        else:
            after = target = theta
        share = sigmoid(self.similarity(after - base, update))  # (13)
        return np.asarray(base + (1 - share) * (own - base) + share * (target - base))  # (14)


PLGA = Algorithm(
    name="plga",
    about="LGA, and personal models between the local and the global one (PLGA)",
    params=Params,
    server=Plga,
    pace="window",
    vectorizes=True,
)
