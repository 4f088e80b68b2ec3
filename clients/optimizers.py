"""Optimizers. `SGD` has the arithmetic of `torch.optim.SGD`, bit for bit, without its imports.

Torch's optimizers load the compiler (`torch._dynamo`) when they are first used, which takes about as long as loading
torch itself, and a client of a real federation is a new process for every job. Adam and AdamW are torch's own.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from fedsim.config import RunConfig


class Optimizer(Protocol):
    """Steps along the gradients of its parameters; `lr` may be changed between steps."""

    lr: float

    def zero_grad(self) -> None: ...

    def step(self) -> None: ...


def make_optimizer(config: RunConfig, lr: float, parameters: Sequence[Tensor]) -> Optimizer:
    """The run's optimizer over these parameters."""
    if config.optimizer == "sgd":
        return SGD(parameters, lr, config.momentum, config.weight_decay)
    return TorchOptimizer(config.optimizer, parameters, lr, config.weight_decay)


class SGD:
    """Stochastic gradient descent with momentum and weight decay."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self.lr, self._momentum, self._weight_decay = lr, momentum, weight_decay
        self._parameters = list(parameters)
        self._velocities: dict[Tensor, Tensor] = {}

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        moved = [(p, p.grad) for p in self._parameters if p.grad is not None]
        with torch.no_grad():
            if self._momentum or self._weight_decay:  # one by one: a direction is still in the cache when it is added
                for parameter, gradient in moved:
                    parameter.add_(self._direction(parameter, gradient), alpha=-self.lr)
            elif moved:
                torch._foreach_add_([p for p, _ in moved], [g for _, g in moved], alpha=-self.lr)

    def _direction(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        if self._weight_decay:
            gradient = gradient.add(parameter, alpha=self._weight_decay)
        if not self._momentum:
            return gradient
        if parameter not in self._velocities:
            self._velocities[parameter] = gradient.clone()
            return gradient
        return self._velocities[parameter].mul_(self._momentum).add_(gradient)


def step_weights(steps: int, momentum: float, pull: float = 0.0) -> float:
    """The sum of the factors with which the gradients of so many steps of `SGD` enter the update; `steps` without momentum.

    `pull`: lr * mu of a proximal term mu (x - start). The sum is how far steps along a constant gradient of 1 lead, in
    units of lr.
    """
    moved = velocity = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1 - pull * moved
        moved += velocity
    return moved


class TorchOptimizer:
    """torch.optim.Adam or AdamW behind the same two methods."""

    def __init__(self, name: str, parameters: Sequence[Tensor], lr: float, weight_decay: float) -> None:
        kinds: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        self._optimizer = kinds[name](list(parameters), lr=lr, weight_decay=weight_decay)

    @property
    def lr(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = value

    def zero_grad(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        self._optimizer.step()
