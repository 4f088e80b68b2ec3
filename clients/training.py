"""The only training loop of the project.

`Trainer.run` takes a step on every mini-batch. An algorithm changes it in one of three places, from small to large:
a *gradient hook* changes the gradients before each step (a proximal term, control variates); a *loss* replaces the
loss of a mini-batch (distillation, prototypes); a *batch step* replaces everything that is done with a mini-batch
(two steps, a second network, a meta-gradient).
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsim.clients.objectives import Objective
from fedsim.clients.optimizers import Optimizer, make_optimizer
from fedsim.clients.seeded import draws_in_training, seeded
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Part
from fedsim.weights import Vec, Weights

Batch = tuple[Tensor, Tensor]
Loss = Callable[["Trainer", Batch], Tensor]  # the loss of one mini-batch
GradientHook = Callable[[Sequence[Tensor]], object]  # changes the `.grad` of the parameters it is given
BatchStep = Callable[["Trainer", Batch], Tensor]  # trains on one mini-batch, returns its loss
EXACT: AbstractContextManager[object] = nullcontext()


def onto(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device. A GPU copies it from pinned memory while this process goes on."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Samples:
    """Inputs and targets on a device. Images are stored channels-last, which is fast, and handed out channels-first."""

    def __init__(self, x: NDArray[Any], y: NDArray[Any], device: torch.device) -> None:
        self._images = x.ndim == 4
        inputs = torch.from_numpy(x)
        self._x = onto((inputs.permute(0, 2, 3, 1) if self._images else inputs).contiguous(), device)
        self._y = onto(torch.from_numpy(y), device)
        self.device = device

    def __len__(self) -> int:
        return len(self._y)

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in (self._x, self._y))

    @staticmethod
    def joined(several: Sequence["Samples"]) -> "Samples":
        """The samples of several clients as one: those of the first, then those of the second, and so on."""
        whole = copy.copy(several[0])
        whole._x, whole._y = torch.cat([s._x for s in several]), torch.cat([s._y for s in several])
        return whole

    def only(self, chosen: NDArray[np.int64]) -> "Samples":
        """A copy of some of the samples."""
        some, indices = copy.copy(self), torch.from_numpy(chosen).to(self.device)
        some._x, some._y = self._x.index_select(0, indices), self._y.index_select(0, indices)
        return some

    def labels(self, classes: int) -> NDArray[np.int64]:
        """Samples per class; empty for targets that are real numbers."""
        return np.bincount(self._y.cpu().numpy().reshape(-1), minlength=classes) if classes else np.zeros(0, np.int64)

    def with_targets(self, targets: NDArray[Any]) -> "Samples":
        """The same inputs with other targets, such as soft labels."""
        other = copy.copy(self)
        other._y = torch.tensor(targets).to(self.device)
        return other

    def at(self, chosen: NDArray[np.int64]) -> Batch:
        indices = onto(torch.from_numpy(chosen), self.device)
        return self._inputs(self._x.index_select(0, indices)), self._y.index_select(0, indices)

    def chunks(self, size: int) -> Iterator[Batch]:
        """All samples in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self._inputs(self._x[start : start + size]), self._y[start : start + size]

    def _inputs(self, x: Tensor) -> Tensor:
        return x.permute(0, 3, 1, 2) if self._images else x


