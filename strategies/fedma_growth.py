"""FedMA with growing layers: units that match no other stay apart (Wang et al. 2020, arXiv 2002.06440).

Server, for every hidden layer n in order, with the models w_j that arrived:
       (1):  rows of layer n of model j = incoming weights, spread over the global inputs, and bias of each unit
       (2):  the place of each unit among the global units, of which there may be new ones, as in `unit_growth`
       (3):  every global weight = the mean over the clients that have both of its units, by their samples
       (4):  what client j receives next = the global weights between its own units
Client (5):  w_j = LocalSGD from what it received

| symbol | meaning                              | name here               |
| ------ | ------------------------------------ | ----------------------- |
| w_j    | model of client j                    | `uplink.weights["model"]` |
| (4)    | what each client receives            | `State.models`          |
|        | global units of every hidden layer   | `State.widths`          |

Networks keep the width of the run's model: the wider global network exists on the server alone, and each client uses
its own part of it, which is evaluated as its personal model; there is no global model of the run's shape. Clients that
were not matched, or never took part, receive the part of the client with most samples. Deviations: plain means instead
of posterior means; the last layer is averaged by samples, not by class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.client_table import ClientTable, client_table
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.rng import stream
from fedsim.server.fleet import Fleet
from fedsim.strategies.matching import Layer, layers_of
from fedsim.strategies.unit_growth import GrowthParams, grown
from fedsim.weights import Vec, Weights


@dataclass(frozen=True)
class Params(GrowthParams):
    start: Literal["common", "own"] = "common"  # model that clients first train


@dataclass
class State:
    models: ClientTable
    widths: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    step: int = 0


class FedMAGrowth(ServerStrategy[Params, State]):
    """Keeps what each client receives next."""

    no_newcomers = ""

    @cached_property
    def layers(self) -> list[Layer]:
        return layers_of(self.fleet.layout)

    def init(self, model: Weights, fleet: Fleet) -> State:
        widths = [layer.shape[0] for layer in layers_of(fleet.layout)[:-1]]
        return State(client_table(self.config, model.parameters, len(fleet)), np.array(widths, np.int64))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        model = Weights(state.models[self.fleet.row(client)].copy())  # rows change while clients train
        own = state.step == 0 and self.params.start == "own"
        return Downlink({"model": model}, numbers={"own-start": own} if train else {}, shared=False)

    def newcomer(self, state: State, client: int) -> Downlink:
        largest = max(self.fleet.clients, key=lambda known: known.train)
        return self.instruct(state, largest.id, train=True)

    def expects(self) -> Mapping[str, Spec]:
        return {"model": Spec.weights(self.fleet.layout, role="model")}

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        models = [a.uplink.weights["model"].parameters for a in arrivals]
        sizes = [a.uplink.examples for a in arrivals]
        parts, widths = self._parts(models, sizes, stream(self.config.seed, state.step, "fedma-growth"))
        state.models[:] = parts[int(np.argmax(sizes))]
        for arrival, part in zip(arrivals, parts, strict=True):
            state.models[self.fleet.row(arrival.client)] = part
        return State(state.models, np.array(widths, np.int64), state.step + 1)

    def _parts(
        self, models: Sequence[Vec], sizes: Sequence[int], rng: np.random.Generator
    ) -> tuple[list[Vec], list[int]]:
        """(4) for every model, and the global widths of the hidden layers."""
        parts, widths = [np.empty_like(model) for model in models], []
        inputs, width = [np.arange(self.layers[0].shape[1])] * len(models), self.layers[0].shape[1]
        for layer in self.layers:
            rows = [layer.spread(model, own, width) for model, own in zip(models, inputs, strict=True)]  # (1)
            if layer is self.layers[-1]:
                outputs, grown_width = [np.arange(layer.shape[0])] * len(models), layer.shape[0]
            else:
                outputs, grown_width = grown(rows, sizes, self.params, layer.bias is not None, rng)  # (2)
                widths.append(grown_width)
            known = [layer.spread(np.ones_like(m), own, width) for m, own in zip(models, inputs, strict=True)]
            total, weight = (np.zeros((grown_width, rows[0].shape[1])) for _ in range(2))
            for own, has, places, size in zip(rows, known, outputs, sizes, strict=True):
                total[places] += size * own
                weight[places] += size * has
            mean = (total / np.maximum(weight, 1)).astype(np.float32)  # (3)
            for part, places, columns in zip(parts, outputs, inputs, strict=True):
                layer.gather(part, mean[places], columns, width)
            inputs, width = outputs, grown_width
        return parts, widths


FEDMA_GROWTH = Algorithm(
    name="fedma-growth",
    about="hidden units are matched or stay apart in a wider network on the server (Wang et al. 2020)",
    params=Params,
    server=FedMAGrowth,
    client="fedsim.clients.fedma:WholeModel",
)
