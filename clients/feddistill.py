"""Client half of FedDistill: trains its own model towards what others predict for its classes."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedsim.algorithm import Task
from fedsim.clients.local import LocalOnly
from fedsim.clients.training import Batch, Loss, Trainer
from fedsim.payload import Array, Downlink
from fedsim.weights import Weights


class FedDistillClient(LocalOnly):
    """Receives `targets`, a row for each class, and sends its own mean `predictions` with the `counts` behind them. Equation
    numbers are those of `fedsim.strategies.feddistill`."""

    def loss(self, task: Task, down: Downlink) -> Loss | None:
        gamma = float(self.params.gamma)
        if gamma == 0 or "targets" not in down.arrays:
            return None
        targets = torch.tensor(down.arrays["targets"])

        def towards_others(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            output = trainer.network(x)
            distance = -(targets.to(y.device)[y] * log_softmax(output, 1)).sum(1)  # 0 for a class without a target
            return trainer.objective.loss(output, y) + gamma * distance.mean()  # (2)

        return towards_others

    def statistics(self, task: Task, weights: Weights) -> Mapping[str, Array]:
        found = task.by_class(weights, of="probabilities")  # (1)
        return {"predictions": found.means, "counts": found.counts}
