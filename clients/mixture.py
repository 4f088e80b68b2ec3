"""Client half of APFL: trains the global model and, beside it, an own model as a part of their mixture."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clients.local_sgd import Batch, LocalSGD, Trainer
from clients.sgd import SGD
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Uplink
from fedsim.vector import Vec


class Mixture(LocalSGD):
    """Expects parameters with `alpha` and `adapt`. Equation numbers are those of `strategies.apfl`."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        received = down.vectors["model"]
        pair = Pair(task, *self._own(task, memory), self.params.adapt)
        fit = task.fit(received, rng, buffers=down.vectors.get("buffers"), lesson=pair.lesson)
        own = torch.cat([part.detach().reshape(-1) for part in pair.own]).cpu().numpy()
        memory.vectors["own"], memory.numbers["alpha"] = own, pair.alpha
        vectors = {"delta": fit.model - received} | ({"buffers": fit.buffers} if fit.buffers.size else {})
        metrics = {"loss": fit.loss, "alpha": pair.alpha}
        return Uplink(vectors, task.examples, metrics=metrics, local=mix(own, fit.model, pair.alpha))

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Vec:
        own, alpha = self._own(task, memory)
        return mix(own, down.vectors["model"], alpha)

    def _own(self, task: Task, memory: Memory) -> tuple[Vec, float]:
        own = memory.vectors["own"] if "own" in memory.vectors else task.initial()
        return own, float(memory.numbers.get("alpha", self.params.alpha))


def mix(own: Vec, shared: Vec, alpha: float) -> Vec:
    return np.float32(alpha) * own + np.float32(1 - alpha) * shared


class Pair:
    """The own model beside the one that is being trained."""

    def __init__(self, task: Task, own: Vec, alpha: float, adapt: str) -> None:
        self.alpha, self._adapts, self._once = alpha, adapt != "never", adapt == "round"
        self.own = [torch.tensor(values) for _, values in task.layout.split(own)]
        self._optimizer: SGD | None = None

    def lesson(self, trainer: Trainer, batch: Batch) -> Tensor:
        loss = trainer.backward(batch)
        trainer.optimizer.step()  # (1)
        shared = [p.detach().clone() for p in trainer.parameters]
        optimizer = self._settle(trainer, shared)
        _assign(
            trainer.parameters, [self.alpha * v + (1 - self.alpha) * w for v, w in zip(self.own, shared, strict=True)]
        )
        trainer.backward(batch)
        slopes = [
            torch.zeros_like(w) if p.grad is None else p.grad.clone()
            for p, w in zip(trainer.parameters, shared, strict=True)
        ]
        _assign(trainer.parameters, shared)
        turn = sum(float(((v - w) * g).sum()) for v, w, g in zip(self.own, shared, slopes, strict=True))
        for v, g in zip(self.own, slopes, strict=True):
            v.grad = self.alpha * g
        optimizer.step()  # (2)
        if self._adapts:
            self.alpha = min(1.0, max(0.0, self.alpha - trainer.config.lr * turn))  # (3)
            self._adapts = not self._once
        return loss

    def _settle(self, trainer: Trainer, like: Sequence[Tensor]) -> SGD:
        """The own model's optimizer, made where the trained model lives."""
        if self._optimizer is None:
            self.own = [v.to(w.device) for v, w in zip(self.own, like, strict=True)]
            config = trainer.config
            self._optimizer = SGD(self.own, config.lr, config.momentum, config.weight_decay)
        return self._optimizer


def _assign(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
