"""Matching the hidden units of networks: what the forms of FedMA have in common. Equation numbers are those of `fedma`.

A network is a chain of linear and convolutional layers. The order of a layer's units means nothing: a network computes
the same if they are permuted together with the inputs of the next layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedsim.errors import ConfigError
from fedsim.layout import Layout
from fedsim.weights import Vec

Order = NDArray[np.int64]


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

    def spread(self, model: Vec, inputs: Order, width: int) -> Vec:
        """The rows with their inputs at these places among `width` of them, and zeros elsewhere."""
        wide = np.zeros((self.shape[0], width, self.shape[2]), np.float32)
        wide[:, inputs] = model[self.weight].reshape(self.shape)
        flat = wide.reshape(self.shape[0], -1)
        return flat if self.bias is None else np.column_stack([flat, model[self.bias]])

    def gather(self, model: Vec, rows: Vec, inputs: Order, width: int) -> None:
        """Writes rows with `width` inputs back into a model that has those at these places."""
        count = width * self.shape[2]
        weight = rows[:, :count].reshape(self.shape[0], width, self.shape[2])[:, inputs]
        model[self.weight] = weight.reshape(-1)
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
            target = matched_target(layer.rows(reference, None), rows, shares, sweeps)
            orders = [assignment(target, own) for own in rows]
            rows = [own[order] for own, order in zip(rows, orders, strict=True)]
        for model, own in zip(found, rows, strict=True):
            layer.put(model, own)
    return found


def matched_target(target: Vec, rows: Sequence[Vec], shares: Sequence[float], sweeps: int) -> Vec:
    """What the rows of all models are matched to last: the first sweep matches them to the given target, each further one to
    the mean of the rows that the sweep before it matched, (3)."""
    for _ in range(sweeps - 1):
        target = sum(
            (s * own[assignment(target, own)] for s, own in zip(shares, rows, strict=True)), np.zeros_like(target)
        )
    return target


def assignment(target: NDArray[Any], rows: NDArray[Any]) -> Order:
    """(2): the row for each unit of the target. Lengths are the same in every order, so only the products count."""
    _, chosen = linear_sum_assignment(target.astype(np.float64) @ rows.astype(np.float64).T, maximize=True)
    return np.asarray(chosen, np.int64)
