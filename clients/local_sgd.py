"""Local SGD: the only training loop of the project, and the client half of every algorithm that trains plainly."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.config import RunConfig
from fedsim.payload import Downlink, Memory, Uplink

Adjust = Callable[[Sequence[Any]], object]


def descend(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    config: RunConfig,
    rng: np.random.Generator,
    steps: int,
    adjust: Adjust | None = None,
) -> float:
    """Mini-batch SGD on `model` in place; returns the mean loss.

    `x` is channels-last (N x H x W x C in memory). `adjust(parameters)` sees the gradients before each step and may change
    them: a proximal term, control variates.
    """
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, config.lr, config.momentum, weight_decay=config.weight_decay)
    loss_of = nn.CrossEntropyLoss()
    total = torch.zeros((), device=x.device)
    model.train()
    for batch in batches(len(y), config.batch_size, steps, rng):
        chosen = torch.from_numpy(batch).to(x.device)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(x[chosen].permute(0, 3, 1, 2)), y[chosen])
        loss.backward()
        if adjust is not None:
            adjust(parameters)
        optimizer.step()
        total += loss.detach()
    return float(total) / max(1, steps)


def batches(samples: int, size: int, steps: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """So many index batches, epoch after epoch, reshuffled each time; the last one of an epoch may be short."""
    per_epoch = -(-samples // size)
    for step in range(steps):
        place = step % per_epoch
        if place == 0:
            order = rng.permutation(samples)
        yield order[place * size : (place + 1) * size]


def length(samples: int, config: RunConfig, epochs: int | None = None) -> int:
    """How many steps local training takes: whole epochs, or `local-steps` if the run counts in steps."""
    if epochs is None and config.local_steps:
        return config.local_steps
    return -(-samples // config.batch_size) * (config.local_epochs if epochs is None else epochs)


class LocalSGD(ClientBehaviour[Any]):
    """Train from the received model, return the difference. Subclasses change the gradient, or what is kept."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        received = down.vectors["model"]
        fit = task.fit(received, rng, buffers=down.vectors.get("buffers"), adjust=self.adjust(task, down, memory))
        vectors = {"delta": fit.model - received} | ({"buffers": fit.buffers} if fit.buffers.size else {})
        return Uplink(vectors, task.examples, metrics={"loss": fit.loss}, local=fit.model)

    def adjust(self, task: Task, down: Downlink, memory: Memory) -> Adjust | None:
        """What to do to the gradients before each step; None: plain SGD."""
        return None
