"""Client half of FML: the shared and the private model learn from the labels and from each other's output."""

from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.batch_steps import descend
from fedsim.clients.distillation import PrivateModel, divergence
from fedsim.clients.training import Batch, BatchStep, Trainer
from fedsim.payload import ClientState


class FmlClient(PrivateModel):
    """Expects parameters with `alpha`, `beta` and `private`. Equation numbers are those of `fedsim.strategies.fml`."""

    @property
    def private_network(self) -> str:
        return self.params.private or "model"

    def together(self, task: Task, private: Trainer, state: ClientState) -> BatchStep:
        def both(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            own, shared = private.network(x), trainer.network(x)
            descend(private, blend(private.objective.loss(own, y), shared, own, self.params.alpha))  # (1)
            return descend(trainer, blend(trainer.objective.loss(shared, y), own, shared, self.params.beta))  # (2)

        return both


def blend(labels: Tensor, teacher: Tensor, student: Tensor, share: float) -> Tensor:
    """share * labels + (1 - share) * KL(teacher || student)."""
    return labels if share == 1 else share * labels + (1 - share) * divergence(teacher, student)
