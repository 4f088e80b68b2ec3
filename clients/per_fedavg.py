"""Client half of Per-FedAvg: a meta-gradient per mini-batch."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.batch_steps import at_rate, repeated
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import Batch, BatchStep, Trainer
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights


class PerFedAvgClient(LocalSGD):
    """Expects parameters with `variant`, `alpha`, `beta`, `delta` and `steps`. Equation numbers are those of
    `fedsim.strategies.per_fedavg`."""

    def batch_step(self, task: Task, down: Downlink, state: ClientState) -> BatchStep:
        return repeated(2) if self.params.variant == "two-step" else self._meta_step

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        params = self.params
        if params.variant == "two-step" or params.steps == 0:
            return down.model
        return task.fit(down.model, rng, steps=params.steps, step=at_rate(params.alpha)).weights

    def _meta_step(self, trainer: Trainer, batch: Batch) -> Tensor:
        params = self.params
        start = [p.detach().clone() for p in trainer.parameters]
        loss = trainer.backward(batch)
        shift(trainer.parameters, gradients(trainer), -params.alpha)
        trainer.backward(trainer.draw())
        outer = gradients(trainer)  # (2)
        step = outer
        if params.variant == "hf":
            third, sides = trainer.draw(), []
            for sign in (1, -1):
                place(trainer.parameters, start)
                shift(trainer.parameters, outer, sign * params.delta)
                trainer.backward(third)
                sides.append(gradients(trainer))
            scale = params.alpha / (2 * params.delta)
            step = [q - scale * (up - low) for q, up, low in zip(outer, *sides, strict=True)]
        place(trainer.parameters, start)
        shift(trainer.parameters, step, -(params.beta or trainer.lr))  # (3), (4)
        return loss


def gradients(trainer: Trainer) -> list[Tensor]:
    """A copy of every gradient; zeros for parameters that have none."""
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in trainer.parameters]


def place(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)


def shift(parameters: Sequence[Tensor], along: Sequence[Tensor], scale: float) -> None:
    with torch.no_grad():
        for parameter, direction in zip(parameters, along, strict=True):
            parameter.add_(direction, alpha=scale)
