"""Stochastic gradient descent: the arithmetic of `torch.optim.SGD`, bit for bit, without what it brings.

Torch's optimizers load the compiler (`torch._dynamo`) when they are first used. That takes about as long as loading torch
itself, and a client of a real federation is a new process for every job.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


class SGD:
    """Steps along the gradients of these parameters; `lr` may be changed between steps."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self.lr, self._momentum, self._weight_decay = lr, momentum, weight_decay
        self._parameters = list(parameters)
        self._velocities: dict[Tensor, Tensor] = {}

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.add_(self._direction(parameter, parameter.grad), alpha=-self.lr)

    def _direction(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        if self._weight_decay:
            gradient = gradient.add(parameter, alpha=self._weight_decay)
        if not self._momentum:
            return gradient
        if parameter not in self._velocities:
            self._velocities[parameter] = gradient.clone()
            return gradient
        return self._velocities[parameter].mul_(self._momentum).add_(gradient)
