"""FedMA: matched averaging (Wang et al. 2020, arXiv 2002.06440), with layers of fixed width.

Server, for every hidden layer n in order, with J models w_j = w_a + delta_j and a reference r:
       (1):  rows of layer n of model j = incoming weights and bias of each unit, inputs in the order Pi_{j,n-1}
       (2):  Pi_{j,n} = the assignment of the units of j to those of r that minimizes the sum of squared distances
       (3):  r <- sum_j (n_j / n_S) * Pi_{j,n} w_{j,n};   (2) and (3) are repeated `sweeps` times
       (4):  w <- w + sum_j (n_j / n_S) * (Pi_j w_j - w)
Client (5):  delta_k = LocalSGD(w; D_k) - w;   with start=own the first training starts from an initial model of its own

| symbol  | meaning                                                     | name here                       |
| ------- | ----------------------------------------------------------- | ------------------------------- |
| w, w_a  | global model, now and where the client started              | `GlobalState`                   |
| Pi_j    | order of the units of all hidden layers of model j          | `aligned`                       |
| r       | the global model; of own first models that of most samples  | `reference`                     |

A unit's bias moves with it; where a linear layer follows a convolution, each channel stands for a block of its inputs
(`fedsim.strategies.matching`). Models with normalization, shortcuts or recurrent layers are refused by the name of
the layer. matching=none is FedAvg. (4) is written with differences, which `aggregator` may combine otherwise.
Deviations: no new units, so that all models keep their width (they grow in `fedma-growth`); all layers are matched in
one server step (one after the other: `fedma-layerwise`); sample-weighted means instead of posterior means, also for
the last layer. An own initial model is the common one with the values of every tensor shuffled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import PositiveInt
from fedsim.payload import Arrival, Downlink
from fedsim.server.fleet import Fleet
from fedsim.strategies.matching import Layer, aligned, layers_of
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    matching: Literal["fixed", "none"] = "fixed"  # fixed: units are matched, layers keep their width; none: FedAvg
    sweeps: PositiveInt = 2  # how often all clients are matched to the reference in a round
    start: Literal["common", "own"] = "common"  # model that clients first train


class FedMA(GlobalStrategy[Params]):
    """The mean of models whose units are matched first."""

    averages = True

    @cached_property
    def layers(self) -> list[Layer]:
        return layers_of(self.fleet.layout)

    def init(self, model: Weights, fleet: Fleet) -> GlobalState:
        if self.params.matching == "fixed":
            layers_of(fleet.layout)
        return super().init(model, fleet)

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        own = train and state.step == 0 and self.params.start == "own"
        return Downlink({"model": state.model}, numbers={"own-start": own} if train else {})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        w, examples = state.model.parameters, [a.uplink.examples for a in arrivals]
        models = [self.base(state, a) + a.uplink.weights["delta"].parameters for a in arrivals]
        if self.params.matching == "fixed":
            own = self.params.start == "own" and state.step == 0
            reference = models[int(np.argmax(examples))] if own else w
            shares = [count / sum(examples) for count in examples]
            models = aligned(self.layers, reference, models, shares, self.params.sweeps)
        after = w + self.aggregate([model - w for model in models], examples)  # (4)
        return self.advance(state, Weights(after, self.mean_buffers(state, arrivals, examples)))


FEDMA = Algorithm(
    name="fedma",
    about="mean of models whose hidden units are matched first (Wang et al. 2020)",
    params=Params,
    server=FedMA,
    client="fedsim.clients.fedma:FedMAClient",
)
