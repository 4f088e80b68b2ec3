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

A unit's bias moves with it; where a linear layer follows a convolution, each channel stands for a block of its
inputs. Models with normalization, shortcuts or recurrent layers are refused by the name of the layer. matching=none
is FedAvg. (4) is written with differences, which `aggregator` may combine otherwise. Deviations: no new units, so
that all models keep their width (the paper's growth under a Beta-Bernoulli prior needs clients of different widths);
all layers are matched in one server step, and no layer is frozen between two; sample-weighted means instead of
posterior means, also for the last layer. An own initial model is the common one with the values of every tensor
shuffled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import PositiveInt
from fedsim.errors import ConfigError
from fedsim.layout import Layout
from fedsim.payload import Arrival, Downlink
from fedsim.server.fleet import Fleet
from fedsim.weights import Vec, Weights

Order = NDArray[np.int64]


@dataclass(frozen=True)
class Params:
    matching: Literal["fixed", "none"] = "fixed"
    sweeps: PositiveInt = 2
    start: Literal["common", "own"] = "common"  # of the clients' first training


@dataclass(frozen=True)
class Layer:
    """A linear or convolutional layer in the flat vector; its weights are units x inputs x a block for each input."""

    name: str
    weight: slice
    shape: tuple[int, int, int]
    bias: slice | None

    def rows(self, model: Vec, inputs: Order | None) -> Vec:
        """(1): everything that belongs to a unit in one row, with its inputs in another order if given."""
        weight = model[self.weight].reshape(self.shape)
        flat = (weight if inputs is None else weight[:, inputs]).reshape(self.shape[0], -1)
        return flat if self.bias is None else np.column_stack([flat, model[self.bias]])

    def put(self, model: Vec, rows: Vec) -> None:
        """Writes rows back into a model."""
        count = self.shape[1] * self.shape[2]
        model[self.weight] = rows[:, :count].reshape(-1)
        if self.bias is not None:
            model[self.bias] = rows[:, count]


def layers_of(layout: Layout) -> list[Layer]:
    """The layers of a plain chain; raises ConfigError with the name of the first one that cannot be permuted."""
    layers: list[Layer] = []
    for tensor in (*layout.parameters, *layout.buffers):
        name, _, kind = tensor.name.rpartition(".")
        where = layout.slices.get(tensor.name, slice(0, 0))
        if kind == "bias" and layers and layers[-1].name == name and tensor.shape == layers[-1].shape[:1]:
            layers[-1] = Layer(name, layers[-1].weight, layers[-1].shape, where)
            continue
        if tensor.kind or kind != "weight" or len(tensor.shape) not in (2, 4):
            raise ConfigError(f"fedma cannot permute layer {name!r}: it is neither linear nor a convolution")
        before = layers[-1].shape[0] if layers else tensor.shape[1]
        if tensor.shape[1] % before or (len(tensor.shape) == 4 and tensor.shape[1] != before):
            told = f"it takes {tensor.shape[1]} inputs, but layer {layers[-1].name!r} before it has {before} units"
            raise ConfigError(f"fedma cannot permute layer {name!r}: {told}")
        layers.append(Layer(name, where, (tensor.shape[0], before, tensor.size // tensor.shape[0] // before), None))
    return layers


def aligned(
    layers: Sequence[Layer], reference: Vec, models: Sequence[Vec], shares: Sequence[float], sweeps: int
) -> list[Vec]:
    """The models with the units of every hidden layer in the order that matches the reference's."""
    found = [np.empty_like(model) for model in models]
    orders: list[Order | None] = [None] * len(models)
    for layer in layers:
        rows = [layer.rows(model, order) for model, order in zip(models, orders, strict=True)]
        if layer is not layers[-1]:  # the outputs have names
            target = layer.rows(reference, None)
            for _ in range(sweeps):
                orders = [assignment(target, own) for own in rows]
                matched = [own[order] for own, order in zip(rows, orders, strict=True)]
                target = sum(
                    (share * own for share, own in zip(shares, matched, strict=True)), np.zeros_like(target)
                )  # (3)
            rows = matched
        for model, own in zip(found, rows, strict=True):
            layer.put(model, own)
    return found


def assignment(target: NDArray[Any], rows: NDArray[Any]) -> Order:
    """(2): the row for each unit of the target. Lengths are the same in every order, so only the products count."""
    _, chosen = linear_sum_assignment(target.astype(np.float64) @ rows.astype(np.float64).T, maximize=True)
    return np.asarray(chosen, np.int64)


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
