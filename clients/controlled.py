"""Client half with control variates: local SGD whose every gradient is corrected by c - c_i."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clients.local_sgd import Adjust, Batch, LocalSGD, Trainer
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Uplink
from fedsim.vector import Vec


class Controlled(LocalSGD):
    """Expects parameters with `option`. Equation numbers are those of `strategies.scaffold`."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        received, buffers = down.vectors["model"], down.vectors.get("buffers")
        fit = task.fit(received, rng, buffers=buffers, lesson=self.lesson(task, down, memory))
        own = self._own(memory, received)
        if self.params.option == 1:
            renewed = full_gradient(task, received, rng, buffers)
        else:
            length = task.config.lr * step_weights(fit.steps, task.config.momentum)
            moved = (received - fit.model) / np.float32(length) if length else np.zeros_like(own)
            renewed = own - down.vectors["control"] + moved  # (2)
        memory.vectors["control"] = renewed
        vectors = {"delta": fit.model - received, "control": renewed - own}
        vectors |= {"buffers": fit.buffers} if fit.buffers.size else {}
        return Uplink(vectors, task.examples, metrics={"loss": fit.loss}, local=fit.model)

    def adjust(self, task: Task, down: Downlink, memory: Memory) -> Adjust:
        correction = down.vectors["control"] - self._own(memory, down.vectors["model"])
        parts = [torch.tensor(values) for _, values in task.layout.split(correction)]

        def correct(parameters: Sequence[Tensor]) -> None:
            for parameter, part in zip(parameters, parts, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(part.to(parameter.device))  # (1)

        return correct

    def _own(self, memory: Memory, like: Vec) -> Vec:
        return memory.vectors["control"] if "control" in memory.vectors else np.zeros_like(like)


def step_weights(steps: int, momentum: float) -> float:
    """How often the gradients of so many steps count in the way they made: steps, and more with momentum."""
    return sum((steps - past) * momentum**past for past in range(steps))


def full_gradient(task: Task, model: Vec, rng: np.random.Generator, buffers: Vec | None = None) -> Vec:
    """The gradient of the mean loss over all local data: one pass of mini-batches that leaves the model where it is."""
    total: list[Tensor] = []

    def add(trainer: Trainer, batch: Batch) -> Tensor:
        loss, share = trainer.backward(batch), len(batch[1]) / task.examples
        found = [torch.zeros_like(p) if p.grad is None else share * p.grad for p in trainer.parameters]
        total[:] = [a + b for a, b in zip(total, found, strict=True)] if total else found
        return loss

    task.fit(model, rng, buffers=buffers, epochs=1, lesson=add)
    flat: Vec = torch.cat([part.reshape(-1) for part in total]).cpu().numpy()
    return flat
