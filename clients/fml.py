"""Client half of FML: the shared and the private model learn from the labels and from each other's output."""

from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.batch_steps import descend
from fedsim.clients.distillation import BesideShared, divergence
from fedsim.clients.training import Batch, BatchStep, Trainer
from fedsim.payload import ClientState


class FmlClient(BesideShared):
    """Expects parameters with `alpha` and `beta`. Equation numbers are those of `fedsim.strategies.fml`."""

    def together(self, task: Task, shared: Trainer, state: ClientState) -> BatchStep:
        def both(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            p, g = trainer.network(x), shared.network(x)
            descend(trainer, blend(trainer.objective.loss(p, y), g, p, self.params.alpha))  # (1)
            return descend(shared, blend(shared.objective.loss(g, y), p, g, self.params.beta))  # (2)

        return both


def blend(labels: Tensor, teacher: Tensor, student: Tensor, share: float) -> Tensor:
    """share * labels + (1 - share) * KL(teacher || student)."""
    return labels if share == 1 else share * labels + (1 - share) * divergence(teacher, student)
