"""Local SGD: the only training loop of the project, and the client half of every algorithm that trains plainly.

An algorithm hooks the loop in one of two places: `adjust` changes the gradients before each step (a proximal term, control
variates); `lesson` replaces what is done with a mini-batch (two steps, inner steps on another model, a meta-gradient).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clients.sgd import SGD
from fedsim.algorithm import ClientBehaviour, Task
from fedsim.config import RunConfig
from fedsim.payload import Downlink, Memory, Uplink

Batch = tuple[Tensor, Tensor]
Adjust = Callable[[Sequence[Any]], object]
Lesson = Callable[["Trainer", Batch], Tensor]  # learns from one mini-batch, returns its loss


class Trainer:
    """A model with a client's data and optimizer: what a lesson works with. `x` is channels-last in memory."""

    def __init__(
        self, model: nn.Module, x: Tensor, y: Tensor, config: RunConfig, rng: np.random.Generator, read: int = 0
    ) -> None:
        self.model, self.config, self.rng = model, config, rng
        self._start = read if config.batches == "in-order" else None
        self.parameters = list(model.parameters())
        self.optimizer = SGD(self.parameters, config.lr, config.momentum, config.weight_decay)
        self._x, self._y = x, y

    def descend(self, steps: int, lesson: Lesson) -> float:
        """The loop: so many mini-batches, epoch after epoch; returns the mean loss."""
        total = torch.zeros((), device=self._x.device)
        self.model.train()
        for chosen in batches(len(self._y), self.config.batch_size, steps, self.rng, self._start):
            total += lesson(self, self.batch(chosen)).detach()
        return float(total) / max(1, steps)

    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        indices = torch.from_numpy(chosen).to(self._x.device)
        return self._x[indices].permute(0, 3, 1, 2), self._y[indices]

    def draw(self) -> Batch:
        """A further random mini-batch, beside the loop's own."""
        size = min(self.config.batch_size, len(self._y))
        return self.batch(self.rng.choice(len(self._y), size, replace=False))

    def backward(self, batch: Batch) -> Tensor:
        """The loss on a batch, and its gradients in the parameters."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        torch.autograd.backward(loss)
        return loss


def one_step(adjust: Adjust | None = None) -> Lesson:
    """The usual lesson: one step of SGD on the batch, with adjusted gradients."""

    def lesson(trainer: Trainer, batch: Batch) -> Tensor:
        loss = trainer.backward(batch)
        if adjust is not None:
            adjust(trainer.parameters)
        trainer.optimizer.step()
        return loss

    return lesson


def batches(
    samples: int, size: int, steps: int, rng: np.random.Generator, start: int | None = None
) -> Iterator[NDArray[np.int64]]:
    """So many index batches, epoch after epoch, reshuffled each time; the last one of an epoch may be short. With a `start`
    nothing is shuffled: they are taken in order, round and round, the first `start` of them having been read before."""
    per_epoch, order = -(-samples // size), np.arange(samples)
    for step in range(steps):
        place = (step + (start or 0)) % per_epoch
        if place == 0 and start is None:
            order = rng.permutation(samples)
        yield order[place * size : (place + 1) * size]


def length(samples: int, config: RunConfig, epochs: int | None = None) -> int:
    """How many steps local training takes: whole epochs, or `local-steps` if the run counts in steps."""
    if epochs is None and config.local_steps:
        return config.local_steps
    return -(-samples // config.batch_size) * (config.local_epochs if epochs is None else epochs)


class LocalSGD(ClientBehaviour[Any]):
    """Train from the received model, return the difference. Subclasses change the gradient, the lesson, or what is kept."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        received = down.vectors["model"]
        fit = task.fit(received, rng, buffers=down.vectors.get("buffers"), lesson=self.lesson(task, down, memory))
        vectors = {"delta": fit.model - received} | ({"buffers": fit.buffers} if fit.buffers.size else {})
        return Uplink(vectors, task.examples, metrics={"loss": fit.loss}, local=fit.model)

    def lesson(self, task: Task, down: Downlink, memory: Memory) -> Lesson:
        """What to do with each mini-batch."""
        return one_step(self.adjust(task, down, memory))

    def adjust(self, task: Task, down: Downlink, memory: Memory) -> Adjust | None:
        """What to do to the gradients before each step; None: plain SGD."""
        return None
