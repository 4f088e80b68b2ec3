"""Client half of FedProx: local training on f(x) + (weight/2) ||x - received||^2.

The weight is part of every downlink (`proximal`), so that a server may change it over time.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import GradientHook
from fedsim.layout import Layout
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights


class Proximal(LocalSGD):
    """Adds weight * (x - received) to the gradient."""

    def gradient_hook(self, task: Task, down: Downlink, state: ClientState) -> GradientHook | None:
        return proximal(task.layout, down.model, float(down.numbers["proximal"]))


def proximal(layout: Layout, anchor: Weights, weight: float) -> GradientHook | None:
    """A gradient hook that adds weight * (x - anchor); None for weight 0."""
    if weight == 0:
        return None
    anchors = [torch.tensor(values) for _, values in layout.split(anchor.parameters)]

    def pull(parameters: Sequence[Tensor]) -> None:
        for parameter, fixed in zip(parameters, anchors, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - fixed.to(parameter.device), alpha=weight)

    return pull
