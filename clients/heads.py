"""Linear heads made from vectors: several predictors (nearest prototype, sums of heads) are one linear layer."""

import numpy as np

from fedsim.errors import ConfigError
from fedsim.layout import Layout, Part
from fedsim.payload import Array
from fedsim.weights import Vec, Weights

IMPOSSIBLE = -1e9  # the bias of a class that is not to be predicted


def with_linear_head(layout: Layout, weights: Weights, matrix: Array, bias: Array) -> Weights:
    """The model with a head that returns matrix @ f + bias; raises ConfigError if its head is no linear layer."""
    if matrix.shape[1] != layout.features:
        raise ConfigError(f"a head of {matrix.shape[1]} features does not fit a model with {layout.features}")
    values = np.concatenate([matrix.reshape(-1), bias]).astype(np.float32)
    return weights.with_part(layout.part("head"), Weights(values))


def head_matrix(layout: Layout, parameters: Vec) -> Vec:
    """The matrix of a linear head, classes x features, from the parameters of a model or of an update."""
    head = parameters[layout.part("head").parameters]
    return head[: -(head.size // (layout.features + 1))].reshape(-1, layout.features)


def head_bias(layout: Layout) -> Part:
    """The biases of a linear head."""
    head = layout.part("head")
    places = np.flatnonzero(head.parameters)[-(head.size // (layout.features + 1)) :]
    return Part(np.isin(np.arange(layout.size), places), np.zeros(layout.buffer_size, bool))
