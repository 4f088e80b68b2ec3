"""FedMA layer by layer: a layer is matched and averaged in each round, then frozen (Wang et al. 2020, arXiv 2002.06440).

Round p of a pass over the layers 0 .. L-1, with the model w_j of each client:
Client (1):  trains the layers p, p+1, ... of w_j; the layers before p are the global ones and stay as they are
Server (2):  Pi_j = the assignment of the units of layer p of w_j to those of the reference, as (2) and (3) of `fedma`
       (3):  layer p <- sum_j (n_j / n_S) * Pi_j w_{j,p};   last layer: row k <- sum_j p_jk w_{j,p,k}
       (4):  w_j <- layer p of all, and the inputs of layer p+1 of w_j in the order Pi_j

| symbol | meaning                                                      | name here                            |
| ------ | ------------------------------------------------------------ | ------------------------------------ |
| w_j    | model of client j, a row of                                  | `State.models`                       |
| p      | the layer of this round                                      | `State.phase`                        |
| p_jk   | share of client j in the samples of class k                  | `fleet[j].labels`                    |

After the last layer all w_j are the new global model, and the next pass begins ("FedMA with communication"). The
reference is the model of most samples in the first pass, the last global model later. Models of absent clients are
matched as they are, so everyone has the same first layers. A result from an earlier round of the pass is dropped: its
units are in another order. Deviations: fixed width and no posterior means, as `fedma`; whole models travel, though
their frozen layers are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.client_table import ClientTable, client_table
from fedsim.config import PositiveInt
from fedsim.payload import Arrival, Downlink
from fedsim.server.fleet import Fleet
from fedsim.strategies.matching import Layer, assignment, layers_of, matched_target
from fedsim.weights import Vec, Weights


@dataclass(frozen=True)
class Params:
    sweeps: PositiveInt = 2  # how often all clients are matched to the reference in a round
    start: Literal["common", "own"] = "common"  # model that clients first train


@dataclass
class State:
    model: Weights  # after the last complete pass
    models: ClientTable
    phase: int = 0
    passes: int = 0
    step: int = 0
    since: int = 0  # the step at which the present phase began


class FedMALayerwise(ServerStrategy[Params, State]):
    """Matches and averages one layer in each round."""

    averages, no_newcomers = True, ""

    @cached_property
    def layers(self) -> list[Layer]:
        return layers_of(self.fleet.layout)

    def init(self, model: Weights, fleet: Fleet) -> State:
        layers_of(fleet.layout)
        return State(model.copy(), client_table(self.config, model.parameters, len(fleet)))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        model = Weights(state.models[self.fleet.row(client)].copy())  # the row changes while a client trains from it
        own = state.step == 0 and self.params.start == "own"
        numbers = {"own-start": own, "frozen": self.layers[state.phase].weight.start}
        return Downlink({"model": model}, numbers=numbers if train else {}, shared=state.phase == 0)

    def newcomer(self, state: State, client: int) -> Downlink:
        return Downlink({"model": state.model}, numbers={"own-start": False})

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        fresh = [a for a in arrivals if a.step >= state.since]
        for arrival in fresh:
            state.models[self.fleet.row(arrival.client)] += arrival.uplink.weights["delta"].parameters
        state.step += 1
        if fresh:
            self._average(state, fresh)
            state.phase, state.since = (state.phase + 1) % len(self.layers), state.step
            if state.phase == 0:
                state.model, state.passes = Weights(state.models[0].copy()), state.passes + 1
        return state

    def global_model(self, state: State) -> Weights | None:
        return state.model

    def _average(self, state: State, fresh: Sequence[Arrival]) -> None:
        """(2), (3) and (4) for the layer of this round."""
        layer, examples = self.layers[state.phase], [a.uplink.examples for a in fresh]
        present = [self.fleet.row(a.client) for a in fresh]
        rows = {row: layer.rows(state.models[row], None) for row in range(len(state.models))}
        if state.phase == len(self.layers) - 1:
            mean = self._by_class([rows[row] for row in present], fresh)
        else:
            largest = present[int(np.argmax(examples))]
            first = layer.rows(state.model.parameters, None) if state.passes else rows[largest]
            shares = [count / sum(examples) for count in examples]
            target = matched_target(first, [rows[row] for row in present], shares, self.params.sweeps)
            orders = {row: assignment(target, own) for row, own in rows.items()}  # (2)
            matched = [rows[row][orders[row]] - target for row in present]
            mean = target + self.aggregate([own.reshape(-1) for own in matched], examples).reshape(target.shape)
            following = self.layers[state.phase + 1]
            for row, order in orders.items():
                following.put(state.models[row], following.rows(state.models[row], order))
        for row in rows:
            layer.put(state.models[row], mean)  # (4)

    def _by_class(self, rows: Sequence[Vec], fresh: Sequence[Arrival]) -> Vec:
        """(3) for the last layer; classes that nobody has are averaged equally."""
        counts = np.maximum([self.fleet[a.client].labels for a in fresh], 1e-6)
        return np.stack([self.aggregate([own[k] for own in rows], counts[:, k].tolist()) for k in range(len(rows[0]))])


FEDMA_LAYERWISE = Algorithm(
    name="fedma-layerwise",
    about="one layer is matched, averaged and frozen in each round (Wang et al. 2020)",
    params=Params,
    server=FedMALayerwise,
    client="fedsim.clients.fedma:FedMAClient",
    label_counts=True,
    targets="classes",
)
