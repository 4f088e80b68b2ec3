"""Client half of APFL: trains the global model and, beside it, an own model as a part of their mixture."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from clients.local_sgd import Batch, LocalSGD, Trainer
from clients.sgd import SGD
from clients.task import assign, buffers_of, flatten
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Model, Uplink
from fedsim.vector import Vec


class Mixture(LocalSGD):
    """Expects parameters with `alpha` and `adapt`. Equation numbers are those of `strategies.apfl`."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        received = down.vectors["model"]
        pair = Pair(task, *self._own(task, memory), self.params.adapt, memory.vectors.get("buffers"))
        fit = task.fit(received, rng, buffers=down.vectors.get("buffers"), lesson=pair.lesson)
        own, buffers = flatten(iter(pair.own)), flatten(iter(pair.buffers))
        memory.vectors |= {"own": own, "buffers": buffers}
        memory.numbers["alpha"] = pair.alpha
        vectors = {"delta": fit.model - received} | ({"buffers": fit.buffers} if fit.buffers.size else {})
        metrics = {"loss": fit.loss, "alpha": pair.alpha}
        return Uplink(vectors, task.examples, metrics=metrics, local=Model(mix(own, fit.model, pair.alpha), buffers))

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Model:
        own, alpha = self._own(task, memory)
        return Model(mix(own, down.vectors["model"], alpha), memory.vectors.get("buffers", down.vectors.get("buffers")))

    def _own(self, task: Task, memory: Memory) -> tuple[Vec, float]:
        own = memory.vectors["own"] if "own" in memory.vectors else task.initial()
        return own, float(memory.numbers.get("alpha", self.params.alpha))


def mix(own: Vec, shared: Vec, alpha: float) -> Vec:
    return np.float32(alpha) * own + np.float32(1 - alpha) * shared


class Pair:
    """The own model beside the one that is being trained. Their mixture has buffers of its own."""

    def __init__(self, task: Task, own: Vec, alpha: float, adapt: str, buffers: Vec | None = None) -> None:
        self.alpha, self._adapts, self._once = alpha, adapt != "never", adapt == "round"
        self.own = [torch.tensor(values) for _, values in task.layout.split(own)]
        self.buffers: list[Tensor] = []
        self._start = buffers
        self._optimizer: SGD | None = None

    def lesson(self, trainer: Trainer, batch: Batch) -> Tensor:
        optimizer = self._settle(trainer)
        loss = trainer.backward(batch)
        trainer.optimizer.step()  # (1)
        shared, slopes = self._mixture_gradient(trainer, batch)
        turn = sum(float(((v - w) * g).sum()) for v, w, g in zip(self.own, shared, slopes, strict=True))
        for v, g in zip(self.own, slopes, strict=True):
            v.grad = self.alpha * g
        optimizer.step()  # (2)
        if self._adapts:
            self.alpha = min(1.0, max(0.0, self.alpha - trainer.config.lr * turn))  # (3)
            self._adapts = not self._once
        return loss

    def _mixture_gradient(self, trainer: Trainer, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """The shared weights, and the gradient at the mixture; the trainer's model is left as it was."""
        shared, buffers = copies(trainer.parameters), list(buffers_of(trainer.model))
        statistics = copies(buffers)
        _assign(buffers, self.buffers)
        _assign(
            trainer.parameters, [self.alpha * v + (1 - self.alpha) * w for v, w in zip(self.own, shared, strict=True)]
        )
        trainer.backward(batch)
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in trainer.parameters]
        self.buffers = copies(buffers)
        _assign(buffers, statistics)
        _assign(trainer.parameters, shared)
        return shared, slopes

    def _settle(self, trainer: Trainer) -> SGD:
        """The own model's optimizer, made where the trained model lives; the mixture starts with its last buffers, or with
        those of the trained model."""
        if self._optimizer is None:
            self.own = [v.to(w.device) for v, w in zip(self.own, trainer.parameters, strict=True)]
            self.buffers = copies(buffers_of(trainer.model))
            if self._start is not None:
                assign(iter(self.buffers), self._start)
            config = trainer.config
            self._optimizer = SGD(self.own, config.lr, config.momentum, config.weight_decay)
        return self._optimizer


def copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _assign(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
