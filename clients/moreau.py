"""Client half of pFedMe: the trained model is personal, and a local copy of the global one follows it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clients.local_sgd import Batch, Lesson, LocalSGD, Trainer
from clients.task import flatten
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Model, Uplink
from fedsim.vector import Vec


class Moreau(LocalSGD):
    """Expects parameters with `lam`, `inner_steps`, `inner_lr` and `mu`."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        received = down.vectors["model"]
        copies = [torch.tensor(values) for _, values in task.layout.split(received)]
        fit = task.fit(received, rng, buffers=down.vectors.get("buffers"), lesson=self._lesson(copies))
        memory.vectors |= {"personal": fit.model, "buffers": fit.buffers}
        vectors = {"delta": flatten(iter(copies)) - received} | ({"buffers": fit.buffers} if fit.buffers.size else {})
        return Uplink(vectors, task.examples, metrics={"loss": fit.loss}, local=fit.whole)

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Vec | Model:
        kept = memory.vectors
        return Model(kept["personal"], kept["buffers"]) if "personal" in kept else down.vectors["model"]

    def _lesson(self, copies: Sequence[Tensor]) -> Lesson:
        params = self.params

        def lesson(trainer: Trainer, batch: Batch) -> Tensor:
            losses = []
            for _ in range(params.inner_steps):
                losses.append(trainer.backward(batch).detach())
                with torch.no_grad():
                    for theta, copy in zip(trainer.parameters, copies, strict=True):
                        pull = params.lam * (theta - copy.to(theta.device)) + params.mu * theta
                        theta.sub_(params.inner_lr * (pull if theta.grad is None else theta.grad + pull))
            for theta, copy in zip(trainer.parameters, copies, strict=True):
                copy.add_(theta.detach().to(copy.device) - copy, alpha=params.lam * trainer.config.lr)
            return losses[0]

        return lesson