class Trainer:
    """A network with a client's samples and an optimizer: the argument of losses and batch steps."""

    def __init__(
        self,
        network: nn.Module,
        samples: Samples,
        objective: Objective,
        config: RunConfig,
        lr: float,
        rng: np.random.Generator,
        train: Part | None = None,
        batches_read: int = 0,
    ) -> None:
        self.network, self.samples, self.objective = network, samples, objective
        self.config, self.lr, self.rng = config, lr, rng
        self.parameters, _ = tensors_of(network)
        for parameter, trained in zip(self.parameters, trained_tensors(self.parameters, train), strict=True):
            if parameter.requires_grad is not trained:
                parameter.requires_grad_(trained)
        self._start = batches_read if config.batches == "in-order" else None
        self.chosen = np.zeros(0, np.int64)  # the places of the present mini-batch among the samples

    @cached_property
    def optimizer(self) -> Optimizer:
        """The run's optimizer over the trained parameters; evaluations never make one."""
        return make_optimizer(self.config, self.lr, [p for p in self.parameters if p.requires_grad])

    def run(self, steps: int, step: BatchStep) -> float:
        """The loop: so many mini-batches, epoch after epoch; returns the mean loss."""
        if not self.network.training:
            self.network.train()
        if not draws_in_training(self.network):
            return self._run(steps, step)
        with seeded(int(self.rng.integers(2**63))):
            return self._run(steps, step)

    def _run(self, steps: int, step: BatchStep) -> float:
        total = torch.zeros((), device=self.samples.device)
        for chosen in batches(len(self.samples), self.config.batch_size, steps, self.rng, self._start):
            self.chosen = chosen
            with precision_of(self.config, self.samples.device):
                total += step(self, self.samples.at(chosen)).detach()
        return float(total) / max(1, steps)

    def draw(self) -> Batch:
        """A further random mini-batch, beside the loop's own."""
        size = min(self.config.batch_size or len(self.samples), len(self.samples))
        return self.samples.at(self.rng.choice(len(self.samples), size, replace=False))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (the input of the head) and output, from one pass."""
        features: Tensor = part_of(self.network, "base")(x)
        return features, self.head(features)

    def head(self, features: Tensor) -> Tensor:
        output: Tensor = part_of(self.network, "head")(features)
        return output

    def backward(self, batch: Batch, loss: Loss | None = None) -> Tensor:
        """The loss on a batch (the objective's unless given), and its gradients in the parameters."""
        self.optimizer.zero_grad()
        value = self.objective.loss(self.network(batch[0]), batch[1]) if loss is None else loss(self, batch)
        torch.autograd.backward(value)
        return value

    def weights(self) -> Weights:
        """The network's present weights."""
        return weights_of(self.network)


def precision_of(config: RunConfig, device: torch.device) -> AbstractContextManager[object]:
    """Inside, products are made with the precision of the run. Weights are converted anew for each: steps change them."""
    if config.precision == "float32":
        return EXACT
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def one_step(gradient: GradientHook | None = None, loss: Loss | None = None) -> BatchStep:
    """The usual batch step: one step of the optimizer, with changed gradients or another loss if given."""

    def step(trainer: Trainer, batch: Batch) -> Tensor:
        value = trainer.backward(batch, loss)
        if gradient is not None:
            gradient(trainer.parameters)
        trainer.optimizer.step()
        return value

    return step


def batches(
    samples: int, size: int, steps: int, rng: np.random.Generator, start: int | None = None
) -> Iterator[NDArray[np.int64]]:
    """Index batches for so many steps, epoch after epoch, reshuffled each time; the last one of an epoch may be short.
    `size` 0: all samples in one batch.

    With a `start` nothing is shuffled: batches are taken in order, beginning after the first `start` ones.
    """
    size = size or max(1, samples)
    per_epoch, order = -(-samples // size), np.arange(samples)
    for step in range(steps):
        place = (step + (start or 0)) % per_epoch
        if place == 0 and start is None:
            order = rng.permutation(samples)
        yield order[place * size : (place + 1) * size]


def steps_of(samples: int, config: RunConfig, epochs: int | None = None) -> int:
    """How many steps local training takes: whole epochs, or `local-steps` if the run counts in steps."""
    if epochs is None and config.local_steps:
        return config.local_steps
    per_epoch = -(-samples // (config.batch_size or max(1, samples)))
    return per_epoch * (config.local_epochs if epochs is None else epochs)


def trained_tensors(parameters: Sequence[Tensor], train: Part | None) -> list[bool]:
    """For each tensor whether a part covers it; raises ConfigError if the part cuts through a tensor, or is empty."""
    if train is None:
        return [True] * len(parameters)
    if not train.size:
        raise ConfigError("the part of the model that is to be trained holds no parameters: choose another model")
    ends = np.cumsum([p.numel() for p in parameters])[:-1]
    covered = [set(piece.tolist()) for piece in np.split(train.parameters, ends)]
    if any(len(values) > 1 for values in covered):
        raise ConfigError("a part that is trained must cover whole tensors")
    return [values == {True} for values in covered]


def part_of(network: nn.Module, name: str) -> Any:
    """The `base` or the `head` of a network; raises ConfigError for a network that is not head(base(x))."""
    if not hasattr(network, name):
        raise ConfigError(f"model {type(network).__name__} has no {name!r}: this algorithm needs models head(base(x))")
    return getattr(network, name)


_tensors: WeakKeyDictionary[nn.Module, tuple[list[Tensor], list[Tensor]]] = WeakKeyDictionary()


def tensors_of(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters and the buffers of a network (BatchNorm's statistics and the like, without integer counters).

    They are looked up once per network object: the search costs as much as a small training step.
    """
    if network not in _tensors:
        buffers = [b for b in network.buffers() if b.is_floating_point()]
        _tensors[network] = list(network.parameters()), buffers
    return _tensors[network]


def weights_of(network: nn.Module) -> Weights:
    parameters, buffers = tensors_of(network)
    return Weights(flatten(parameters), flatten(buffers))


def load(network: nn.Module, weights: Weights) -> None:
    """Copies weights into a network."""
    parameters, buffers = tensors_of(network)
    assign(parameters, weights.parameters)
    assign(buffers, weights.buffers)


def flatten(tensors: Sequence[Tensor]) -> Vec:
    if not tensors:
        return np.empty(0, np.float32)
    flat: Vec = torch.cat([t.detach().reshape(-1) for t in tensors]).cpu().numpy()
    return flat


def assign(tensors: Sequence[Tensor], vector: Vec) -> None:
    """Copies the vector's parts into the tensors, in order."""
    if not tensors:
        return
    source = torch.from_numpy(np.require(vector, requirements="W"))
    with torch.no_grad():
        for tensor, part in zip(tensors, torch.split(source, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))
