"""Client half of Per-FedAvg: a meta-gradient per mini-batch."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clients.lessons import at_rate, repeated
from clients.local_sgd import Batch, Lesson, LocalSGD, Trainer
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Model
from fedsim.vector import Vec


class Meta(LocalSGD):
    """Expects parameters with `variant`, `alpha`, `beta`, `delta` and `steps`."""

    def lesson(self, task: Task, down: Downlink, memory: Memory) -> Lesson:
        return repeated(2) if self.params.variant == "two-step" else self._meta_step

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Vec | Model:
        model, params = down.vectors["model"], self.params
        if params.variant == "two-step" or params.steps == 0:
            return model
        lesson = at_rate(params.alpha)
        return task.fit(model, rng, buffers=down.vectors.get("buffers"), steps=params.steps, lesson=lesson).whole

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
        shift(trainer.parameters, step, -params.beta)  # (3), (4)
        return loss


def gradients(trainer: Trainer) -> list[Tensor]:
    """A copy of each; zeros where a parameter took no part."""
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in trainer.parameters]


def place(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)


def shift(parameters: Sequence[Tensor], along: Sequence[Tensor], scale: float) -> None:
    with torch.no_grad():
        for parameter, direction in zip(parameters, along, strict=True):
            parameter.add_(direction, alpha=scale)
