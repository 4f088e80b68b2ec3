"""Client half with a proximal term: local SGD on f(x) + (weight/2) ||x - received||^2.

The weight comes with every message (`proximal`), so that a server may change it over time.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from clients.local_sgd import Adjust, LocalSGD
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory


class Proximal(LocalSGD):
    """Adds weight * (x - received) to the gradient."""

    def adjust(self, task: Task, down: Downlink, memory: Memory) -> Adjust | None:
        weight = float(down.numbers["proximal"])
        if weight == 0:
            return None
        anchors = [torch.tensor(values) for _, values in task.layout.split(down.vectors["model"])]

        def pull(parameters: Sequence[Tensor]) -> None:
            for parameter, anchor in zip(parameters, anchors, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach() - anchor.to(parameter.device), alpha=weight)

        return pull
